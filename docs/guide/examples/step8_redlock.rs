//! RedLock: a server that restarts without its data votes for a second holder.
//!
//! Run with `cargo run -p lockkeeper-guide --example step8_redlock`; it starts three `redis-server`s of its own.

use lockkeeper::blocking::Client;
use lockkeeper_guide::{Outcome, Server, connect, redis_server};
use redis::RedisResult;

/// Asks the servers that the client reaches for their votes; two of three are a majority.
fn acquire(reached: &[&Server], owner: &str) -> RedisResult<bool> {
    let mut votes = 0;
    for server in reached {
        let mut redis = connect(server)?;
        let vote: bool = redis::cmd("SET").arg("lock").arg(owner).arg("NX").arg("PX").arg(60_000).query(&mut redis)?;
        votes += u32::from(vote);
    }
    Ok(votes >= 2)
}

fn main() -> Outcome {
    let (a, mut b, mut c) = (redis_server()?, redis_server()?, redis_server()?);
    assert!(acquire(&[&a, &b], "first")?); // The first client does not reach c.
    b.restart(|_| ()); // It forgets its vote: its disk had nothing.
    let second = acquire(&[&b, &c], "second")?; // The second client does not reach a.
    println!("naive:    one server forgot its vote; a second client acquires the lock: {second}");

    let servers = [&a, &b, &c].map(|server| server.url(1)).join(",");
    let first = Client::connect(format!("redlock:{servers},admit=new"))?;
    let guard = first.mutex("lock").lock()?;
    b.restart(|_| ());
    c.restart(|_| ());
    let second = Client::connect(format!("redlock:{servers}"))?;
    let taken = second.mutex("lock").try_lock().is_ok_and(|guard| guard.is_some());
    println!("repaired: two servers forgot their votes; a second client acquires the lock: {taken}");
    println!("repaired: the first client still holds it: {}", guard.is_valid());
    drop(guard);
    Ok(())
}
