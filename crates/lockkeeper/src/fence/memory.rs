//! A gate in this process, for tests and for resources that live in it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::{Gate, Watermark};
use crate::error::Result;
use crate::runtime::BoxFuture;
use crate::token::Token;

/// A gate in this process. Clones of an `Arc` of it guard the same resources.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// use lockkeeper::fence::{Gate, MemoryGate};
///
/// let (gate, mut balance) = (MemoryGate::default(), 100);
/// let guard = client.mutex("account:7").lock().await?;
/// let token = guard.token().expect("this store has tokens");
/// gate.enter("account:7", token).await?; // before the first read
/// let new = balance + 5;
/// gate.write("account:7", token, || balance = new)?; // checks and writes in one step
/// assert_eq!(balance, 105);
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct MemoryGate {
    resources: Mutex<HashMap<String, Watermark>>,
}

impl MemoryGate {
    fn with<T>(&self, resource: &str, decide: impl FnOnce(&mut Watermark) -> T) -> T {
        let mut resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        decide(resources.entry(resource.to_owned()).or_default())
    }

    /// Checks and writes in one step: `write` runs only if the token passes, and nobody enters meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Gate::check`].
    pub fn write<T>(&self, resource: &str, token: Token, write: impl FnOnce() -> T) -> Result<T> {
        self.with(resource, |mark| mark.check(token).map(|()| write()))
    }
}

impl Gate for MemoryGate {
    fn enter<'a>(&'a self, resource: &'a str, token: Token) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(self.with(resource, |mark| mark.enter(token))))
    }

    fn enter_shared<'a>(&'a self, resource: &'a str, token: Token) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(self.with(resource, |mark| mark.enter_shared(token))))
    }

    fn check<'a>(&'a self, resource: &'a str, token: Token) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(self.with(resource, |mark| mark.check(token))))
    }
}
