//! What to listen for while something cannot be had.

use super::request::{Acquire, Claim, Kind};
use crate::name::Name;
use crate::owner::WireOwner;

/// What to listen for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Watch {
    /// Where.
    pub name: Name,
    /// On what.
    pub kind: Kind,
    /// Who waits: the owner of the acquire, or a new id for one that waits for a number.
    pub owner: WireOwner,
    /// What it waits for; `None` for a number.
    pub claim: Option<Claim>,
    /// Grant this once it can be granted, and [send the grant](super::Notifier::notify_granted) with the notification. Needs
    /// [`Capabilities::pushed_grants`](super::Capabilities::pushed_grants); other stores ignore it.
    ///
    /// The store may grant it as long as the subscription lives and the request is not late. A waiter that gives up ends its subscription
    /// and then releases the owner, because a grant may be under way.
    pub grant: Option<Box<Acquire>>,
    /// The client registers with its acquires ([`Acquire::register`]) and is notified when it is its turn. Needs
    /// [`Capabilities::wakes_in_turn`](super::Capabilities::wakes_in_turn); other stores ignore it.
    pub in_turn: bool,
}

impl Watch {
    /// Listens for what may let this owner have its claim.
    #[must_use]
    pub const fn new(name: Name, claim: Claim, owner: WireOwner) -> Self {
        Self { name, kind: claim.kind(), owner, claim: Some(claim), grant: None, in_turn: false }
    }

    /// Listens for changes of a number. `owner` is a new id.
    #[must_use]
    pub const fn number(name: Name, kind: Kind, owner: WireOwner) -> Self {
        Self { name, kind, owner, claim: None, grant: None, in_turn: false }
    }

    /// Listens for what may let the owner of `request` have it, and asks for the grant itself.
    #[must_use]
    pub fn granting(request: Acquire) -> Self {
        let watch = Self::new(request.name.clone(), request.claim, request.owner);
        Self { grant: Some(Box::new(request)), ..watch }
    }

    /// The same for another name.
    #[must_use]
    pub fn with_name(self, name: Name) -> Self {
        let grant = self.grant.map(|grant| Box::new(grant.with_name(name.clone())));
        Self { name, grant, ..self }
    }

    /// Whether to be notified when it is the turn of this client, and not of every release.
    #[must_use]
    pub fn with_in_turn(self, in_turn: bool) -> Self {
        Self { in_turn, ..self }
    }

    /// The owner, if only its own place in the queue concerns it: a fair claim. `None`: everything at the name does.
    #[must_use]
    pub fn own_place(&self) -> Option<WireOwner> {
        (self.claim == Some(Claim::Fair)).then_some(self.owner)
    }
}
