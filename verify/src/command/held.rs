//! `lockkeeper-verify held URL NAME LEASE_MS`: lockkeeper as one of the control group. It acquires, asks and releases as the lines of its input say.
//!
//! `lock`, `ask` and `unlock` are each answered with one line of JSON. A line `{"lost":true}` comes whenever the guard is told of its loss. Programs with other
//! libraries speak the same lines; `rivals` starts them, pauses them and looks at what came of it.

use std::io::BufRead as _;
use std::time::Duration;

use lockkeeper::{Client, MutexGuard};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Runs until its input ends.
pub(crate) fn run(url: &str, name: &str, lease: &str) -> Result<bool, String> {
    let lease = Duration::from_millis(lease.parse().map_err(|_| format!("{lease} is no number of milliseconds"))?);
    let (tell, lines) = unbounded_channel();
    std::thread::spawn(move || std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    executor.block_on(work(url, name, lease, lines)).map_err(|error| error.to_string())?;
    Ok(true)
}

async fn work(url: &str, name: &str, lease: Duration, mut lines: UnboundedReceiver<String>) -> lockkeeper::Result<()> {
    let client = Client::builder().lease(lease).connect(url).await?;
    let mutex = client.mutex(name);
    let (mut held, mut told): (Option<MutexGuard>, bool) = (None, false);
    println!("{{\"ready\":true}}");
    loop {
        let line = tokio::select! {
            biased;
            () = lost(held.as_ref().filter(|_| !told)) => {
                told = true;
                println!("{{\"lost\":true}}");
                continue;
            }
            line = lines.recv() => line,
        };
        match line.as_deref() {
            Some("lock") => match mutex.lock().await {
                Ok(guard) => {
                    println!("{{\"locked\":true,\"token\":{}}}", guard.token().map_or(0, |token| token.number()));
                    (held, told) = (Some(guard), false);
                }
                Err(error) => println!("{{\"error\":{:?}}}", error.to_string()),
            },
            Some("ask") => println!("{{\"held\":{}}}", held.as_ref().is_some_and(|guard| guard.is_valid())),
            Some("unlock") => {
                let released = match held.take() {
                    Some(guard) => guard.release().await.is_ok(),
                    None => false,
                };
                println!("{{\"unlocked\":{released}}}");
            }
            _ => return Ok(()),
        }
    }
}

async fn lost(guard: Option<&MutexGuard>) {
    match guard {
        Some(guard) => drop(guard.lost().await),
        None => std::future::pending().await,
    }
}
