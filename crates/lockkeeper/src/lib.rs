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
//! client.close().await // at shutdown: releases what is left, and waits for it
//! # }
//! ```
//!
//! **What a lease cannot promise.** A process that is paused longer than its lease may wake up and act while somebody else holds the
//! lock. No lock service can prevent that; a [`fence`] on the resource can.
//!
//! # When to use it
//!
//! Several processes must not do a thing at the same time: one order per user, one run of a job, one writer of a file. Inside one process
//! `tokio::sync::Mutex` is enough. If the thing is one row of one database, a transaction is enough.
//!
//! # Modules
//!
//! * [`Client`] connects to a store and makes synchronizers; [`sync`] says which one to use.
//! * `blocking` (a feature, on by default) is the same for threads.
//! * [`fence`] is the resource's side of a token.
//! * [`observability`] lists metrics, spans and log lines.
//! * `testing` (a feature) has a clock that a test moves, and faults on purpose.
//!
//! For authors of stores: [`backend::Backend`] is the contract, and the feature `conformance` has it as a test suite.
//!
//! # Which store
//!
//! | URL | reaches | feature |
//! |---|---|---|
//! | `memory:`, `memory:NAME` | one process | |
//! | `sqlite:PATH` | one machine | `sqlite` |
//! | `postgres://USER@HOST/DATABASE` | all machines | `postgres` |
//! | `mysql://USER@HOST/DATABASE` | all machines | `mysql` |
//! | `zookeeper://HOST,HOST,HOST/FOLDER` | all machines | `zookeeper` |
//! | `zookeepers://HOST,HOST,HOST/FOLDER` | all machines, with TLS | `zookeeper-tls` |
//! | `etcd://HOST,HOST,HOST`, `etcds://` with TLS | all machines | `etcd` |
//! | `redis://HOST`, `redis+sentinel://`, `redis+cluster://`, `redis+unix://` | all machines | `redis` |
//! | the same with `rediss` | all machines, with TLS | `redis-tls` |
//! | `redlock:URL,URL,URL` | all machines, a majority of servers | that of its servers |
//! | `config:FILE` | what the file says, TOML or Redisson's YAML | `config` |
//!
//! A URL of a store that is not built in is an error that names the feature. [`Client::from_env`] reads `LOCKKEEPER_STORE`.
//!
//! # Leases and loss
//!
//! Without `.lease(d)` a thread of the client renews the hold for as long as its guard lives. With it the hold ends by itself. A hold can
//! be lost earlier: its guard is told.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! use std::time::Duration;
//! # let client = lockkeeper::Client::connect("memory:").await?;
//! let guard = client.mutex("report").lock().timeout(Duration::from_secs(3)).lease(Duration::from_secs(10)).await?;
//! guard.extend(Duration::from_secs(20)).await?;
//! assert!(guard.is_valid() && guard.remaining() > Duration::from_secs(10));
//! let loss = guard.loss(); // can go to another task, or to a thread
//!
//! client.force_release("report").await?; // as an operator does
//! let reason = guard.lost().await;
//! assert!(loss.is_lost() && loss.reason() == Some(reason));
//! assert_eq!(loss.wait_timeout(Duration::ZERO), Some(reason));
//! assert!(guard.run(async { unreachable!("the work is not started") }).await.is_err());
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! A busy lock is no error for `try_lock`: it is `None`. [`ErrorKind`] has a table: what to retry, when to alert, which HTTP status.
//!
//! # Shutdown
//!
//! [`Client::close`] releases everything and waits until the store has confirmed it. A guard that is dropped is released in the background;
//! a process that ends at once may not get that far, and the lock is free when its lease ends.
//!
//! # Seeing who holds what
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! # let client = lockkeeper::Client::connect("memory:").await?;
//! let mutex = client.mutex("orders:42");
//! let guard = mutex.lock().await?;
//! assert!(mutex.is_locked().await?);
//! assert_eq!(mutex.holders().await?.len(), 1);
//! let seen = client.inspect("orders:42").await?.expect("somebody holds it");
//! assert_eq!(seen.holders[0].token, guard.token().map(u64::from));
//! println!("{} at {}: connected: {}", client.id(), client.url(), client.is_connected());
//! # Ok(()) }
//! ```
//!
//! # More
//!
//! `docs/guide` in the repository is a book: from `SETNX` to a lock you can trust, choosing a store and a synchronizer, fencing, testing,
//! operating, shutdown, moving from Redisson, troubleshooting by error message. Its chapters are `docs/guide/src/*.md`; these pages name the
//! one that has more. `docs/guarantees.md` has the promises, fault by fault.
//!
//! # Limits
//!
//! * A lease needs clocks that run at about the same speed, not clocks that agree.
//! * A name is any text without a NUL. It has one kind on a store: asking for another is [`ErrorKind::WrongKind`].
//! * A failover of Redis can lose a lock unless `?replicas=` says otherwise; tokens still grow.
//! * `sqlite:` needs Linux and a local disk.

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
#[cfg(all(feature = "fuzzing", target_os = "linux"))]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod layer;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod name;
#[doc(hidden)]
pub mod owner;
#[cfg(feature = "referee")]
#[doc(hidden)]
pub mod referee;
mod retry;
#[doc(hidden)]
pub mod runtime;
// Scenarios whose schedules `verify/schedules` explores; no build of the library has it.
#[cfg(lockkeeper_shuttle)]
#[doc(hidden)]
#[path = "../../../verify/schedules/scenarios/mod.rs"]
pub mod schedules;
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

/// The code of the pages on the other stores, compiled by the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backends/postgres.md")]
#[doc = include_str!("../../../docs/backends/mysql.md")]
#[doc = include_str!("../../../docs/backends/zookeeper.md")]
#[doc = include_str!("../../../docs/backends/etcd.md")]
pub struct StorePages;

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
