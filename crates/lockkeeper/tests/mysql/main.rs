//! The MySQL store on real servers, MariaDB and MySQL: the contract, the model, connections that break, and the traps of SQL.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]
#![allow(clippy::duplicate_mod, reason = "the same tests run on two servers")]

mod bank;
mod bench;
#[path = "../sql/certificates.rs"]
mod certificates;
#[path = "../redis/clock.rs"]
mod clock;
#[path = "../sql/clock_steps.rs"]
mod clock_steps;
mod connections;
#[path = "../sql/contention.rs"]
mod contention;
mod contract;
mod cost;
mod deadlock;
mod doctor;
#[path = "../sql/doubled.rs"]
mod doubled;
mod failover;
#[path = "../sql/faults.rs"]
mod faults;
mod fence;
#[path = "../sql/full_disk.rs"]
mod full_disk;
mod hint;
#[path = "../redis/model/history.rs"]
mod history;
#[path = "../sql/long_queue.rs"]
mod long_queue;
#[path = "../sql/model.rs"]
mod model;
mod mysql_9;
mod names;
#[path = "../sql/requests.rs"]
mod requests;
mod rights;
#[path = "../sql/small_disk.rs"]
mod small_disk;
mod traps;
#[path = "../sql/trouble.rs"]
mod trouble;
#[path = "../sql/turns.rs"]
mod turns;

use lockkeeper_testkit::mysql::Flavour;

const FLAVOUR: Flavour = Flavour::MariaDb;
