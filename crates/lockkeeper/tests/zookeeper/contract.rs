//! The store keeps the contract.

use crate::harness::OnZooKeeper;

lockkeeper::conformance!(OnZooKeeper::new());
