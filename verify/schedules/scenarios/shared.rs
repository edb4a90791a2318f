//! Readers that join each other's hold, writers, and permits: who may be inside together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use shuttle::rand::{Rng as _, thread_rng};

use super::machine::Machine;
use super::mutex::{Like, client, end};
use crate::Client;
use crate::store::memory::MemoryStore;

/// How many are inside; a writer counts as many.
#[derive(Debug, Default)]
struct Inside(AtomicU32);

impl Inside {
    fn with(&self, weight: u32, most: u32) {
        let now = self.0.fetch_add(weight, Ordering::SeqCst) + weight;
        assert!(now <= most, "{now} are inside, {most} may be");
        shuttle::thread::sleep(Duration::ZERO);
        self.0.fetch_sub(weight, Ordering::SeqCst);
    }
}

async fn reads(client: Client, inside: Arc<Inside>) {
    for _ in 0..2 {
        let guard = client.rwlock("a").read().await.expect("nothing fails");
        inside.with(1, 99);
        guard.release().await.expect("it was not lost");
    }
}

async fn writes(client: Client, inside: Arc<Inside>) {
    let guard = client.rwlock("a").write().await.expect("nothing fails");
    inside.with(99, 99);
    guard.release().await.expect("it was not lost");
}

async fn permits(client: Client, inside: Arc<Inside>) {
    for _ in 0..2 {
        let permit = client.semaphore("a", 2).acquire().await.expect("nothing fails");
        inside.with(1, 2);
        permit.release().await.expect("it was not lost");
    }
}

pub(super) fn readers_and_permits() {
    Machine::run(0, |machine| async move {
        let store = Arc::new(MemoryStore::new(machine.runtime()));
        let client = client(&machine, &Like::over(&store));
        let (inside, ours) = (Arc::new(Inside::default()), || client.clone());
        let us = || Arc::clone(&inside);
        let of_permits = thread_rng().gen_bool(0.5);
        let tasks = if !of_permits {
            let readers = [machine.start(reads(ours(), us())), machine.start(reads(ours(), us()))];
            readers.into_iter().chain([machine.start(writes(ours(), us()))]).collect::<Vec<_>>()
        } else {
            (0..3).map(|_| machine.start(permits(ours(), us()))).collect()
        };
        for task in tasks {
            task.await;
        }
        if of_permits {
            // The size of a semaphore stays. All of its permits must be free.
            let all = client.semaphore("a", 2).try_acquire_many(2).await.expect("nothing fails");
            assert!(all.is_some(), "a permit was not given back");
            drop(all);
            client.close().await.expect("the store answers");
        } else {
            end(vec![client], &store).await;
        }
    });
}
