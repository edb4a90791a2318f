//! Backends that touch a store; each knows only the contract, never another store. `kit` is what they share.

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg_attr(
    not(all(feature = "sqlite", target_os = "linux")),
    allow(dead_code, reason = "only sqlite uses all of it; the memory store keeps whole records and needs no tables")
)]
pub(crate) mod kit;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[allow(dead_code, reason = "the stores with queues of nodes use it")]
pub(crate) mod queue;
#[cfg(feature = "redis-single")]
pub mod redis;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod sql;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub mod sqlite;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;
