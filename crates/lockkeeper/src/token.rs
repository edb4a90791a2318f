//! The fencing token: the number that lets a resource turn away a holder whose time is over.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::owner::WireOwner;

/// The fencing token of one grant.
///
/// Later grants of a name carry strictly larger numbers. The token carries its owner too, so that a gate can refuse an
/// equal number from somebody else (two servers with one clock reading). Give it to the resource: see
/// [`fence`](crate::fence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token {
    number: u64,
    owner: WireOwner,
}

impl Token {
    /// The token with this number for this owner.
    #[must_use]
    pub const fn new(number: u64, owner: WireOwner) -> Self {
        Self { number, owner }
    }

    /// The number; larger is later.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }

    /// Whose token it is.
    #[must_use]
    pub const fn owner(self) -> WireOwner {
        self.owner
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}
