//! Transfers between accounts: each needs two locks, in any order, and no order leads to a deadlock.
//!
//! Run with `cargo run -p lockkeeper --example multi_lock_transfer`, or with a server:
//! `cargo run -p lockkeeper --features redis --example multi_lock_transfer redis://127.0.0.1:6379`.
#![allow(clippy::disallowed_methods, reason = "tasks of the example's own")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lockkeeper::{Client, Result};

const ACCOUNTS: usize = 4;
const TRANSFERS: usize = 40;

type Bank = Arc<[AtomicI64; ACCOUNTS]>;

/// Both accounts are locked or none is. With one Redis it is one request, however many names there are.
async fn transfer(client: &Client, bank: &Bank, from: usize, to: usize, amount: i64) -> Result<()> {
    let names = [format!("account:{from}"), format!("account:{to}")];
    let both = client.multi_lock(names).lock().timeout(Duration::from_secs(30)).await?;
    // Reading and writing are two steps, as in most databases: without the locks, transfers would be lost here.
    let (there, here) = (bank[to].load(Ordering::SeqCst), bank[from].load(Ordering::SeqCst));
    tokio::task::yield_now().await;
    bank[from].store(here - amount, Ordering::SeqCst);
    bank[to].store(there + amount, Ordering::SeqCst);
    both.release().await
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let client = Client::connect(url).await?;
    let bank: Bank = Arc::new([const { AtomicI64::new(100) }; ACCOUNTS]);
    let clerks: Vec<_> = (0..4)
        .map(|clerk| {
            let (client, bank) = (client.clone(), Arc::clone(&bank));
            tokio::spawn(async move {
                for number in 0..TRANSFERS {
                    let from = (clerk + number) % ACCOUNTS;
                    // Two clerks often want the same two accounts in opposite orders.
                    let to = (from + 1 + clerk % 3) % ACCOUNTS;
                    transfer(&client, &bank, from, to, 7).await?;
                }
                Ok::<_, lockkeeper::Error>(())
            })
        })
        .collect();
    for clerk in clerks {
        clerk.await.expect("no clerk panics")?;
    }
    let balances: Vec<i64> = bank.iter().map(|account| account.load(Ordering::SeqCst)).collect();
    println!("{} transfers, balances {balances:?}, in all {}", 4 * TRANSFERS, balances.iter().sum::<i64>());
    client.close().await
}
