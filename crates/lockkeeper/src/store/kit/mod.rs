//! What stores share: the engine that runs the model on rows, the listener table, the offset of a server's clock, the token rule, listing,
//! client cards, the short answer to a waiter, the rules of an ordered list of places, the thread of a store's connections, the choice of cryptography for TLS, and
//! whether a port expects TLS.
//!
//! A SQL store implements [`rows::RowTable`] for its transaction (seven statements), forwards [`engine::Rows`] to it, and sends
//! wake-ups; [`engine::RecordEngine`] carries out every request that concerns records.

pub(crate) mod cards;
#[cfg(feature = "redis-single")]
pub(crate) mod clock;
pub(crate) mod engine;
#[cfg(any(feature = "redis-single", feature = "postgres", feature = "mysql", test))]
pub(crate) mod far_ends;
#[cfg(test)]
mod far_ends_test;
pub(crate) mod listeners;
pub(crate) mod listing;
#[cfg(feature = "conformance")]
pub(crate) mod placed;
#[cfg(feature = "conformance")]
pub(crate) mod places;
pub(crate) mod rows;
#[cfg(test)]
mod rows_test;
#[cfg(any(feature = "mysql", feature = "zookeeper-tls"))]
pub(crate) mod tls;
#[cfg(any(feature = "zookeeper", feature = "etcd"))]
pub(crate) mod tls_probe;
pub(crate) mod tokens;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(crate) mod waiting;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper", feature = "etcd"))]
pub(crate) mod worker;
