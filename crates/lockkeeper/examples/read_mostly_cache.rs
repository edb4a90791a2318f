//! A shared file that many read and few refresh: readers do not wait for each other, and nobody reads a half-written one.
//!
//! Run with `cargo run -p lockkeeper --example read_mostly_cache`, or with a server:
//! `cargo run -p lockkeeper --features redis --example read_mostly_cache redis://127.0.0.1:6379`.
#![allow(clippy::disallowed_methods, reason = "tasks of the example's own")]

use std::path::{Path, PathBuf};

use lockkeeper::{Client, Result};

/// The price list, as two lines that belong together.
fn write_prices(file: &Path, version: u32) {
    std::fs::write(file, format!("version {version}\n")).expect("a file");
    let both = format!("version {version}\nsum {}\n", version * 10);
    std::fs::write(file, both).expect("a file");
}

/// The version that is there, if it is whole.
fn read_prices(file: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines();
    let version: u32 = lines.next()?.strip_prefix("version ")?.parse().ok()?;
    (lines.next()? == format!("sum {}", version * 10)).then_some(version)
}

async fn reader(client: Client, file: PathBuf) -> Result<u32> {
    let mut reads = 0;
    while reads < 50 {
        let guard = client.rwlock("prices").read().await?;
        read_prices(&file).expect("never half-written while a read lock is held");
        guard.release().await?;
        reads += 1;
        tokio::task::yield_now().await;
    }
    Ok(reads)
}

/// Writes, and goes on as a reader without letting another writer in between.
async fn refresher(client: Client, file: PathBuf) -> Result<u32> {
    for version in 1..=10 {
        let writer = client.rwlock("prices").write().await?;
        write_prices(&file, version);
        let reader = writer.downgrade().await?;
        assert_eq!(read_prices(&file), Some(version), "what was written is what is read");
        reader.release().await?;
    }
    Ok(10)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let client = Client::connect(url).await?;
    let file = std::env::temp_dir().join(format!("prices-{}", std::process::id()));
    write_prices(&file, 0);
    let readers: Vec<_> = (0..4).map(|_| tokio::spawn(reader(client.clone(), file.clone()))).collect();
    let writes = tokio::spawn(refresher(client.clone(), file.clone())).await.expect("it does not panic")?;
    let mut reads = 0;
    for reader in readers {
        reads += reader.await.expect("no reader panics")?;
    }
    println!("{reads} reads beside {writes} writes, none half-written; version {}", read_prices(&file).unwrap());
    std::fs::remove_file(file).expect("a file");
    client.close().await
}
