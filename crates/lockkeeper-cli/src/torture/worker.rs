//! One of the processes that `torture` starts: some tasks that lock, hold and release until they are told to stop.

use std::sync::Arc;

use lockkeeper::layer::Record;
use lockkeeper::{Client, Error};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::desk::Desk;
use super::message::{Orders, Said};
use super::turn::Task;

/// The hidden first argument that starts it. The second one has its orders, as JSON; the store is in the environment, because its URL may
/// contain a password.
pub(crate) const WORD: &str = "__torture";

/// Runs the process to its end.
pub(crate) fn main() -> u8 {
    // It must not outlive its parent, which alone continues it when it is stopped.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let orders = std::env::args().nth(2).and_then(|orders| serde_json::from_str::<Orders>(&orders).ok());
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Some(orders), Ok(executor)) = (orders, executor) else { return 64 };
    let desk = Desk::new(orders.client);
    match executor.block_on(work(orders, &desk)) {
        Ok(()) => 0,
        Err(error) => {
            desk.say(&Said::Failed(error.to_string()));
            1
        }
    }
}

async fn work(orders: Orders, desk: &Arc<Desk>) -> Result<(), Error> {
    let store = std::env::var("LOCKKEEPER_STORE").unwrap_or_default();
    let recorder = Arc::clone(desk);
    let client = Client::builder()
        .lease(orders.lease)
        .program("lockkeeper torture")
        .layer(move |store| {
            let recorder = Arc::clone(&recorder);
            Arc::new(Record::new(store, Arc::new(move |answer| recorder.answered(&answer))))
        })
        .connect(store)
        .await?;
    desk.listen();
    desk.say(&Said::Ready);
    let tasks = (0..orders.tasks).map(|index| {
        let chance = fastrand::Rng::with_seed(orders.seed.wrapping_add(index as u64 + 1));
        tokio::spawn(Task::new(&orders, desk, client.with_prefix(&orders.prefix), chance).run())
    });
    for task in tasks.collect::<Vec<_>>() {
        // One that panicked has said so on stderr, and its holds are released.
        if let Err(error) = task.await {
            desk.say(&Said::Failed(format!("a task ended: {error}")));
        }
    }
    // What could not be released ends with its lease.
    if let Err(error) = client.close().await {
        desk.say(&Said::Trouble(format!("close: {:?}", error.kind())));
    }
    Ok(())
}
