//! The workloads that not everybody can run: a crowd of waiters, many locks kept, readers and a writer, re-entry, opening a store.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bench_course::{Order, Report, heats, now};
use lockkeeper::{Client, MutexGuard};

use crate::connect;
use crate::locks::{Reading, Writing};

/// All tasks wait for one lock that is held; then it is given back, and goes through all of them. Tells memory per waiter.
pub(crate) async fn crowd(order: &Order) {
    let client = connect(order).await;
    let (waiters, fair) = (order.number("tasks"), order.text("as") == Some("fair"));
    let name = order.text("name").expect("a name").to_owned();
    heats(order, async |_| {
        let holder = client.mutex(&name).lock().await.expect("free");
        let before = resident();
        let arrived = Arc::new(tokio::sync::Semaphore::new(0));
        let future = size_of_val(&wait_once(client.clone(), name.clone(), fair, Arc::clone(&arrived)));
        let waiting: Vec<_> =
            (0..waiters).map(|_| tokio::spawn(wait_once(client.clone(), name.clone(), fair, Arc::clone(&arrived)))).collect();
        let _ = arrived.acquire_many(u32::try_from(waiters).expect("not that many")).await.expect("open");
        // They have arrived at the lock; a moment for the last of them to stand in line.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let memory = resident().saturating_sub(before) as f64 / waiters as f64;
        let began = now();
        holder.release().await.expect("held");
        for waiter in waiting {
            waiter.await.expect("no task panics");
        }
        Report::counted((now() - began) as f64 / 1e9, waiters as u64)
            .with("bytes per waiter", memory)
            .with("bytes of a future", future as f64)
    })
    .await;
}

async fn wait_once(client: Client, name: String, fair: bool, arrived: Arc<tokio::sync::Semaphore>) {
    arrived.add_permits(1);
    let guard = if fair { client.fair_mutex(&name).lock().await } else { client.mutex(&name).lock().await };
    guard.expect("granted").release().await.expect("held");
}

/// Holds many locks, each kept alive, and does nothing else.
pub(crate) async fn keep(order: &Order) {
    let client = connect(order).await;
    let (held, name) = (order.number("held"), order.text("name").expect("a name").to_owned());
    let taking: Vec<_> = (0..64)
        .map(|task| {
            let (client, name) = (client.clone(), name.clone());
            tokio::spawn(async move {
                let mut guards: Vec<MutexGuard> = Vec::new();
                for number in (task..held).step_by(64) {
                    guards.push(client.mutex(format!("{name}:{number}")).lock().await.expect("free"));
                }
                guards
            })
        })
        .collect();
    let mut guards = Vec::with_capacity(held);
    for taken in taking {
        guards.extend(taken.await.expect("no task panics"));
    }
    heats(order, async |seconds| {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        let valid = guards.iter().filter(|guard| guard.is_valid()).count();
        Report::counted(seconds, valid as u64)
    })
    .await;
}

/// All tasks but one read, one writes; the writer's count is the last.
pub(crate) async fn readers(order: &Order) {
    let client = connect(order).await;
    let name = order.text("name").expect("a name");
    let reading: Vec<_> = (1..order.number("tasks")).map(|_| Arc::new(Reading(client.rwlock(name)))).collect();
    let writing = Arc::new(Writing(client.rwlock(name)));
    heats(order, async |seconds| bench_course::readers(&reading, &writing, order, seconds).await).await;
}

/// Takes a lock that the same owner holds, by `as`: through an owner, or through the guard.
pub(crate) async fn reenter(order: &Order) {
    let client = connect(order).await;
    let mutex = client.mutex(order.text("name").expect("a name")).owned_by(&client.owner());
    let guard = mutex.lock().await.expect("free");
    let by_guard = order.text("as") == Some("guard");
    heats(order, async |seconds| {
        let (began, mut turns) = (now(), 0);
        while (now() - began) as f64 / 1e9 < seconds {
            for _ in 0..1_000 {
                if by_guard {
                    drop(black_box(guard.reenter().expect("held")));
                } else {
                    mutex.lock().await.expect("ours").release().await.expect("ours");
                }
            }
            turns += 1_000;
        }
        Report::counted((now() - began) as f64 / 1e9, turns)
    })
    .await;
}

/// Everything from opening a store to closing it, with one lock in between.
pub(crate) async fn open(order: &Order) {
    heats(order, async |seconds| {
        let (start, mut report) = (now(), Report::counted(0.0, 0));
        while (now() - start) as f64 / 1e9 < seconds {
            let began = now();
            let client = connect(order).await;
            client.mutex("opened").lock().await.expect("free").release().await.expect("held");
            client.close().await.expect("closed");
            report.nanos.push(now() - began);
            report.counts[0] += 1;
        }
        report.seconds = (now() - start) as f64 / 1e9;
        report
    })
    .await;
}

/// The memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
