//! Who asks: one id per client, one number per acquisition.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, ErrorKind};

/// One client of a store, drawn at random when it connects.
///
/// ```
/// use lockkeeper::ClientId;
/// assert_eq!(ClientId::from_bits(7).bits(), 7);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(Uuid);

impl ClientId {
    /// The client with these 128 bits; [`Runtime::client_id`](crate::runtime::Runtime::client_id) draws them.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self(Uuid::from_u128(bits))
    }

    /// Its 128 bits.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0.as_u128()
    }

    /// Its bits folded in two, for places that have no room for all.
    #[allow(clippy::cast_possible_truncation, reason = "the two halves are meant")]
    pub(crate) const fn folded(self) -> u64 {
        (self.bits() >> 64) as u64 ^ self.bits() as u64
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The owner of one outermost acquisition, or the id of one counting request: `<client>:<number>`.
///
/// A number is used once in the life of a client. So a request sent twice is recognised, and a stale
/// release can never free a newer hold.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let guard = client.mutex("orders").lock().await?;
/// let owner = guard.owner();
/// assert_eq!(owner.client, client.id());
/// assert_eq!(owner.to_string().parse::<lockkeeper::WireOwner>()?, owner);
/// assert_eq!(lockkeeper::WireOwner::new(owner.client, owner.number), owner);
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WireOwner {
    /// The client that asks.
    pub client: ClientId,
    /// Which of its acquisitions this is.
    pub number: u64,
}

impl WireOwner {
    /// The acquisition or counting request `number` of `client`.
    #[must_use]
    pub const fn new(client: ClientId, number: u64) -> Self {
        Self { client, number }
    }

    /// What a store keeps that has 13 bytes for an owner: its client's id folded in two, and the last 40 bits of its number.
    pub(crate) fn short(self) -> [u8; 13] {
        let mut short = [0; 13];
        short[..8].copy_from_slice(&self.client.folded().to_be_bytes());
        short[8..].copy_from_slice(&self.number.to_be_bytes()[3..]);
        short
    }
}

impl fmt::Display for WireOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

impl fmt::Debug for WireOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for WireOwner {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.split_once(':')
            .and_then(|(client, number)| {
                Some(Self { client: ClientId(Uuid::try_parse(client).ok()?), number: number.parse().ok()? })
            })
            .ok_or_else(|| Error::new(ErrorKind::InvalidArgument, format!("{text:?} is not an owner; expected <uuid>:<number>")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_back_what_it_prints() {
        let owner = WireOwner { client: ClientId::from_bits(7), number: 42 };
        assert_eq!(owner.to_string(), "00000000-0000-0000-0000-000000000007:42");
        assert_eq!(owner.to_string().parse::<WireOwner>().unwrap(), owner);
        assert!("somebody".parse::<WireOwner>().is_err());
    }
}
