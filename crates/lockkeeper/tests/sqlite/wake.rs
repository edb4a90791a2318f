//! Wake-ups reach every waiter, whatever becomes of the executor on which the socket was first read.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Claim, Kind, Release, Subscription, Watch};
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::sqlite::{Config, SqliteStore};
use tokio::runtime::Builder;

use crate::folder::Folder;

/// A client of the file, with a socket of its own, that holds one lock.
struct Holder {
    store: Arc<SqliteStore>,
    owner: WireOwner,
    name: Name,
}

impl Holder {
    async fn of(folder: &Folder) -> Self {
        Self::if_free(folder).await.expect("free")
    }

    async fn if_free(folder: &Folder) -> Option<Self> {
        let runtime = Runtime::system();
        let store = open(folder).await;
        let (owner, name) = (WireOwner::new(runtime.client_id(), 1), Name::new("held").unwrap());
        let asked = Acquire::new(name.clone(), Claim::Mutex, owner, Duration::from_secs(60))
            .with_times(runtime.now(), runtime.now().plus(Duration::from_secs(60)));
        matches!(store.acquire(asked).await.unwrap(), Attempt::Granted(_)).then_some(Self { store, owner, name })
    }

    async fn release(&self) {
        let released = self.store.release(Release::new(self.name.clone(), Claim::Mutex, self.owner)).await.unwrap();
        assert!(released.held && released.woke > Some(0), "{released:?}");
    }
}

async fn open(folder: &Folder) -> Arc<SqliteStore> {
    SqliteStore::connect(Config::file(folder.file()), &Runtime::system()).await.unwrap()
}

async fn subscription(store: &SqliteStore) -> Subscription {
    store
        .watch(Watch::number(Name::new("held").unwrap(), Kind::Mutex, "00000000-0000-0000-0000-000000000001:1".parse().unwrap()))
        .await
        .unwrap()
}

async fn assert_notified(subscription: &Subscription) {
    tokio::time::timeout(Duration::from_secs(10), subscription.notified()).await.expect("a wake-up was sent");
}

#[tokio::test]
async fn a_wake_up_notifies() {
    let folder = Folder::new();
    let (holder, store) = (Holder::of(&folder).await, open(&folder).await);
    let subscription = subscription(&store).await;
    holder.release().await;
    assert_notified(&subscription).await;
}

/// Two executors with a subscription each; the socket is first read on the one that `leave` gets.
fn on_two_executors(leave: impl FnOnce(tokio::runtime::Runtime) -> Option<tokio::runtime::Runtime>) {
    let folder = Folder::new();
    let executor = || Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (executor(), executor());
    let (store, early) = first.block_on(async {
        let store = open(&folder).await;
        let subscription = subscription(&store).await;
        (store, subscription)
    });
    let (holder, late) = second.block_on(async { (Holder::of(&folder).await, subscription(&store).await) });
    let _left = leave(first);
    second.block_on(async {
        holder.release().await;
        assert_notified(&early).await;
        assert_notified(&late).await;
    });
}

#[test]
fn wake_ups_are_read_when_the_executor_of_the_first_waiter_has_ended() {
    on_two_executors(|first| {
        drop(first);
        None
    });
}

#[test]
fn wake_ups_are_read_when_the_executor_of_the_first_waiter_is_idle() {
    on_two_executors(Some);
}

/// Tokio panics for want of an I/O driver, which ends the task that reads, and nothing else.
#[test]
fn wake_ups_are_read_where_the_executor_has_no_io_driver() {
    let folder = Folder::new();
    Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let (holder, store) = (Holder::of(&folder).await, open(&folder).await);
        let subscription = subscription(&store).await;
        holder.release().await;
        assert_notified(&subscription).await;
    });
}

/// The task that reads the socket must not keep the pipe of a closed client open: here it never runs again.
#[test]
fn a_closed_client_is_dead_although_its_executor_is_idle() {
    let folder = Folder::new();
    let resting = Builder::new_current_thread().enable_all().build().unwrap();
    let (holder, subscription) = resting.block_on(async {
        let holder = Holder::of(&folder).await;
        let subscription = subscription(&holder.store).await;
        tokio::task::yield_now().await;
        (holder, subscription)
    });
    drop((subscription, holder));
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let freed = async {
            while Holder::if_free(&folder).await.is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // Its lease is a minute.
        tokio::time::timeout(Duration::from_secs(10), freed).await.expect("nobody alive is in the way");
    });
}

/// Whether it was notified since the last time, without waiting for long.
async fn was_notified(subscription: &Subscription) -> bool {
    tokio::time::timeout(Duration::from_millis(20), subscription.notified()).await.is_ok()
}

/// A release wakes a few of many processes that wait for a mutex. If those leave without acquiring it, others are woken, until no
/// waiter is left: no wake-up is lost.
#[tokio::test]
async fn a_release_wakes_a_few_of_many_and_those_who_leave_pass_it_on() {
    const ALL: usize = 40;
    let folder = Folder::new();
    let holder = Holder::of(&folder).await;
    let mut waiting = Vec::new();
    for _ in 0..ALL {
        let store = open(&folder).await;
        let subscription = subscription(&store).await;
        waiting.push((store, subscription));
    }
    let release = Release::new(holder.name.clone(), Claim::Mutex, holder.owner);
    let woke = holder.store.release(release).await.unwrap().woke.expect("it is known");
    assert!((1..=12).contains(&woke), "{woke} of {ALL}");
    let mut woken = 0;
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    while !waiting.is_empty() {
        assert!(tokio::time::Instant::now() < until, "after {woken} of {ALL} nobody was woken any more");
        let mut rest = Vec::new();
        for (store, subscription) in waiting {
            if was_notified(&subscription).await {
                woken += 1;
            } else {
                rest.push((store, subscription));
            }
        }
        waiting = rest;
    }
    assert_eq!(woken, ALL);
}

/// The same if they are dead: they are listed, and nobody reads their sockets.
#[tokio::test]
async fn a_wake_up_for_the_dead_goes_to_the_living() {
    let folder = Folder::new();
    let holder = Holder::of(&folder).await;
    let mut dead = Vec::new();
    for _ in 0..40 {
        let store = open(&folder).await;
        let subscription = subscription(&store).await;
        dead.push((store, subscription));
    }
    let sockets = std::fs::read_dir(format!("{}-live", folder.file().display())).unwrap().map(|entry| entry.unwrap().path());
    sockets.filter(|path| path.extension().is_some_and(|end| end == "sock")).for_each(|path| std::fs::remove_file(path).unwrap());
    let store = open(&folder).await;
    let living = subscription(&store).await;
    holder.release().await;
    assert_notified(&living).await;
}
