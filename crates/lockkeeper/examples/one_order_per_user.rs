//! One order per user: a double click, a retry of the browser or a second server must not buy twice.
//!
//! Run with `cargo run -p lockkeeper --example one_order_per_user`, or with a server:
//! `cargo run -p lockkeeper --features redis --example one_order_per_user redis://127.0.0.1:6379`.
#![allow(clippy::disallowed_methods, reason = "tasks of the example's own")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use lockkeeper::{Client, Result};

/// What the handler answers.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Bought,
    /// HTTP 409: the same user is buying right now.
    Busy,
    /// HTTP 409: the same user has bought before.
    Before,
}

/// The orders there are. In a service this is a table with a unique key on the user, which is the last word.
type Orders = Arc<Mutex<HashSet<String>>>;

/// Busy is an answer, not an error: the second click is told so at once, and does not wait for the first.
async fn buy(client: Client, orders: Orders, user: String) -> Result<Answer> {
    let Some(guard) = client.mutex(format!("order:{user}")).try_lock().await? else { return Ok(Answer::Busy) };
    let known = orders.lock().unwrap().contains(&user);
    let answer = if known {
        Answer::Before
    } else {
        // If the lock is lost meanwhile, `run` drops the work and says so.
        guard.run(tokio::task::yield_now()).await?; // the payment
        orders.lock().unwrap().insert(user);
        Answer::Bought
    };
    guard.release().await?;
    Ok(answer)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let (client, orders) = (Client::connect(url).await?, Orders::default());
    let clicks: Vec<_> = ["ann", "bob", "ann", "ann", "bob"]
        .map(|user| (user, tokio::spawn(buy(client.clone(), Arc::clone(&orders), user.to_owned()))))
        .into();
    let mut bought = 0;
    for (user, click) in clicks {
        let answer = click.await.expect("no handler panics")?;
        bought += u32::from(answer == Answer::Bought);
        println!("{user}: {answer:?}");
    }
    println!("ann, later: {:?}", buy(client.clone(), Arc::clone(&orders), "ann".to_owned()).await?);
    println!("{bought} orders of {} users", orders.lock().unwrap().len());
    client.close().await
}
