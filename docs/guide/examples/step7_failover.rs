//! A failover to a replica that did not get the lock: two holders.
//!
//! Run with `cargo run -p lockkeeper-guide --example step7_failover`; it starts `redis-server`s of its own.

use lockkeeper::blocking::Client;
use lockkeeper_guide::{Outcome, Server, connect, redis_server_with, wait_until};
use redis::{Connection, RedisResult};

/// A primary and its replica.
struct Pair {
    primary: Server,
    replica: Server,
}

impl Pair {
    fn start() -> Outcome<Self> {
        let primary = redis_server_with(&["--repl-diskless-sync-delay", "0"])?;
        let replica = redis_server_with(&["--replicaof", "127.0.0.1", &primary.port.to_string()])?;
        wait_until("the replica is in step", || {
            let state = connect(&replica).and_then(|mut redis| redis::cmd("INFO").arg("replication").query::<String>(&mut redis));
            state.is_ok_and(|state| state.contains("master_link_status:up"))
        });
        Ok(Self { primary, replica })
    }

    /// The network between the two fails: the replica looks for its primary where there is none.
    fn cut(&self) -> RedisResult<()> {
        redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).exec(&mut connect(&self.replica)?)
    }

    /// The primary dies, and the replica is promoted, with the command that a sentinel would send.
    fn fail_over(&mut self) -> RedisResult<()> {
        self.primary.kill();
        redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut connect(&self.replica)?)
    }
}

fn acquire(redis: &mut Connection, owner: &str) -> RedisResult<bool> {
    redis::cmd("SET").arg("lock").arg(owner).arg("NX").arg("PX").arg(60_000).query(redis)
}

fn main() -> Outcome {
    let mut pair = Pair::start()?;
    pair.cut()?;
    assert!(acquire(&mut connect(&pair.primary)?, "first")?);
    pair.fail_over()?;
    let second = acquire(&mut connect(&pair.replica)?, "second")?;
    println!("naive:    the replica never got the lock; a second client acquires it: {second}");

    let pair = Pair::start()?;
    let first = Client::connect(format!("{}?replicas=1&durable_within=500ms", pair.primary.url(0)))?;
    pair.cut()?;
    let refused = first.mutex("lock").try_lock().expect_err("one replica has to have it");
    println!("repaired: the replica does not get the lock: {:?}, nobody holds it", refused.kind());
    first.close()?;

    let mut pair = Pair::start()?;
    let first = Client::connect(format!("{}?replicas=1&durable_within=2500ms", pair.primary.url(0)))?;
    let guard = first.mutex("lock").lock()?;
    pair.fail_over()?;
    let second = Client::connect(pair.replica.url(0))?;
    let taken = second.mutex("lock").try_lock()?.is_some();
    println!("repaired: the replica got the lock; a second client acquires it: {taken}");
    drop(guard);
    Ok(second.close()?)
}
