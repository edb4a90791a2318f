//! A holder that acquires its own lock again waits for itself.
//!
//! Run with `cargo run -p lockkeeper-guide --example step4_not_reentrant`; it starts a `redis-server` of its own.

use lockkeeper_guide::{Outcome, connect, redis_server};
use redis::{Connection, RedisResult, Script};

const ACQUIRE: &str = "
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 1
end
return 0
";

const RELEASE: &str = "
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) == 0 then redis.call('del', KEYS[1]) end
return 1
";

fn acquire(redis: &mut Connection, owner: &str) -> RedisResult<bool> {
    redis::cmd("SET").arg("lock").arg(owner).arg("NX").arg("PX").arg(60_000).query(redis)
}

fn acquire_again(redis: &mut Connection, owner: &str) -> RedisResult<bool> {
    Script::new(ACQUIRE).key("counted").arg(owner).arg(60_000).invoke(redis)
}

fn release(redis: &mut Connection, owner: &str) -> RedisResult<bool> {
    Script::new(RELEASE).key("counted").arg(owner).invoke(redis)
}

fn main() -> Outcome {
    let server = redis_server()?;
    let mut redis = connect(&server)?;
    assert!(acquire(&mut redis, "me")?);
    println!("naive:    the holder acquires its lock again: {}", acquire(&mut redis, "me")?);

    assert!(acquire_again(&mut redis, "me")?);
    println!("repaired: the holder acquires its lock again: {}", acquire_again(&mut redis, "me")?);
    assert!(release(&mut redis, "me")?);
    println!("repaired: another one, after the inner release: {}", acquire_again(&mut redis, "another")?);
    assert!(release(&mut redis, "me")?);
    println!("repaired: another one, after the outer release: {}", acquire_again(&mut redis, "another")?);
    Ok(())
}
