//! Waiting by asking again and again costs requests; a message from the one who releases costs none.
//!
//! Run with `cargo run -p lockkeeper-guide --example step5_no_wake_up`; it starts a `redis-server` of its own.
#![allow(clippy::disallowed_methods, reason = "the pauses and threads are what it is about")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lockkeeper_guide::{Outcome, Server, connect, redis_server, wait_until};
use redis::{Connection, RedisResult, Script};

const RELEASE: &str = "
redis.call('del', KEYS[1])
return redis.call('publish', 'released', '')
";

const WAITERS: usize = 4;

fn acquire(redis: &mut Connection) -> RedisResult<bool> {
    redis::cmd("SET").arg("lock").arg("1").arg("NX").arg("PX").arg(60_000).query(redis)
}

fn release(redis: &mut Connection) -> RedisResult<()> {
    Script::new(RELEASE).key("lock").invoke(redis)
}

fn wait_by_polling(server: &Server, asked: &AtomicUsize) -> RedisResult<()> {
    let mut redis = connect(server)?;
    while !acquire(&mut redis)? {
        asked.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(10));
    }
    release(&mut redis)
}

fn wait_for_a_message(server: &Server, asked: &AtomicUsize) -> RedisResult<()> {
    let (mut redis, mut messages) = (connect(server)?, connect(server)?);
    let mut messages = messages.as_pubsub();
    messages.subscribe("released")?; // First subscribe, then ask: a release in between is not missed.
    while !acquire(&mut redis)? {
        asked.fetch_add(1, Ordering::SeqCst);
        messages.get_message()?;
    }
    release(&mut redis)
}

/// Holds the lock while the waiters wait; how often they asked in vain until it was released.
fn hold(server: &Server, wait: fn(&Server, &AtomicUsize) -> RedisResult<()>, until: usize) -> Outcome<usize> {
    let mut redis = connect(server)?;
    let asked = AtomicUsize::new(0);
    assert!(acquire(&mut redis)?);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..WAITERS).map(|_| scope.spawn(|| wait(server, &asked))).collect();
        wait_until("the waiters have asked", || asked.load(Ordering::SeqCst) >= until);
        thread::sleep(Duration::from_millis(300));
        let in_vain = asked.load(Ordering::SeqCst);
        release(&mut redis)?;
        waiters.into_iter().try_for_each(|waiter| waiter.join().expect("no waiter panics"))?;
        Ok(in_vain)
    })
}

fn main() -> Outcome {
    let server = redis_server()?;
    let polls = hold(&server, wait_by_polling, 40)?;
    println!("naive:    {WAITERS} waiters asked in vain 40 times or more: {}", polls >= 40);
    let asked = hold(&server, wait_for_a_message, WAITERS)?;
    println!("repaired: {WAITERS} waiters asked in vain {asked} times, and all of them got the lock");
    Ok(())
}
