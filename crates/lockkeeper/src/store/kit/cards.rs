//! Client cards: which host, process and program is behind an owner. A card ends unless it is announced again.

use std::collections::HashMap;

use crate::backend::{ClientCard, Holder, Waiter};
use crate::error::Result;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::Instant;

/// The cards that a store keeps inside this process.
#[derive(Debug, Default)]
pub(crate) struct Cards(HashMap<ClientId, (ClientCard, Instant)>);

impl Cards {
    /// Keeps `card` until `until`, and removes those that have ended.
    pub(crate) fn announce(&mut self, card: ClientCard, now: Instant, until: Instant) {
        self.0.retain(|_, (_, ends)| *ends > now);
        self.0.insert(card.id, (card, until));
    }

    /// The card of a client, unless it has ended.
    pub(crate) fn card(&self, client: ClientId, at: Instant) -> Option<ClientCard> {
        self.0.get(&client).filter(|(_, ends)| *ends > at).map(|(card, _)| card.clone())
    }
}

/// Adds to each holder the card that `find` knows of its client.
pub(crate) fn add_cards(
    holders: Vec<Holder>,
    mut find: impl FnMut(ClientId) -> Result<Option<ClientCard>>,
) -> Result<Vec<Holder>> {
    let add = |mut holder: Holder| {
        if let Ok(owner) = holder.owner.parse::<WireOwner>() {
            holder.client = find(owner.client)?;
        }
        Ok(holder)
    };
    holders.into_iter().map(add).collect()
}

/// Adds to each waiter the card that `find` knows of its client.
pub(crate) fn add_waiter_cards(
    queue: Vec<Waiter>,
    mut find: impl FnMut(ClientId) -> Result<Option<ClientCard>>,
) -> Result<Vec<Waiter>> {
    let add = |mut waiter: Waiter| {
        if let Ok(owner) = waiter.owner.parse::<WireOwner>() {
            waiter.client = find(owner.client)?;
        }
        Ok(waiter)
    };
    queue.into_iter().map(add).collect()
}
