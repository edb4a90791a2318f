//! A flash sale: many processes sell from one small stock. Without a lock they oversell, with it they never do.
//!
//! Run with `cargo run -p lockkeeper --features sqlite --example flash_sale`. The stock is a row of an SQL table in a temporary folder, and
//! the lock is in the file beside it; any other store works too:
//! `cargo run -p lockkeeper --features sqlite,redis --example flash_sale redis://127.0.0.1:6379`.
#![allow(clippy::disallowed_methods, reason = "the pause is the shop's own work")]

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkeeper::blocking::Client;
use rusqlite::Connection;

const SELLERS: usize = 6;
const STOCK: u32 = 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().collect();
    if let [_, "seller", stock, store] = &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        let sold = sell_all(Path::new(stock), (!store.is_empty()).then_some(*store))?;
        println!("{sold}");
        return Ok(());
    }
    let folder = std::env::temp_dir().join(format!("flash-sale-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let store = words.get(1).cloned().unwrap_or_else(|| format!("sqlite:{}", folder.join("locks.db").display()));
    println!("{SELLERS} processes, {STOCK} in stock");
    for (what, store) in [("without a lock", ""), ("with a lock", store.as_str())] {
        let sold = sale(&folder.join("stock.db"), store)?;
        let over = sold.saturating_sub(STOCK);
        println!("{what:<16} sold {sold:>3}   oversold {over:>3}");
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// Fills the stock, lets the processes sell, and adds up what they sold.
fn sale(stock: &Path, store: &str) -> Outcome<u32> {
    let shop = Connection::open(stock)?;
    shop.execute_batch("CREATE TABLE IF NOT EXISTS stock (left_over INTEGER); DELETE FROM stock;")?;
    shop.execute("INSERT INTO stock VALUES (?)", [STOCK])?;
    let sellers: Vec<_> = (0..SELLERS)
        .map(|_| Command::new(std::env::current_exe()?).arg("seller").arg(stock).arg(store).stdout(Stdio::piped()).spawn())
        .collect::<Result<_, _>>()?;
    let mut sold = 0;
    for seller in sellers {
        let told = seller.wait_with_output()?;
        if !told.status.success() {
            return Err("a seller failed".into());
        }
        sold += String::from_utf8(told.stdout)?.trim().parse::<u32>()?;
    }
    Ok(sold)
}

/// Sells one by one until nothing is left; how many this process sold.
fn sell_all(stock: &Path, store: Option<&str>) -> Outcome<u32> {
    let shop = Connection::open(stock)?;
    shop.busy_timeout(Duration::from_secs(30))?;
    let client = store.map(Client::connect).transpose()?;
    let mut sold = 0;
    loop {
        let guard = client.as_ref().map(|client| client.mutex("stock:42").lock()).transpose()?;
        let left: u32 = shop.query_row("SELECT left_over FROM stock", [], |row| row.get(0))?;
        if left > 0 {
            // Payment, an address check, a queue: what a shop does between reading and writing.
            std::thread::sleep(Duration::from_millis(3));
            shop.execute("UPDATE stock SET left_over = ?", [left - 1])?;
            sold += 1;
        }
        guard.map(|guard| guard.release()).transpose()?;
        if left == 0 {
            break;
        }
    }
    client.map(|client| client.close()).transpose()?;
    Ok(sold)
}
