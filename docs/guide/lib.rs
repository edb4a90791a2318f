//! The guide's chapters as doc tests, and what its small programs share.
//!
//! The programs are in `examples/`. Each starts the Redis servers that it needs, shows a lock that fails, and then its repair.
#![allow(clippy::disallowed_methods, reason = "the programs use real time, as a reader's program would")]

mod sentinel;

use std::error::Error;
use std::time::Duration;

pub use lockkeeper_testkit::server::Server;
use lockkeeper_testkit::{poll, server::Flavour};
use redis::{Connection, RedisResult};
pub use sentinel::Sentinel;

/// What the programs return.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Starts a Redis server that ends with the program.
///
/// # Errors
///
/// If `redis-server` is not on the PATH.
pub fn redis_server() -> Outcome<Server> {
    redis_server_with(&[])
}

/// Starts a Redis server with these options.
///
/// # Errors
///
/// If `redis-server` is not on the PATH.
pub fn redis_server_with(options: &[&str]) -> Outcome<Server> {
    match Server::missing(Flavour::Redis) {
        Some(why) => Err(why.into()),
        None => Ok(Server::start_with(Flavour::Redis, options)),
    }
}

/// Opens a connection to the server, as a client of its own.
///
/// # Errors
///
/// Those of the connection.
pub fn connect(server: &Server) -> RedisResult<Connection> {
    redis::Client::open(server.url(0))?.get_connection()
}

/// Waits until the key is gone, as after the end of its lease.
///
/// # Errors
///
/// Those of the connection.
pub fn wait_until_gone(redis: &mut Connection, key: &str) -> RedisResult<()> {
    while redis::cmd("EXISTS").arg(key).query(redis)? {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Waits until the condition holds.
///
/// # Panics
///
/// If it does not hold within 30 seconds.
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    poll::until_within(Duration::from_secs(30), what, condition);
}

/// The chapters, compiled and run by `cargo test --doc`.
#[cfg(doctest)]
mod chapters {
    macro_rules! chapters {
        ($($name:ident $file:literal)*) => { $(#[doc = include_str!(concat!("src/", $file))] pub struct $name;)* };
    }
    chapters! {
        Introduction "introduction.md"
        FromSetnx "from-setnx.md"
        Stores "stores.md"
        Synchronizers "synchronizers.md"
        Leases "leases.md"
        Loss "loss.md"
        Fencing "fencing.md"
        Testing "testing.md"
        Errors "errors.md"
        Shutdown "shutdown.md"
        Operating "operating.md"
        FromRedisson "from-redisson.md"
        Shell "shell.md"
        Troubleshooting "troubleshooting.md"
    }
}
