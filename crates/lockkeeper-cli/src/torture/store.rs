//! The store before and after: what it can do, whether others use it, and whether anything of the run is left.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper::backend::{Capabilities, Kind, Snapshot};
use lockkeeper::{Client, Error};
use tokio::time::sleep;

use super::message::{GATE, Lock, PERMITS};
use super::report::AtTheEnd;
use super::resource::Numbers;
use crate::exit::Failure;
use crate::store::StoreOption;

/// The first values of the numbers.
const LATCH: u32 = 1_000_000_000;
const COUNTER: u32 = 1_000_000;

/// A client, and what its store can do.
pub(super) async fn connect(store: &StoreOption, lease: Duration) -> Result<(Client, Capabilities), Failure> {
    let known = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&known);
    let builder = Client::builder().lease(lease).program("lockkeeper torture").layer(move |store| {
        *tell.lock().unwrap_or_else(PoisonError::into_inner) = Some(store.capabilities());
        store
    });
    let client = store.connect(builder).await?;
    let capabilities = known.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok((client, capabilities.unwrap_or_else(|| Capabilities::new("unknown"))))
}

/// What the processes can use there.
pub(super) fn supported(can: &Capabilities) -> Vec<Lock> {
    let supports = |lock: &Lock| match lock {
        Lock::Mutex | Lock::Several | Lock::Twice => can.mutex,
        Lock::Fair => can.fair,
        Lock::Read | Lock::Write => can.rwlock,
        Lock::Permits => can.semaphore,
        Lock::Latch => can.latch,
        Lock::Counter => can.counting_semaphore,
    };
    Lock::ALL.into_iter().filter(supports).collect()
}

/// The locks of others that are held.
pub(super) async fn others(client: &Client) -> Result<Vec<String>, Error> {
    let found = client.list("*").limit(10_000).await?;
    Ok(found.into_iter().filter(is_used).map(|found| found.name.to_string()).collect())
}

fn is_used(found: &Snapshot) -> bool {
    !found.holders.is_empty() || !found.queue.is_empty()
}

/// Sets the numbers.
pub(super) async fn prepare(own: &Client, locks: &[Lock]) -> Result<(), Error> {
    if locks.contains(&Lock::Latch) {
        own.latch("latch").try_set(LATCH).await?;
    }
    if locks.contains(&Lock::Counter) {
        own.counting_semaphore("counter").try_set(COUNTER).await?;
    }
    Ok(())
}

/// Checks what is left when all processes have ended, and removes it. What processes that were killed held ends within `limit`.
pub(super) async fn clear(
    client: &Client,
    own: &Client,
    prefix: &str,
    locks: &[Lock],
    numbers: &Numbers,
    limit: Duration,
) -> AtTheEnd {
    let mut end = AtTheEnd { counted: numbers.confirmed, ..AtTheEnd::default() };
    if let Err(error) = try_clear(client, own, prefix, locks, numbers, limit, &mut end).await {
        end.unchecked.push(format!("P5 and the numbers: the store failed at the end: {error}"));
    }
    end
}

/// All that the store has of the run: what it lists, and each name by itself, so that nothing depends on the listing.
async fn all(client: &Client, prefix: &str, locks: &[Lock]) -> Result<Vec<Snapshot>, Error> {
    let mut found = client.list(format!("{prefix}*")).await?;
    for name in locks.iter().flat_map(|lock| lock.names()) {
        found.extend(client.inspect(format!("{prefix}{name}")).await?);
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found.dedup_by(|one, other| one.name == other.name);
    Ok(found)
}

async fn try_clear(
    client: &Client,
    own: &Client,
    prefix: &str,
    locks: &[Lock],
    numbers: &Numbers,
    limit: Duration,
    end: &mut AtTheEnd,
) -> Result<(), Error> {
    let began = Instant::now();
    let used =
        async || -> Result<Vec<Snapshot>, Error> { Ok(all(client, prefix, locks).await?.into_iter().filter(is_used).collect()) };
    let short = |found: &Snapshot| found.name.as_str().strip_prefix(prefix).unwrap_or(found.name.as_str()).to_owned();
    loop {
        let used = used().await?;
        if used.is_empty() {
            break;
        }
        if began.elapsed() > limit {
            for found in used {
                let name = short(&found);
                let (holders, waiters) = (found.holders.len(), found.queue.len());
                end.left
                    .push(format!("{name:?} still has {holders} holders and {waiters} waiters {limit:?} after all had ended"));
                own.force_release(&name).await?;
            }
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    if locks.contains(&Lock::Latch) {
        let latch = own.latch("latch");
        check(Lock::Latch, LATCH, i64::from(latch.count().await?), numbers, end);
        latch.remove().await?;
        own.latch(GATE).remove().await?;
    }
    if locks.contains(&Lock::Counter) {
        let counter = own.counting_semaphore("counter");
        check(Lock::Counter, COUNTER, counter.available().await?, numbers, end);
        counter.remove().await?;
    }
    for found in all(client, prefix, locks).await? {
        // A semaphore keeps its size until it is removed.
        if found.kind == Kind::Semaphore && !is_used(&found) {
            own.semaphore(short(&found), PERMITS).remove().await?;
        }
    }
    for found in all(client, prefix, locks).await? {
        end.left.push(format!("{:?} cannot be removed", short(&found)));
    }
    Ok(())
}

fn check(lock: Lock, first: u32, found: i64, numbers: &Numbers, end: &mut AtTheEnd) {
    let (least, most) = numbers.range(lock, first.into());
    if !(least..=most).contains(&found) {
        end.miscounted.push(format!("the {} is {found}; by what was counted it is {least} to {most}", lock.shown()));
    }
}
