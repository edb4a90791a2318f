//! A bank in PostgreSQL: processes add to one balance under a lock, and are stopped (SIGSTOP) for longer than their lease. Without the fence
//! updates are lost that were acknowledged; with it none.
//!
//! Run with `cargo run -p lockkeeper --features postgres --example sql_fence_bank postgres://USER:PASSWORD@HOST/DATABASE`. It creates the
//! table `fence_bank` and those of the locks.
#![allow(clippy::disallowed_methods, reason = "real processes, stopped in real time")]

use std::error::Error;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lockkeeper::Client;
use lockkeeper::fence::SqlFence;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio_postgres::NoTls;

const TELLERS: usize = 8;
const LEASE: Duration = Duration::from_millis(300);
/// What a teller does before its transaction, and between reading and writing.
const WORK: Duration = Duration::from_millis(10);
const PAUSES: u32 = 200;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, url] => {
            day(url, "without the fence", PAUSES / 4).await?;
            day(url, "with the fence", PAUSES).await
        }
        [_, "teller", url, kind] => add_until_closed(url, *kind == "with the fence").await,
        _ => Err("usage: sql_fence_bank postgres://USER:PASSWORD@HOST/DATABASE".into()),
    }
}

async fn connect(url: &str) -> Outcome<tokio_postgres::Client> {
    let (bank, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(bank)
}

fn signal(teller: &Child, signal: Signal) -> Outcome<()> {
    let pid = teller.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or("a teller has ended")?;
    Ok(kill_process(pid, signal)?)
}

/// Lets tellers add, stops them at random, and compares what was acknowledged with the balance.
async fn day(url: &str, kind: &str, pauses: u32) -> Outcome<()> {
    let bank = connect(url).await?;
    let create = "DROP TABLE IF EXISTS fence_bank; CREATE TABLE fence_bank AS SELECT 0::int8 AS balance, true AS is_open";
    bank.batch_execute(create).await?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["teller", url, kind]).stdout(Stdio::piped()).kill_on_drop(true);
    let tellers = (0..TELLERS).map(|_| command.spawn()).collect::<Result<Vec<_>, _>>()?;
    let (mut stops, mut stopped_until) = (0, [None; TELLERS]);
    while stops < pauses || stopped_until.iter().any(Option::is_some) {
        for (teller, until) in tellers.iter().zip(&mut stopped_until) {
            match *until {
                Some(end) if Instant::now() >= end => {
                    signal(teller, Signal::CONT)?;
                    *until = None;
                }
                None if stops < pauses && fastrand::u32(..25) == 0 => {
                    signal(teller, Signal::STOP)?;
                    stops += 1;
                    *until = Some(Instant::now() + LEASE.mul_f32(1.5 + fastrand::f32() / 2.0));
                }
                _ => {}
            }
        }
        tokio::time::sleep(WORK).await;
    }
    bank.execute("UPDATE fence_bank SET is_open = false", &[]).await?;
    let (mut acknowledged, mut refused) = (0, 0);
    for teller in tellers {
        let told = String::from_utf8(teller.wait_with_output().await?.stdout)?;
        let (added, not_added) = told.trim().split_once(' ').ok_or("a teller failed")?;
        (acknowledged, refused) = (acknowledged + added.parse::<i64>()?, refused + not_added.parse::<i64>()?);
    }
    let balance: i64 = bank.query_one("SELECT balance FROM fence_bank", &[]).await?.get(0);
    println!("{kind}: {stops} pauses, {acknowledged} updates acknowledged, {refused} refused, {} lost", acknowledged - balance);
    Ok(())
}

async fn add_until_closed(url: &str, fenced: bool) -> Outcome<()> {
    let (client, mut bank) = (Client::builder().lease(LEASE).connect(url).await?, connect(url).await?);
    let (mut added, mut refused, mut is_open) = (0, 0, true);
    while is_open {
        let guard = client.mutex("fence_bank").lock().await?;
        let fence = client.sql_fence(&guard)?;
        tokio::time::sleep(WORK).await;
        match add(&mut bank, fenced.then_some(&fence)).await {
            Ok(open) => (added, is_open) = (added + u32::from(open), open),
            Err(error) if error.as_db_error().is_some_and(|told| told.message().contains("the lock was lost")) => refused += 1,
            Err(error) => return Err(error.into()),
        }
        // The lock may be lost by now; that is what the fence is for.
        let _ = guard.release().await;
    }
    println!("{added} {refused}");
    Ok(client.close().await?)
}

/// Adds one, unless the bank is closed. The statement of the fence comes first in the transaction.
async fn add(bank: &mut tokio_postgres::Client, fence: Option<&SqlFence>) -> Result<bool, tokio_postgres::Error> {
    let transaction = bank.transaction().await?;
    if let Some(fence) = fence {
        transaction.query(fence.text(), &[&fence.name(), &fence.token()]).await?;
    }
    let read = transaction.query_one("SELECT balance, is_open FROM fence_bank", &[]).await?;
    let (balance, is_open): (i64, bool) = (read.get(0), read.get(1));
    if is_open {
        tokio::time::sleep(WORK).await;
        transaction.execute("UPDATE fence_bank SET balance = $1", &[&(balance + 1)]).await?;
    }
    transaction.commit().await.map(|()| is_open)
}
