//! Calls that are not polled any more: what they have in the store is taken back, also where the client's session keeps it alive.

use std::time::Duration;

use super::World;
use super::any::{AnyGuard, How, rival, take};
use crate::backend::Claim;
use crate::error::Result;
use crate::runtime::{BoxFuture, Instant};
use crate::session::Session;
use crate::sync::RwLock;

/// How long a place is kept without a sign of life, and how long a request may take.
const PLACE: Duration = Duration::from_secs(2);
const COMMAND: Duration = Duration::from_secs(1);

fn client(world: &World) -> Session {
    world.client_with(|settings| (settings.place, settings.command_timeout) = (PLACE, COMMAND))
}

type Call = BoxFuture<'static, Result<AnyGuard>>;

/// A call that has its place in the store's queue, and is not polled any more.
async fn stalled(world: &World, ours: &Session, name: &str, claim: Claim) -> Call {
    let mut call = take(ours, name, claim, How::default());
    while world.queued(name).await == 0 {
        assert!(world.within(world.slack() / 4, &mut call).await.is_none(), "{claim:?}: {name} is held");
    }
    call
}

/// A waiter of the same client, and one of another.
fn two_more(world: &World, clients: [&Session; 2], name: &str, claim: Claim) -> Vec<tokio::task::JoinHandle<()>> {
    let waits = |client: &Session| {
        let call = take(client, name, claim, How { wait: Some(30 * PLACE), lease: None });
        let what = format!("{claim:?} for {name} waits for a call that does not run");
        world.spawn(async move { call.await.expect(&what).release().await.unwrap() })
    };
    clients.map(waits).into()
}

async fn all_within(world: &World, limit: Duration, waiting: Vec<tokio::task::JoinHandle<()>>, began: Instant) {
    for one in waiting {
        one.await.unwrap();
    }
    assert!(world.since(began) <= limit, "they waited {:?}", world.since(began));
}

/// P6: a call that has its place and does not run keeps nobody from the lock, whether its own process held it or another. When it runs again it gets
/// the lock in the end.
pub async fn a_place_of_a_call_that_does_not_run_is_taken_back(world: &World) {
    let (ours, theirs) = (client(world), client(world));
    let (mut left, mut waiting, mut held, mut occupied) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for claim in world.claims() {
        for own in [false, true] {
            let name = format!("{claim:?} {own}");
            if own {
                held.push(take(&ours, &name, rival(claim), How::default()).await.unwrap());
            } else {
                occupied.push((name.clone(), claim, world.occupy(&name, rival(claim)).await));
            }
            left.push(stalled(world, &ours, &name, claim).await);
            waiting.extend(two_more(world, [&ours, &theirs], &name, rival(claim)));
        }
    }
    world.settle().await;
    let began = world.now();
    for guard in held {
        guard.release().await.unwrap();
    }
    for (name, claim, owner) in occupied {
        assert!(world.give_back(&name, rival(claim), owner).await);
    }
    all_within(world, PLACE + Duration::from_secs(1) + world.slack(), waiting, began).await;
    for call in left {
        call.await.expect("it runs again").release().await.unwrap();
    }
}

/// P5: a call whose request is out, and that is not polled any more, keeps nobody from the lock for longer than its request may take.
pub async fn a_grant_of_a_call_that_does_not_run_is_taken_back(world: &World) {
    let (ours, theirs) = (client(world), client(world));
    let (mut left, mut waiting) = (Vec::new(), Vec::new());
    let began = world.now();
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let mut call = take(&ours, &name, claim, How::default());
        assert!(world.within(Duration::ZERO, &mut call).await.is_none(), "{claim:?}: no answer can be there");
        world.settle().await;
        waiting.extend(two_more(world, [&ours, &theirs], &name, rival(claim)));
        left.push(call);
    }
    all_within(world, COMMAND + Duration::from_secs(2) + world.slack(), waiting, began).await;
    for call in left {
        call.await.expect("it runs again").release().await.unwrap();
    }
}

/// A downgrade that did not run for so long that its request was taken back asks anew, and becomes a reader.
pub async fn a_downgrade_that_did_not_run_goes_on(world: &World) {
    let ours = client(world);
    let lock = RwLock::new(&ours, "n");
    let writer = lock.write().await.unwrap();
    let mut downgrading: BoxFuture<'_, _> = Box::pin(lock.downgrade(writer));
    assert!(world.within(Duration::ZERO, &mut downgrading).await.is_none(), "no answer can be there");
    world.pass(COMMAND + Duration::from_secs(2)).await;
    let reader = world.within(COMMAND + world.slack(), downgrading).await.expect("it goes on").unwrap();
    assert!(reader.is_valid());
    reader.release().await.unwrap();
}
