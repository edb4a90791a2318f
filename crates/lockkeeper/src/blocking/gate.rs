//! The resource's side of the fence, for threads.

use std::fmt;
use std::sync::Arc;

use super::Client;
use crate::error::Result;
use crate::fence::{self, SqlFence};
use crate::session::Held;
use crate::token::Token;

impl Client {
    /// The gate at this client's store; see [`lockkeeper::Client::gate`](crate::Client::gate).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn gate(&self) -> Result<Gate> {
        Ok(Gate { gate: self.inner.gate()?, client: self.clone() })
    }

    /// The fence for a transaction of your own in the database that has the locks; see
    /// [`lockkeeper::Client::sql_fence`](crate::Client::sql_fence).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn sql_fence(&self, held: &Held) -> Result<SqlFence> {
        self.inner.sql_fence(held)
    }
}

/// The gate of a store; see [`fence::Gate`]. Cheap to clone.
///
/// ```
/// # let client = lockkeeper::blocking::Client::connect("memory:")?;
/// let gate = client.gate()?;
/// let guard = client.mutex("account:7").lock()?;
/// let token = guard.token().expect("this store has tokens");
/// gate.enter("account:7", token)?; // before the first read
/// gate.check("account:7", token)?; // at the write
/// gate.enter_shared("account:7", token)?; // a reader asks this
/// assert!(client.sql_fence(&guard).is_err(), "memory: is no SQL database");
/// # drop(guard);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone)]
pub struct Gate {
    gate: Arc<dyn fence::Gate>,
    client: Client,
}

impl Gate {
    /// Before the first read under an exclusive lock; see [`fence::Gate::enter`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn enter(&self, resource: impl AsRef<str>, token: Token) -> Result<()> {
        self.client.block_on(self.gate.enter(resource.as_ref(), token))
    }

    /// Before reading under a shared lock; see [`fence::Gate::enter_shared`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn enter_shared(&self, resource: impl AsRef<str>, token: Token) -> Result<()> {
        self.client.block_on(self.gate.enter_shared(resource.as_ref(), token))
    }

    /// At the write; see [`fence::Gate::check`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn check(&self, resource: impl AsRef<str>, token: Token) -> Result<()> {
        self.client.block_on(self.gate.check(resource.as_ref(), token))
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("client", &self.client).finish_non_exhaustive()
    }
}
