//! Two workers, one lock: they take turns.
//!
//! Run with `cargo run -p lockkeeper --example quickstart`, or with a server:
//! `cargo run -p lockkeeper --features redis --example quickstart redis://127.0.0.1:6379`.

use std::time::Duration;

use lockkeeper::{Client, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let client = Client::connect(url).await?;
    let work = |worker: &'static str| {
        let mutex = client.mutex("report");
        async move {
            let guard = mutex.lock().timeout(Duration::from_secs(10)).await?;
            println!("{worker} holds the lock, token {}, good for {:?}", guard.token().unwrap(), guard.remaining());
            // Dropped when the lock is lost, so that nobody works without it.
            guard.run(tokio::task::yield_now()).await?;
            guard.release().await
        }
    };
    tokio::try_join!(work("one"), work("two"))?;
    client.close().await
}
