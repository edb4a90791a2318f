//! The fencing token: the number by which a resource refuses a holder whose lease is over.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::owner::WireOwner;

/// The fencing token of one grant.
///
/// Later grants of a name carry strictly larger numbers; tokens are ordered by them. The token carries its owner too, so that a
/// gate can refuse an equal number of another owner (two servers with the same clock reading). Give it to the resource: see
/// [`fence`](crate::fence).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let client = lockkeeper::Client::connect("memory:").await?;
/// let first = client.mutex("orders").lock().await?;
/// let earlier = first.token();
/// first.release().await?;
/// let second = client.mutex("orders").lock().await?;
/// assert!(second.token() > earlier);
/// assert!(second.token().map(|token| token.number()) > earlier.map(|token| token.number()));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token {
    number: u64,
    owner: WireOwner,
}

impl Token {
    /// The token with this number for this owner.
    ///
    /// ```
    /// use lockkeeper::{ClientId, Token, WireOwner};
    ///
    /// let owner = WireOwner::new(ClientId::from_bits(7), 1);
    /// let token = Token::new(42, owner); // read back from the resource
    /// assert_eq!((token.number(), token.owner()), (42, owner));
    /// ```
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

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.number
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}
