//! The locks, atomics and wake-ups of the code whose schedules are explored: those of `std` and tokio.
//!
//! `verify/schedules` compiles this library with `--cfg lockkeeper_shuttle`. There each of them lets a scheduler decide which thread runs next, so that
//! a test meets orders that a machine shows once in a month. The architecture test keeps `std::sync` out of the files that are explored.

#[cfg(not(lockkeeper_shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(lockkeeper_shuttle))]
pub(crate) use tokio::sync::Notify;

#[cfg(lockkeeper_shuttle)]
#[path = "../../../../verify/schedules/scenarios/sync.rs"]
mod explored;
#[cfg(lockkeeper_shuttle)]
pub(crate) use explored::{Notify, atomic};
#[cfg(lockkeeper_shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
