//! Locks without `async`: threads, and work that is lost with the lock.
//!
//! Run with `cargo run -p lockkeeper --example blocking`, or with a server:
//! `cargo run -p lockkeeper --features redis --example blocking redis://127.0.0.1:6379`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use lockkeeper::Result;
use lockkeeper::blocking::Client;

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let client = Client::connect(url)?;
    // Each thread is an owner of its own. The count is read and written in two steps, which the lock makes one.
    let visits = AtomicU32::new(0);
    thread::scope(|scope| {
        let visitors: Vec<_> = (0..4).map(|_| scope.spawn(|| visit(&client, &visits))).collect();
        visitors.into_iter().try_for_each(|visitor| visitor.join().expect("no visitor panics"))
    })?;
    println!("{} visits", visits.into_inner());

    // In one thread a second lock is re-entry, not a deadlock.
    let outer = client.mutex("report").lock()?;
    let inner = client.mutex("report").lock()?;
    inner.release()?;
    println!("held by this thread: {}", client.mutex("report").is_locked()?);
    outer.release()?;

    // A limit on how many do something at a time.
    let permits = client.semaphore("mailers", 2);
    let (one, two) = (permits.acquire()?, permits.acquire()?);
    println!("a third mailer: {}", if permits.try_acquire()?.is_some() { "yes" } else { "not now" });
    one.release()?;
    two.release()?;
    client.close()
}

fn visit(client: &Client, visits: &AtomicU32) -> Result<()> {
    for _ in 0..25 {
        let guard = client.mutex("visits").lock_with(|call| call.timeout(Duration::from_secs(10)))?;
        let seen = visits.load(Ordering::SeqCst);
        thread::yield_now();
        visits.store(seen + 1, Ordering::SeqCst);
        guard.release()?;
    }
    Ok(())
}
