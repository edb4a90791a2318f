//! What the tests of several crates share: real servers, a proxy that injects network faults, bounded polling, and examples as programs.
//!
//! It is never published, and it panics where a test should fail.
#![allow(
    missing_docs,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    clippy::disallowed_methods,
    reason = "read with its source at hand, by tests that use real clocks"
)]

pub mod clock;
pub mod cluster;
pub mod commands;
pub mod etcd;
pub mod examples;
pub mod mysql;
pub mod netns;
pub mod pgbouncer;
pub mod poll;
pub mod postgres;
pub mod proxy;
pub mod sentinels;
pub mod server;
pub mod signal;
pub mod stalls;
pub mod zookeeper;
