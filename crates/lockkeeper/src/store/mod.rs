//! Backends that touch a store; each knows only the contract, never another store.

pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub mod sqlite;
