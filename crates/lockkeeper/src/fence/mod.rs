//! The resource's side: a gate that refuses a holder whose lease is over.
//!
//! A lease cannot stop a process that was paused and acts when it wakes. The resource can, if it looks at the token: grants carry
//! numbers that only grow, so a smaller one is from the past.
//!
//! **Enter before the first read, check at the write.** A gate that only looks at writes loses updates: a paused holder that read before
//! its successor and writes after it, with the successor not yet having written, passes a write-only check.
//!
//! ```
//! use lockkeeper::fence::{Gate, MemoryGate};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! let client = lockkeeper::Client::connect("memory:").await?;
//! let gate = MemoryGate::default(); // lives with the resource
//!
//! let guard = client.mutex("account:7").lock().await?;
//! let token = guard.token().expect("this store has tokens");
//! gate.enter("account:7", token).await?; // before reading
//! // … read, compute …
//! gate.check("account:7", token).await?; // in one step with the write
//! # Ok(()) }
//! ```
//!
//! The check and the write must be one step of the resource, as a transaction that does both is. Permits of a semaphore are not fenced.
//!
//! The chapter `docs/guide/src/fencing.md` of the guide has whole programs for SQL, Redis, HTTP and files.
//!
//! # In SQL
//!
//! Keep the last token in the row, and let every statement carry the token of its holder:
//!
//! ```sql
//! -- enter, before the first read
//! UPDATE account SET fence = $token WHERE id = $id AND fence <= $token;
//! -- write: only the token that entered last
//! UPDATE account SET balance = $new WHERE id = $id AND fence = $token;
//! ```
//!
//! A statement that changes no row means that a later holder has entered: stop and report the lock as lost. Store the token as a 64-bit
//! number (`u64::from(token)`).
//!
//! If the locks are in the same database (`postgres://`, `mysql://`), one statement of yours is enough, and no column: see [`SqlFence`].
//!
//! # The gate's key in Redis
//!
//! [`Client::gate`](crate::Client::gate) keeps the last token of a resource as the string `NUMBER OWNER` (`1700000000000000
//! 5e0c…:7`) at the key `lockkeeper:fence:{RESOURCE}`, without expiry. A script of your own can check and write in one step; in a
//! cluster give the resource's keys the same hash tag:
//!
//! ```lua
//! -- KEYS: lockkeeper:fence:{account:7}, balance:{account:7}   ARGV: "NUMBER OWNER" of the guard's token, the new value
//! if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.error_reply('FENCED a later holder has entered') end
//! return redis.call('set', KEYS[2], ARGV[2])
//! ```
//!
//! `ARGV[1]` is `format!("{} {}", token.number(), token.owner())`; enter with [`Gate::enter`] before the first read.

mod memory;
mod sql;

pub use memory::MemoryGate;
pub use sql::SqlFence;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::BoxFuture;
use crate::token::Token;

/// Keeps the largest token seen per resource and refuses older ones. Usable as `dyn Gate`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// use lockkeeper::fence::Gate;
///
/// let gate = client.gate()?; // the one of this store
/// let guard = client.rwlock("account:7").write().await?;
/// let token = guard.token().expect("this store has tokens");
/// gate.enter("account:7", token).await?;
/// gate.check("account:7", token).await?;
/// # drop(guard);
/// # Ok(()) }
/// ```
pub trait Gate: Send + Sync {
    /// Before the first read under an exclusive lock: from now on older holders are refused.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] for a token older than one that entered, or of the same number from another owner.
    fn enter<'a>(&'a self, resource: &'a str, token: Token) -> BoxFuture<'a, Result<()>>;

    /// Before reading under a shared lock: refuses a token older than the last exclusive one, and keeps nobody else out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] for a token older than the last exclusive one.
    fn enter_shared<'a>(&'a self, resource: &'a str, token: Token) -> BoxFuture<'a, Result<()>>;

    /// At the write: passes only the token that entered last.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] for any other token.
    fn check<'a>(&'a self, resource: &'a str, token: Token) -> BoxFuture<'a, Result<()>>;
}

/// What a gate remembers of one resource; pure, so that every store's gate decides alike.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let mut mark = lockkeeper::fence::Watermark::default();
/// let earlier = client.mutex("account:7").lock().await?.token().expect("this store has tokens");
/// let later = client.mutex("account:7").lock().await?.token().expect("this store has tokens");
/// mark.enter(later)?;
/// assert!(mark.check(later).is_ok() && mark.check(earlier).is_err());
/// assert!(mark.enter_shared(earlier).is_err(), "it is older than the writer");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Watermark {
    /// The exclusive token that entered last.
    pub last: Option<Token>,
}

impl Watermark {
    /// See [`Gate::enter`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn enter(&mut self, token: Token) -> Result<()> {
        match self.last {
            Some(last) if token.number() < last.number() => Err(stale(token, last)),
            Some(last) if token.number() == last.number() && token.owner() != last.owner() => Err(stale(token, last)),
            _ => {
                self.last = Some(token);
                Ok(())
            }
        }
    }

    /// See [`Gate::enter_shared`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn enter_shared(&self, token: Token) -> Result<()> {
        match self.last {
            Some(last) if token.number() < last.number() => Err(stale(token, last)),
            _ => Ok(()),
        }
    }

    /// See [`Gate::check`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn check(&self, token: Token) -> Result<()> {
        match self.last {
            Some(last) if token == last => Ok(()),
            Some(last) => Err(stale(token, last)),
            None => Err(Error::new(
                ErrorKind::Lost,
                format!("token {token} did not enter before it wrote, or the gate forgot it; enter before the first read"),
            )),
        }
    }
}

fn stale(token: Token, last: Token) -> Error {
    Error::new(ErrorKind::Lost, format!("token {token} is refused: token {last} has entered since; the lock was lost"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::{ClientId, WireOwner};

    fn token(number: u64, client: u128) -> Token {
        Token::new(number, WireOwner { client: ClientId::from_bits(client), number: 1 })
    }

    #[test]
    fn an_older_token_is_refused_from_the_moment_a_newer_one_entered() {
        let mut gate = Watermark::default();
        gate.enter(token(5, 1)).unwrap();
        gate.enter(token(6, 2)).unwrap();
        assert!(gate.check(token(5, 1)).is_err(), "the successor has not written yet, and still");
        assert!(gate.enter(token(5, 1)).is_err());
        gate.check(token(6, 2)).unwrap();
    }

    #[test]
    fn an_equal_number_from_another_owner_is_refused() {
        let mut gate = Watermark::default();
        gate.enter(token(5, 1)).unwrap();
        gate.enter(token(5, 1)).unwrap();
        assert!(gate.enter(token(5, 2)).is_err());
        assert!(gate.check(token(5, 2)).is_err());
    }

    #[test]
    fn readers_share_and_raise_nothing() {
        let mut gate = Watermark::default();
        gate.enter(token(5, 1)).unwrap();
        gate.enter_shared(token(7, 2)).unwrap();
        gate.enter_shared(token(6, 3)).unwrap();
        gate.check(token(5, 1)).unwrap();
        assert!(gate.enter_shared(token(4, 2)).is_err());
    }

    #[test]
    fn a_write_without_entering_is_refused() {
        assert!(Watermark::default().check(token(5, 1)).is_err());
        let mut gate = Watermark::default();
        gate.enter(token(5, 1)).unwrap();
        assert!(gate.check(token(6, 2)).is_err(), "newer, but it read before it entered");
    }
}
