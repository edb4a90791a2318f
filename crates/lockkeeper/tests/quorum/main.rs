//! RedLock over five memory stores, in simulated time: the contract, servers that die, freeze, restart and forget, and controls that must fail.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod attacks;
mod late;
mod sick;
mod tokens;
mod waiting;

use std::sync::Arc;

use lockkeeper::backend::Backend;
use lockkeeper::conformance::{Harness, Time};
use lockkeeper::runtime::Runtime;

struct Five;

impl Harness for Five {
    fn time(&self) -> Time {
        Time::Simulated
    }

    async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
        Arc::new(sick::Ward::new(5, &runtime).quorum().await)
    }
}

mod contract {
    //! A quorum of five keeps the contract.
    lockkeeper::conformance!(crate::Five);
}

/// Four need three, as five do.
struct Four;

impl Harness for Four {
    fn time(&self) -> Time {
        Time::Simulated
    }

    async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
        let ward = sick::Ward::new(4, &runtime);
        let quorum = ward.quorum().await;
        ward.fall_ill(0, sick::Illness::Frozen);
        Arc::new(quorum)
    }
}

mod contract_with_one_of_four_frozen {
    //! So does one of four, of which one never answers.
    lockkeeper::conformance!(crate::Four);
}
