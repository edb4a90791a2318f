//! rslock as one of the control group: `held URL NAME LEASE_MS`; the lines are those of `verify/src/command/held.rs`. It renews by `extend`, every third
//! of the lease; a refused extension is how it is told of a loss.

use std::time::Duration;

use rslock::{Lock, LockManager};
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};
use tokio::time::{Instant, sleep_until};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, name, lease] = &words[..] else { panic!("held URL NAME LEASE_MS") };
    let lease = Duration::from_millis(lease.parse().expect("milliseconds"));
    let manager = LockManager::new(vec![url.clone()]);
    let mut lines = BufReader::new(stdin()).lines();
    let mut held: Option<Lock> = None;
    let mut renewal = None;
    println!(r#"{{"ready":true}}"#);
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line.ok().flatten(),
            () = sleep_until(renewal.unwrap_or_else(Instant::now)), if renewal.is_some() => {
                let lock = held.as_ref().expect("renewed while it is held");
                renewal = match manager.extend(lock, lease).await {
                    Ok(_) => Some(Instant::now() + lease / 3),
                    Err(_) => {
                        println!(r#"{{"lost":true}}"#);
                        None
                    }
                };
                continue;
            }
        };
        match line.as_deref() {
            Some("lock") => match manager.acquire_no_guard(name.as_str(), lease).await {
                Ok(lock) => {
                    println!(r#"{{"locked":true,"token":0}}"#);
                    (held, renewal) = (Some(lock), Some(Instant::now() + lease / 3));
                }
                Err(error) => println!(r#"{{"error":{:?}}}"#, error.to_string()),
            },
            // It has nothing that says whether a lock is still held.
            Some("ask") => println!(r#"{{"held":null}}"#),
            Some("unlock") => {
                renewal = None;
                if let Some(lock) = held.take() {
                    manager.unlock(&lock).await;
                }
                // It does not say whether there was something to unlock.
                println!(r#"{{"unlocked":null}}"#);
            }
            _ => return,
        }
    }
}
