//! Distributed locks and synchronizers: fenced, kept alive, woken by push, on the store you already run.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! use lockkeeper::Client;
//!
//! let client = Client::connect("memory:").await?;
//! let guard = client.mutex("orders:42").lock().await?;
//! println!("only one of us at a time, token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! **What a lease cannot promise.** A process that is paused longer than its lease may wake up and act while somebody else holds the
//! lock. No lock service can prevent that; a [`fence`] on the resource can.
//!
//! Start at [`Client`]; [`sync`] says which synchronizer to use; [`blocking`] is the same for threads. To write a store of your own,
//! implement [`backend::Backend`] and run the `conformance` suite (feature `conformance`).

pub mod client;

pub mod blocking;

pub mod sync;

pub mod fence;

pub mod session;

pub mod backend;

pub mod model;

pub mod layer;

pub mod store;

#[cfg(feature = "conformance")]
pub mod conformance;

pub mod error;
pub mod name;
pub mod owner;
mod retry;
pub mod runtime;
pub mod token;

pub use client::{Builder, Client};
pub use error::{Error, ErrorKind, Result};
pub use session::{Held, Owner, Settings};
pub use sync::{
    CountDownLatch, CountingSemaphore, FairMutex, MultiLock, MultiLockGuard, Mutex, MutexGuard, Permit, RwLock, RwLockReadGuard,
    RwLockWriteGuard, Semaphore,
};
pub use token::Token;

/// The code of the page on Redis, compiled by the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backends/redis.md")]
pub struct RedisPage;

/// The code of the page on SQLite, compiled by the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backends/sqlite.md")]
pub struct SqlitePage;

/// The code of the page on RedLock, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/redlock.md")]
pub struct RedLockPage;

/// The README's code, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
