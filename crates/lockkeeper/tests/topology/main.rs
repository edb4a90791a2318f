//! The Redis store on what people run: TLS with rights, sentinels, clusters. The contract on each, and what must hold when servers die, slots move and
//! networks part. What takes minutes is ignored here, and run by `cargo xtask faults`.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod durability;
mod failover;
mod harness;
mod load;
mod partition;
mod scoped;
mod sentinels;
mod slot_tokens;
mod slots;
mod storms;
mod subscriptions;
mod tls;

use lockkeeper_testkit::server;

mod contract_tls {
    //! The contract behind TLS, as a user with the rights that locks need.
    lockkeeper::conformance!(crate::harness::Secured::new());
}

mod contract_sentinel {
    //! The contract on a master that sentinels name.
    lockkeeper::conformance!(crate::harness::Sentinel::new());
}

mod contract_cluster {
    //! The contract on a cluster.
    lockkeeper::conformance!(crate::harness::Clustered::new(crate::server::Flavour::Redis));
}

mod contract_cluster_6_2 {
    //! The contract on a cluster of 6.2, which publishes everywhere.
    lockkeeper::conformance!(crate::harness::Clustered::new(crate::server::Flavour::Redis62), ignored);
}

mod contract_cluster_valkey {
    //! The contract on a cluster of Valkey.
    lockkeeper::conformance!(crate::harness::Clustered::new(crate::server::Flavour::Valkey), ignored);
}
