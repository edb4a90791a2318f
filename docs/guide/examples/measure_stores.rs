//! How long it takes to acquire and release a free lock, store by store.
//!
//! Run with `cargo run --profile dist -p lockkeeper-guide --example measure_stores -- URL...`. Without a URL it measures what needs no server.
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use std::time::{Duration, Instant};

use lockkeeper::Client;
use lockkeeper_guide::Outcome;

/// The stores take turns, so that a busy moment of the machine hits all of them.
const ROUNDS: usize = 10;
/// A round of one store ends after so many cycles, or after this time.
const CYCLES: usize = 200;
const LONGEST: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let folder = std::env::temp_dir().join(format!("measure-stores-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    if urls.is_empty() {
        urls = vec!["memory:".to_owned(), format!("sqlite:{}", folder.join("locks.db").display())];
    }
    let mut stores = Vec::new();
    for url in &urls {
        stores.push((Client::connect(url).await?, Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (client, times) in &mut stores {
            let (mutex, began) = (client.mutex("measured"), Instant::now());
            for _ in 0..CYCLES {
                let before = Instant::now();
                mutex.lock().await?.release().await?;
                times.push(before.elapsed());
                if began.elapsed() > LONGEST {
                    break;
                }
            }
        }
    }
    println!("| Store | Acquire and release, p50 | p99 |\n|---|---:|---:|");
    for (client, mut times) in stores {
        times.sort_unstable();
        let quantile = |percent: usize| times[(times.len() - 1) * percent / 100];
        // Without its path, its password and its port.
        let url = client.url().to_string();
        let scheme = url.split(':').next().unwrap_or_default();
        println!("| `{scheme}:` | {:.1} µs | {:.1} µs |", micros(quantile(50)), micros(quantile(99)));
        client.close().await?;
    }
    Ok(std::fs::remove_dir_all(folder)?)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
