//! Distributed locks and synchronizers: fenced, kept alive, woken by push, on the store you already run.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! use lockkeeper::Client;
//!
//! let client = Client::connect("memory:").await?;
//! let guard = client.mutex("orders:42").lock().await?;
//! println!("only one of us at a time, token {:?}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! **What a lease cannot promise.** A process that is paused longer than its lease may wake up and act while somebody else holds the
//! lock. No lock service can prevent that; a [`fence`] on the resource can.
//!
//! Start at [`Client`]; [`sync`] says which synchronizer to use; `blocking` (a feature, on by default) is the same for threads. To write a store of your own,
//! implement [`backend::Backend`] and run the `conformance` suite (feature `conformance`).

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
pub mod blocking;

pub mod sync;

pub mod fence;

pub mod backend;

pub mod observability;

#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;

#[cfg(feature = "conformance")]
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
pub mod conformance;

mod client;

// Not part of the public API: for stores, for the conformance suite and for this crate's own tests.
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod layer;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod name;
#[doc(hidden)]
pub mod owner;
mod retry;
#[doc(hidden)]
pub mod runtime;
#[doc(hidden)]
pub mod session;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod token;

pub use backend::LossReason;
pub use client::{Builder, Client, Examination, List, ListStream};
pub use error::{Error, ErrorKind, Result};
pub use name::Name;
pub use owner::{ClientId, WireOwner};
pub use runtime::Runtime;
pub use session::{Held, Loss, Owner};
pub use sync::{
    CountDownLatch, CountingSemaphore, FairMutex, MultiLock, MultiLockGuard, Mutex, MutexGuard, Permit, PermitId, RwLock,
    RwLockReadGuard, RwLockWriteGuard, Semaphore,
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
#[cfg(all(doctest, feature = "redlock"))]
#[doc = include_str!("../../../docs/redlock.md")]
pub struct RedLockPage;

/// The code of the page on testing, compiled and run by the tests.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/testing.md")]
pub struct TestingPage;

/// The code of the page for authors of stores, compiled and run by the tests.
#[cfg(all(doctest, feature = "conformance"))]
#[doc = include_str!("../../../docs/store-authors.md")]
pub struct StoreAuthorsPage;

/// The README's code, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
