//! "Is it mine? Then delete it" in two requests: the lease can end between them.
//!
//! Run with `cargo run -p lockkeeper-guide --example step3_not_atomic`; it starts a `redis-server` of its own.

use lockkeeper_guide::{Outcome, connect, redis_server, wait_until_gone};
use redis::{Connection, RedisResult, Script};

const RELEASE: &str = "
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0
";

fn acquire(redis: &mut Connection, owner: &str) -> RedisResult<bool> {
    redis::cmd("SET").arg("lock").arg(owner).arg("NX").arg("PX").arg(60_000).query(redis)
}

/// `pause` stands for anything that takes time: a garbage collection, a slow network, a busy machine.
fn release(redis: &mut Connection, owner: &str, pause: fn(&mut Connection) -> RedisResult<()>) -> RedisResult<()> {
    let holder: Option<String> = redis::cmd("GET").arg("lock").query(redis)?;
    if holder.as_deref() == Some(owner) {
        pause(redis)?;
        redis::cmd("DEL").arg("lock").exec(redis)?;
    }
    Ok(())
}

fn release_in_one_step(redis: &mut Connection, owner: &str) -> RedisResult<bool> {
    Script::new(RELEASE).key("lock").arg(owner).invoke(redis)
}

/// The lease of the first client ends, and a second client acquires the lock.
fn second_client_comes(redis: &mut Connection) -> RedisResult<()> {
    redis::cmd("PEXPIRE").arg("lock").arg(1).exec(redis)?;
    wait_until_gone(redis, "lock")?;
    assert!(acquire(redis, "second")?);
    Ok(())
}

fn main() -> Outcome {
    let server = redis_server()?;
    let mut redis = connect(&server)?;
    assert!(acquire(&mut redis, "first")?);
    release(&mut redis, "first", second_client_comes)?;
    let third = acquire(&mut redis, "third")?;
    println!("naive:    while the second client holds the lock, a third one acquires it: {third}");

    redis::cmd("DEL").arg("lock").exec(&mut redis)?;
    assert!(acquire(&mut redis, "first")?);
    second_client_comes(&mut redis)?; // Before or after the script: never in the middle of it.
    assert!(!release_in_one_step(&mut redis, "first")?);
    let third = acquire(&mut redis, "third")?;
    println!("repaired: while the second client holds the lock, a third one acquires it: {third}");
    Ok(())
}
