//! Backends that touch a store; each knows only the contract, never another store. `kit` is what they share.

#[cfg_attr(
    not(all(feature = "sqlite", target_os = "linux")),
    allow(dead_code, reason = "only sqlite uses all of it; the memory store keeps whole records and needs no tables")
)]
pub(crate) mod kit;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis-single")]
pub mod redis;
#[cfg(feature = "postgres")]
pub(crate) mod sql;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub mod sqlite;
