//! A lock without an owner: a client that is late deletes the lock of another one.
//!
//! Run with `cargo run -p lockkeeper-guide --example step2_no_owner`; it starts a `redis-server` of its own.

use lockkeeper_guide::{Outcome, connect, redis_server, wait_until_gone};
use redis::{Connection, RedisResult};

fn acquire(redis: &mut Connection, owner: &str, lease: u64) -> RedisResult<bool> {
    redis::cmd("SET").arg("lock").arg(owner).arg("NX").arg("PX").arg(lease).query(redis)
}

fn release(redis: &mut Connection) -> RedisResult<()> {
    redis::cmd("DEL").arg("lock").exec(redis)
}

fn release_own(redis: &mut Connection, owner: &str) -> RedisResult<()> {
    let holder: Option<String> = redis::cmd("GET").arg("lock").query(redis)?;
    if holder.as_deref() == Some(owner) {
        redis::cmd("DEL").arg("lock").exec(redis)?;
    }
    Ok(())
}

fn main() -> Outcome {
    let server = redis_server()?;
    let mut redis = connect(&server)?;
    for version in ["naive:   ", "repaired:"] {
        assert!(acquire(&mut redis, "first", 200)?);
        wait_until_gone(&mut redis, "lock")?; // The work of the first client takes longer than its lease.
        assert!(acquire(&mut redis, "second", 60_000)?);
        // The first client releases, too late.
        if version == "repaired:" {
            release_own(&mut redis, "first")?;
        } else {
            release(&mut redis)?;
        }
        let third = acquire(&mut redis, "third", 60_000)?;
        println!("{version} while the second client holds the lock, a third one acquires it: {third}");
        release(&mut redis)?;
    }
    Ok(())
}
