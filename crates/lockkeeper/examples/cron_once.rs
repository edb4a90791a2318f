//! A scheduled job on several machines: each starts it at the same minute, one runs it, the others skip it.
//!
//! Run with `cargo run -p lockkeeper --example cron_once`, or with a server that all machines reach:
//! `cargo run -p lockkeeper --features redis --example cron_once redis://127.0.0.1:6379`.
//!
//! The clocks of machines differ, and the job may take a millisecond. A lock that is released as soon as the job is done would let a machine
//! run it again whose clock is a second late. So the lock is kept for a while after the job, by an explicit lease: whoever comes until then
//! skips. (From a shell: `lockkeeper run --no-wait --at-least 20s report -- ./report.sh`.)
#![allow(clippy::disallowed_methods, reason = "a task of the example's own")]

use std::time::Duration;

use lockkeeper::{Client, Result};

/// Longer than the job takes, and longer than the clocks of the machines differ.
const KEPT: Duration = Duration::from_secs(20);

/// Runs `work` if no other machine has begun it; whether it ran here.
async fn once(client: &Client, job: &str, work: impl Future<Output = ()>) -> Result<bool> {
    let Some(guard) = client.mutex(format!("cron:{job}")).try_lock().lease(KEPT).await? else { return Ok(false) };
    guard.run(work).await?; // Err(Lost) if it takes longer than the lease
    // Not released: a task keeps it until its lease has ended.
    tokio::spawn(async move { guard.lost().await });
    Ok(true)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:cron".to_owned());
    let (mut clients, mut ran) = (Vec::new(), 0);
    for machine in ["web-1", "web-2", "web-3"] {
        let client = Client::connect(&url).await?;
        let here = once(&client, "report", async { println!("{machine} writes the report") }).await?;
        println!("{machine}: {}", if here { "ran it" } else { "skipped it" });
        ran += u32::from(here);
        clients.push(client);
    }
    println!("ran {ran} times");
    // The example does not wait for the lease: closing releases it.
    for client in clients {
        client.close().await?;
    }
    Ok(())
}
