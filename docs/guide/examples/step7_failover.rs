//! A failover to a replica that did not get the lock: two holders. A real Sentinel promotes the replica.
//!
//! Run with `cargo run -p lockkeeper-guide --example step7_failover`; it starts `redis-server`s and sentinels of its own.

use lockkeeper::blocking::Client;
use lockkeeper_guide::{Outcome, Sentinel, Server, connect, redis_server_with, wait_until};
use redis::RedisResult;

/// A primary, its replica, and the sentinel that watches them.
struct Group {
    primary: Server,
    replica: Server,
    sentinel: Sentinel,
}

impl Group {
    fn start() -> Outcome<Self> {
        let primary = redis_server_with(&["--repl-diskless-sync-delay", "0"])?;
        let replica = redis_server_with(&["--replicaof", "127.0.0.1", &primary.port.to_string()])?;
        wait_until("the replica is in step", || {
            let state = connect(&replica).and_then(|mut redis| redis::cmd("INFO").arg("replication").query::<String>(&mut redis));
            state.is_ok_and(|state| state.contains("master_link_status:up"))
        });
        let sentinel = Sentinel::start(&primary)?;
        Ok(Self { primary, replica, sentinel })
    }

    /// The network between primary and replica fails: the replica looks for its primary where there is none.
    fn cut(&self) -> RedisResult<()> {
        redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).exec(&mut connect(&self.replica)?)
    }

    /// The primary dies. Returns when the sentinel has promoted the replica.
    fn kill_primary(&mut self) {
        self.primary.kill();
        wait_until("the sentinel names the replica", || self.sentinel.primary().is_ok_and(|port| port == self.replica.port));
    }

    /// `SET NX` at the server that the sentinel calls the primary.
    fn acquire(&self, owner: &str) -> Outcome<bool> {
        let mut redis = redis::Client::open(format!("redis://127.0.0.1:{}", self.sentinel.primary()?))?.get_connection()?;
        Ok(redis::cmd("SET").arg("lock").arg(owner).arg("NX").arg("PX").arg(60_000).query(&mut redis)?)
    }
}

fn main() -> Outcome {
    let mut group = Group::start()?;
    group.cut()?;
    assert!(group.acquire("first")?);
    group.kill_primary();
    let second = group.acquire("second")?;
    println!("naive:    the replica never got the lock; a second client acquires it: {second}");

    let group = Group::start()?;
    let first = Client::connect(format!("{}?replicas=1&durable_within=500ms", group.sentinel.url()))?;
    group.cut()?;
    let refused = first.mutex("lock").try_lock().expect_err("one replica has to have it");
    println!("repaired: the replica does not get the lock: {:?}, nobody holds it", refused.kind());
    first.close()?;

    let mut group = Group::start()?;
    let first = Client::connect(format!("{}?replicas=1&durable_within=2500ms", group.sentinel.url()))?;
    let guard = first.mutex("lock").lock()?;
    group.kill_primary();
    let second = Client::connect(group.sentinel.url())?;
    let taken = second.mutex("lock").try_lock()?.is_some();
    println!("repaired: the replica got the lock; a second client acquires it: {taken}");
    drop(guard);
    Ok(second.close()?)
}
