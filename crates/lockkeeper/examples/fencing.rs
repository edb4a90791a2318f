//! A paused holder loses an update that was acknowledged; a fence on the resource refuses it instead.
//!
//! Run with `cargo run -p lockkeeper --example fencing`.
//!
//! Eight workers add to a counter under a lock whose lease is short, and now and then one is paused past its lease between its
//! read and its write, as a process is that the machine suspends or that collects garbage. The lock cannot help: when the worker
//! wakes, somebody else holds it. The gate can.
#![allow(clippy::disallowed_methods, reason = "the pause is what it is about")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::fence::{Gate, MemoryGate};
use lockkeeper::{Client, Result};

/// What became of all additions.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Additions that were told to have succeeded.
    pub(crate) acknowledged: u64,
    /// Additions that were refused: their workers know, and may try again.
    pub(crate) refused: u64,
    /// What the counter says in the end.
    pub(crate) counted: u64,
}

const WORKERS: u64 = 8;
const ADDITIONS: u64 = 12;
const LEASE: Duration = Duration::from_millis(30);

/// Lets the workers add, with or without the fence.
///
/// # Errors
///
/// Those of the lock.
pub(crate) async fn add_up(fenced: bool) -> Result<Account> {
    let client = Client::connect("memory:").await?;
    let (counter, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(MemoryGate::default()));
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let (client, counter, gate) = (client.clone(), Arc::clone(&counter), Arc::clone(&gate));
        workers.push(tokio::spawn(async move {
            let mut account = Account::default();
            for addition in 0..ADDITIONS {
                let guard = client.mutex("counter").lock().lease(LEASE).await?;
                let token = guard.token().unwrap();
                if fenced {
                    // Before the first read: from here on older holders are refused.
                    gate.enter("counter", token).await?;
                }
                let read = counter.load(Ordering::SeqCst);
                let paused = (worker + addition) % 4 == 0;
                tokio::time::sleep(if paused { LEASE * 2 } else { LEASE / 15 }).await;
                let write = || counter.store(read + 1, Ordering::SeqCst);
                let written = if fenced {
                    gate.write("counter", token, write).is_ok()
                } else {
                    write();
                    true
                };
                *(if written { &mut account.acknowledged } else { &mut account.refused }) += 1;
                // A late release is refused too; it frees nobody else's lock.
                let _ = guard.release().await;
            }
            Ok::<_, lockkeeper::Error>(account)
        }));
    }
    let mut sum = Account::default();
    for worker in workers {
        let account = worker.await.expect("no worker panics")?;
        sum.acknowledged += account.acknowledged;
        sum.refused += account.refused;
    }
    sum.counted = counter.load(Ordering::SeqCst);
    Ok(sum)
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, reason = "the tests use the rest of this file")]
async fn main() -> Result<()> {
    for (what, fenced) in [("without a fence", false), ("with a fence", true)] {
        let Account { acknowledged, refused, counted } = add_up(fenced).await?;
        println!(
            "{what:<16} acknowledged {acknowledged:>3}   refused {refused:>3}   counted {counted:>3}   lost {}",
            acknowledged - counted
        );
    }
    Ok(())
}
