//! Work that takes longer than the lease: the lock goes to another client while the first one works.
//!
//! Run with `cargo run -p lockkeeper-guide --example step6_long_work`; it starts a `redis-server` of its own.
#![allow(clippy::disallowed_methods, reason = "the time that passes is what it is about")]

use std::thread;
use std::time::Duration;

use lockkeeper::blocking::Client;
use lockkeeper_guide::{Outcome, connect, redis_server, wait_until_gone};
use redis::{Connection, RedisResult};

fn acquire(redis: &mut Connection, owner: &str, lease: u64) -> RedisResult<bool> {
    redis::cmd("SET").arg("lock").arg(owner).arg("NX").arg("PX").arg(lease).query(redis)
}

fn main() -> Outcome {
    let server = redis_server()?;
    let mut redis = connect(&server)?;
    assert!(acquire(&mut redis, "first", 200)?);
    wait_until_gone(&mut redis, "lock")?; // The first client works on.
    let second = acquire(&mut redis, "second", 60_000)?;
    println!("naive:    while the first client works, a second one acquires the lock: {second}");

    let lease = Duration::from_secs(6);
    let first = Client::build(lockkeeper::Client::builder().lease(lease), server.url(1))?;
    let second = Client::connect(server.url(1))?;
    let guard = first.mutex("report").lock()?; // No explicit lease, so the keeper renews it.
    thread::sleep(lease + Duration::from_secs(1)); // The work.
    let taken = second.mutex("report").try_lock()?.is_some();
    println!("repaired: while the first client works, a second one acquires the lock: {taken}");
    guard.release()?; // Fails if the lock was lost meanwhile.
    first.close()?;
    Ok(second.close()?)
}
