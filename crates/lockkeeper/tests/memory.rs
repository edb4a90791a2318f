//! The memory store keeps the contract.

use std::sync::Arc;

use lockkeeper::backend::Backend;
use lockkeeper::conformance::{Harness, Time};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;

struct Memory;

impl Harness for Memory {
    fn time(&self) -> Time {
        Time::Simulated
    }

    async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
        Arc::new(MemoryStore::new(runtime))
    }
}

lockkeeper::conformance!(Memory);
