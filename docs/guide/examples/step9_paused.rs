//! A holder that was paused longer than its lease wakes up and writes. The lock cannot stop it; the fence can.
//!
//! Run with `cargo run -p lockkeeper-guide --example step9_paused`; it starts a `redis-server` of its own.

use std::time::Duration;

use lockkeeper::{Client, Token};
use lockkeeper_guide::{Outcome, connect, redis_server};
use redis::{Connection, RedisResult, Script};

/// Checks the token and writes, in one step.
const WRITE: &str = "
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('FENCED a later holder has entered')
end
return redis.call('set', KEYS[2], ARGV[2])
";

fn read(redis: &mut Connection) -> RedisResult<i64> {
    redis::cmd("GET").arg("balance:{account:7}").query(redis)
}

fn write(redis: &mut Connection, balance: i64) -> RedisResult<()> {
    redis::cmd("SET").arg("balance:{account:7}").arg(balance).exec(redis)
}

fn write_fenced(redis: &mut Connection, token: Token, balance: i64) -> RedisResult<()> {
    let token = format!("{} {}", token.number(), token.owner());
    Script::new(WRITE).key("lockkeeper:fence:{account:7}").key("balance:{account:7}").arg(token).arg(balance).invoke(redis)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let server = redis_server()?;
    let mut redis = connect(&server)?;
    let client = Client::connect(server.url(0)).await?;
    let (mutex, gate) = (client.mutex("account:7"), client.gate()?);

    write(&mut redis, 100)?;
    let first = mutex.lock().lease(Duration::from_millis(500)).await?;
    let seen = read(&mut redis)?;
    first.lost().await; // The first holder is paused here, until its lease is over.
    let second = mutex.lock().await?;
    let balance = read(&mut redis)? + 10;
    write(&mut redis, balance)?;
    second.release().await?;
    write(&mut redis, seen + 5)?; // It wakes up and goes on.
    println!("naive:    100 + 10 + 5 = {}", read(&mut redis)?);

    write(&mut redis, 100)?;
    let first = mutex.lock().lease(Duration::from_millis(500)).await?;
    let early = first.token().expect("Redis gives tokens");
    gate.enter("account:7", early).await?; // Before the first read.
    let seen = read(&mut redis)?;
    first.lost().await;
    let second = mutex.lock().await?;
    let late = second.token().expect("Redis gives tokens");
    gate.enter("account:7", late).await?;
    let balance = read(&mut redis)? + 10;
    write_fenced(&mut redis, late, balance)?;
    second.release().await?;
    let refused = write_fenced(&mut redis, early, seen + 5).is_err();
    println!("repaired: the late write is refused: {refused}; 100 + 10 = {}", read(&mut redis)?);
    Ok(client.close().await?)
}
