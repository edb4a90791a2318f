//! Letters come to whoever waits, whatever becomes of the executor on which the mail was first read.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Claim, Kind, Release, Subscription, Watch};
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::sqlite::{Config, SqliteStore};
use tokio::runtime::Builder;

use crate::folder::Folder;

/// A client of the file, with a mailbox of its own, that holds one lock.
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
        let (owner, name) = (WireOwner { client: runtime.client_id(), number: 1 }, Name::new("held").unwrap());
        let asked = Acquire {
            name: name.clone(),
            claim: Claim::Mutex,
            owner,
            lease: Duration::from_secs(60),
            not_after: runtime.now().plus(Duration::from_secs(60)),
            since: runtime.now(),
            beside: None,
            place: None,
            floor: 0,
        };
        matches!(store.acquire(asked).await.unwrap(), Attempt::Granted(_)).then_some(Self { store, owner, name })
    }

    async fn release(&self) {
        let released = self
            .store
            .release(Release { name: self.name.clone(), claim: Claim::Mutex, owner: self.owner, then: None, settle: false })
            .await
            .unwrap();
        assert!(released.held && released.woke > Some(0), "{released:?}");
    }
}

async fn open(folder: &Folder) -> Arc<SqliteStore> {
    SqliteStore::connect(Config::file(folder.file()), &Runtime::system()).await.unwrap()
}

async fn subscription(store: &SqliteStore) -> Subscription {
    store
        .watch(Watch {
            name: Name::new("held").unwrap(),
            kind: Kind::Mutex,
            owner: "00000000-0000-0000-0000-000000000001:1".parse().unwrap(),
            claim: None,
        })
        .await
        .unwrap()
}

async fn assert_rung(subscription: &Subscription) {
    tokio::time::timeout(Duration::from_secs(10), subscription.notified()).await.expect("a letter was written");
}

#[tokio::test]
async fn a_letter_rings() {
    let folder = Folder::new();
    let (holder, store) = (Holder::of(&folder).await, open(&folder).await);
    let subscription = subscription(&store).await;
    holder.release().await;
    assert_rung(&subscription).await;
}

/// Two executors with a subscription each; the mail is first read on the one that `leave` gets.
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
        assert_rung(&early).await;
        assert_rung(&late).await;
    });
}

#[test]
fn mail_is_read_when_the_executor_of_the_first_who_waited_has_ended() {
    on_two_executors(|first| {
        drop(first);
        None
    });
}

#[test]
fn mail_is_read_when_the_executor_of_the_first_who_waited_rests() {
    on_two_executors(Some);
}

/// Tokio complains of the missing driver by a panic, which ends the task that reads, and nothing else.
#[test]
fn mail_is_read_where_the_executor_has_no_driver_for_it() {
    let folder = Folder::new();
    Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let (holder, store) = (Holder::of(&folder).await, open(&folder).await);
        let subscription = subscription(&store).await;
        holder.release().await;
        assert_rung(&subscription).await;
    });
}

/// What reads the mail must not keep the sign of life of a client that is gone: here it never learns of that, because nothing runs it.
#[test]
fn a_client_that_is_gone_is_dead_although_its_executor_rests() {
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
