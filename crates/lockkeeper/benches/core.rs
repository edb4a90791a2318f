//! How fast the core is, on the memory store: printed, never asserted.
//!
//! `cargo xtask bench` runs it. Each figure is the median of several rounds, with the lowest and the highest.
#![allow(clippy::disallowed_methods, missing_docs, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use lockkeeper::Client;

const ROUNDS: usize = 7;

fn main() {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an executor");
    println!("memory store, one thread, {ROUNDS} rounds: median (lowest – highest)");
    executor.block_on(async {
        cycle("lock + release", 400_000, |client| async move {
            let mutex = client.mutex("bench");
            move |count| {
                let mutex = mutex.clone();
                async move {
                    for _ in 0..count {
                        mutex.lock().await.expect("free").release().await.expect("held");
                    }
                }
            }
        })
        .await;
        cycle("lock + release, explicit lease", 400_000, |client| async move {
            let mutex = client.mutex("bench");
            move |count| {
                let mutex = mutex.clone();
                async move {
                    for _ in 0..count {
                        mutex.lock().lease(Duration::from_secs(5)).await.expect("free").release().await.expect("held");
                    }
                }
            }
        })
        .await;
        cycle("re-entry by guard", 4_000_000, |client| async move {
            let guard = std::sync::Arc::new(client.mutex("bench").lock().await.expect("free"));
            move |count| {
                let guard = std::sync::Arc::clone(&guard);
                async move {
                    for _ in 0..count {
                        drop(black_box(guard.reenter().expect("held")));
                    }
                }
            }
        })
        .await;
        cycle("re-entry by owner", 2_000_000, |client| async move {
            let mutex = client.mutex("bench").owned_by(&client.owner());
            let guard = std::sync::Arc::new(mutex.lock().await.expect("free"));
            move |count| {
                let (mutex, guard) = (mutex.clone(), std::sync::Arc::clone(&guard));
                async move {
                    for _ in 0..count {
                        drop(black_box(mutex.lock().await.expect("ours")));
                    }
                    drop(guard);
                }
            }
        })
        .await;
        cycle("tokio::sync::Mutex, for comparison", 4_000_000, |_| async move {
            let mutex = std::sync::Arc::new(tokio::sync::Mutex::new(()));
            move |count| {
                let mutex = std::sync::Arc::clone(&mutex);
                async move {
                    for _ in 0..count {
                        drop(black_box(mutex.lock().await));
                    }
                }
            }
        })
        .await;
    });
    executor.block_on(keeping());
}

/// Measures `count` turns of what `prepare` gives, several times over.
async fn cycle<P, F, T>(what: &str, count: usize, prepare: impl FnOnce(Client) -> P)
where
    P: Future<Output = F>,
    F: Fn(usize) -> T,
    T: Future<Output = ()>,
{
    let client = Client::connect("memory:").await.expect("a store in this process");
    let turns = prepare(client).await;
    turns(count / 10).await;
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        turns(count).await;
        rates.push(count as f64 / began.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    println!("{what:<38} {:>12} /s  ({} – {})", thousands(rates[ROUNDS / 2]), thousands(rates[0]), thousands(rates[ROUNDS - 1]));
}

/// Keeps 100,000 locks alive for two renewal rounds and tells what part of a core that took.
async fn keeping() {
    const HELD: usize = 100_000;
    let client = Client::connect("memory:").await.expect("a store in this process");
    let mut guards = Vec::with_capacity(HELD);
    for number in 0..HELD {
        guards.push(client.mutex(format!("kept:{number}")).lock().await.expect("free"));
    }
    let (began, cpu) = (Instant::now(), cpu_time());
    tokio::time::sleep(Duration::from_secs(25)).await;
    let (elapsed, used) = (began.elapsed(), cpu_time() - cpu);
    let valid = guards.iter().filter(|guard| guard.is_valid()).count();
    println!(
        "{:<38} {:>11.2} % of a core  ({valid} of {HELD} still held after {elapsed:.0?})",
        "keeping 100,000 locks of 30 s",
        100.0 * used.as_secs_f64() / elapsed.as_secs_f64()
    );
    client.close().await.expect("a store in this process");
}

/// What this process has used of its cores, from the kernel's own count.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn thousands(rate: f64) -> String {
    let digits = format!("{rate:.0}");
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or("")).collect();
    groups.join(",")
}
