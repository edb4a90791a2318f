//! Client cards: which host, process and program is behind an owner. A card ends unless it is announced again.

use std::collections::HashMap;

use crate::backend::{ClientCard, Holder, Snapshot};
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

    /// Adds the cards of everybody that is seen at a name.
    pub(crate) fn add_to(&self, mut seen: Option<Snapshot>, at: Instant) -> Result<Option<Snapshot>> {
        seen.iter_mut().try_for_each(|seen| add_all_cards(seen, |client| Ok(self.card(client, at))))?;
        Ok(seen)
    }

    /// The card of a client, unless it has ended.
    pub(crate) fn card(&self, client: ClientId, at: Instant) -> Option<ClientCard> {
        self.0.get(&client).filter(|(_, ends)| *ends > at).map(|(card, _)| card.clone())
    }
}

/// Adds to each holder the card that `find` knows of its client.
pub(crate) fn add_cards(holders: &mut [Holder], mut find: impl FnMut(ClientId) -> Result<Option<ClientCard>>) -> Result<()> {
    holders.iter_mut().try_for_each(|holder| add(&mut holder.client, &holder.owner, &mut find))
}

/// The same for everybody that is seen at a name.
pub(crate) fn add_all_cards(seen: &mut Snapshot, mut find: impl FnMut(ClientId) -> Result<Option<ClientCard>>) -> Result<()> {
    add_cards(&mut seen.holders, &mut find)?;
    seen.queue.iter_mut().try_for_each(|waiter| add(&mut waiter.client, &waiter.owner, &mut find))
}

fn add(card: &mut Option<ClientCard>, owner: &str, find: impl FnOnce(ClientId) -> Result<Option<ClientCard>>) -> Result<()> {
    if let Ok(owner) = owner.parse::<WireOwner>() {
        *card = find(owner.client)?;
    }
    Ok(())
}
