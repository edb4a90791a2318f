//! What all guards have in common, for code that works with any of them.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::error::Result;
use crate::session::{Held, Loss};
use crate::token::Token;

/// A guard of one hold: a mutex, one side of a read-write lock, or permits of a semaphore.
///
/// For generic code. It cannot be implemented outside this crate.
///
/// ```
/// use lockkeeper::sync::Guard;
///
/// async fn finish<G: Guard>(guard: G) -> lockkeeper::Result<()> {
///     if guard.is_valid() {
///         println!("{} held with token {:?}", guard.name(), guard.token());
///     }
///     guard.release().await
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let client = lockkeeper::Client::connect("memory:").await?;
/// finish(client.mutex("orders").lock().await?).await?;
/// finish(client.semaphore("workers", 2).acquire().await?).await?;
/// # Ok(()) }
/// ```
pub trait Guard: sealed::Sealed + fmt::Debug + Sized + Send + Sync + 'static {
    #[doc(hidden)]
    fn new(held: Held) -> Self;

    #[doc(hidden)]
    fn into_held(self) -> Held;

    #[doc(hidden)]
    fn held(&self) -> &Held;

    /// The name that is held.
    fn name(&self) -> &str {
        self.held().name()
    }

    /// Whether the hold is still good: see [`Held::is_valid`].
    fn is_valid(&self) -> bool {
        self.held().is_valid()
    }

    /// How long the hold is good if no renewal gets through: see [`Held::remaining`].
    fn remaining(&self) -> Duration {
        self.held().remaining()
    }

    /// The fencing token: see [`Held::token`].
    fn token(&self) -> Option<Token> {
        self.held().token()
    }

    /// Tells when the hold is lost: see [`Held::loss`].
    fn loss(&self) -> Loss {
        self.held().loss()
    }

    /// Releases the hold now: see [`MutexGuard::release`](crate::MutexGuard::release).
    fn release(self) -> impl Future<Output = Result<()>> + Send {
        self.into_held().release()
    }
}

#[allow(unreachable_pub, reason = "a public trait needs it, and nobody else may name it")]
pub mod sealed {
    //! Keeps others from implementing [`Guard`](super::Guard) and [`Lockable`](super::super::Lockable).

    /// Implemented here only.
    pub trait Sealed {}
}
