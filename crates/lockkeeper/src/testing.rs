//! Testing your own service: a clock that a test moves, and faults on purpose. The chapter of the guide is `docs/guide/src/testing.md`.
//!
//! ```
//! use std::time::Duration;
//! use lockkeeper::testing;
//!
//! // With #[tokio::test(start_paused = true)] in a real test.
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> lockkeeper::Result<()> {
//! let client = testing::client()?;
//! let guard = client.mutex("orders").lock().lease(Duration::from_secs(30)).await?;
//! tokio::time::sleep(Duration::from_secs(60)).await; // takes no time
//! assert!(!guard.is_valid(), "the lease is over");
//! # Ok(()) }
//! ```
//!
//! [`client`] is short for a store that several clients can share:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> lockkeeper::Result<()> {
//! use std::sync::Arc;
//! use lockkeeper::{Client, testing::{MemoryStore, Runtime}};
//!
//! let runtime = Runtime::simulated();
//! let store = Arc::new(MemoryStore::new(runtime.clone()));
//! let client = Client::builder().runtime(runtime).with_backend(store)?;
//! client.with_lock("orders", async {}).await?;
//! # Ok(()) }
//! ```

pub use crate::layer::{Chaos, Fault, Faulty};
pub use crate::runtime::Runtime;
pub use crate::store::memory::MemoryStore;

use std::sync::Arc;

use crate::client::Client;
use crate::error::Result;

/// A client of a new memory store on the clock of the tokio runtime that this is called in, which a test can pause and move.
///
/// # Errors
///
/// None of its own.
///
/// # Panics
///
/// Outside a tokio runtime.
pub fn client() -> Result<Client> {
    let runtime = Runtime::simulated();
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    Client::builder().runtime(runtime).with_backend(store)
}
