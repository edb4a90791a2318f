//! What stores share: the engine that runs the model on rows, the listener table, the offset of a server's clock, the token rule, listing,
//! client cards, the rules of an ordered list of places, and the thread of a store's connections.
//!
//! A SQL store implements [`rows::RowTable`] for its transaction (seven statements), forwards [`engine::Rows`] to it, and sends
//! wake-ups; [`engine::RecordEngine`] carries out every request that concerns records.

pub(crate) mod cards;
#[cfg(feature = "redis-single")]
pub(crate) mod clock;
pub(crate) mod engine;
pub(crate) mod listeners;
pub(crate) mod listing;
#[cfg(feature = "conformance")]
pub(crate) mod placed;
#[cfg(feature = "conformance")]
pub(crate) mod places;
pub(crate) mod rows;
#[cfg(test)]
mod rows_test;
pub(crate) mod tokens;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper", feature = "etcd"))]
pub(crate) mod worker;
