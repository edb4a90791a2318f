//! The same tests on MySQL 9.

#[path = "bank.rs"]
mod bank;
#[path = "bench.rs"]
mod bench;
#[path = "../sql/clock_steps.rs"]
mod clock_steps;
#[path = "connections.rs"]
mod connections;
#[path = "../sql/contention.rs"]
mod contention;
#[path = "contract.rs"]
mod contract;
#[path = "cost.rs"]
mod cost;
#[path = "deadlock.rs"]
mod deadlock;
#[path = "../sql/doubled.rs"]
mod doubled;
#[path = "../sql/faults.rs"]
mod faults;
#[path = "fence.rs"]
mod fence;
#[path = "../sql/full_disk.rs"]
mod full_disk;
#[path = "hint.rs"]
mod hint;
#[path = "../sql/long_queue.rs"]
mod long_queue;
#[path = "../sql/model.rs"]
mod model;
#[path = "names.rs"]
mod names;
#[path = "rights.rs"]
mod rights;
#[path = "traps.rs"]
mod traps;
#[path = "../sql/trouble.rs"]
mod trouble;
#[path = "../sql/turns.rs"]
mod turns;

use lockkeeper_testkit::mysql::Flavour;

use crate::{certificates, clock, history, requests, small_disk};

const FLAVOUR: Flavour = Flavour::Mysql9;
