//! The store keeps the contract.

use crate::harness::OnEtcd;

lockkeeper::conformance!(OnEtcd::new());
