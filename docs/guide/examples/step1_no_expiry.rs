//! A lock without an expiry: a client that crashes keeps it for ever.
//!
//! Run with `cargo run -p lockkeeper-guide --example step1_no_expiry`; it starts a `redis-server` of its own.

use lockkeeper_guide::{Outcome, connect, redis_server, wait_until_gone};
use redis::{Connection, RedisResult};

fn acquire(redis: &mut Connection) -> RedisResult<bool> {
    redis::cmd("SETNX").arg("lock").arg("1").query(redis)
}

fn acquire_with_expiry(redis: &mut Connection) -> RedisResult<bool> {
    redis::cmd("SET").arg("lock").arg("1").arg("NX").arg("PX").arg(500).query(redis)
}

fn main() -> Outcome {
    let server = redis_server()?;
    let mut first = connect(&server)?;
    assert!(acquire(&mut first)?);
    drop(first); // The first client crashes. Nobody deletes its key.
    let mut second = connect(&server)?;
    let ends_in: i64 = redis::cmd("PTTL").arg("lock").query(&mut second)?;
    assert_eq!(ends_in, -1, "the key has no expiry");
    println!("naive:    the second client acquires: {}; the key expires: never", acquire(&mut second)?);
    redis::cmd("DEL").arg("lock").exec(&mut second)?; // An operator has to do this.

    let mut first = connect(&server)?;
    assert!(acquire_with_expiry(&mut first)?);
    drop(first);
    wait_until_gone(&mut second, "lock")?;
    println!("repaired: the second client acquires: {}, once the lease has ended", acquire_with_expiry(&mut second)?);
    Ok(())
}
