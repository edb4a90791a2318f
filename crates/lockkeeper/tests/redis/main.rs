//! The Redis store against real servers: the contract, the model, the wire, and faults on the wire.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod blocking;
mod cancelled;
mod clock;
mod clocks;
mod connections;
mod controls;
mod cost;
mod dead_waiters;
mod fair;
mod faults;
mod flaw;
mod foreign;
mod fork;
mod gathered;
mod harness;
mod in_turn;
mod keys;
mod layout;
mod model;
mod multi;
mod network;
mod odd_servers;
mod one_call;
mod outage;
mod process;
mod processes_share;
mod redlock;
mod repair;
mod rights;
mod scale;
mod set_back;
mod site;
mod standing;
mod storm;
mod subscriptions;
mod together;
mod wire;
mod yielding;

use lockkeeper_testkit::{proxy, server};

mod contract {
    //! The Redis store keeps the contract.
    lockkeeper::conformance!(crate::harness::Redis::new(crate::server::Flavour::Redis));
}

mod contract_6_2 {
    //! It does so on the oldest server.
    lockkeeper::conformance!(crate::harness::Redis::new(crate::server::Flavour::Redis62));
}

mod contract_8 {
    //! On the newest.
    lockkeeper::conformance!(crate::harness::Redis::new(crate::server::Flavour::Redis8));
}

mod contract_valkey {
    //! And on Valkey.
    lockkeeper::conformance!(crate::harness::Redis::new(crate::server::Flavour::Valkey));
}
