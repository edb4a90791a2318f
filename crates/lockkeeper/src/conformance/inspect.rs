//! `inspect` and `list`: holders, queues and numbers, and the client behind an owner.

use std::collections::BTreeSet;
use std::time::Duration;

use super::World;
use super::any::{How, take};
use crate::backend::{Acquire, Attempt, Claim, ClientCard, Kind, Listing, Snapshot};
use crate::owner::WireOwner;
use crate::sync::{CountDownLatch, CountingSemaphore, Mutex, Semaphore};

/// A hold is seen with its owner, what it is, what is left of its lease, and its token.
pub async fn shows_who_holds_what(world: &World) {
    let client = world.client();
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let guard = take(&client, &name, claim, How { lease: Some(world.units(10)), wait: None }).await.unwrap();
        let found = world.look(&name).await.expect("held");
        assert_eq!((found.name.as_str(), found.kind), (name.as_str(), claim.kind()));
        let [holder] = &found.holders[..] else { panic!("{found:?}") };
        // Permits may be known to a store by ids of their own.
        if claim.kind() != Kind::Semaphore {
            assert_eq!(holder.owner, guard.owner().to_string());
        }
        // A mutex does not remember whether its holder had queued for it.
        assert_eq!(holder.claim, if claim == Claim::Fair { Claim::Mutex } else { claim });
        assert!(holder.lease_left.is_none_or(|left| !left.is_zero() && left <= world.units(10)), "{holder:?}");
        guard.release().await.unwrap();
    }
}

/// The token that is seen is the one that the holder has.
pub async fn shows_the_token(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    let found = world.look("m").await.expect("held");
    assert!(found.holders[0].token.is_none_or(|token| token == guard.token().unwrap().number()), "{found:?}");
    guard.release().await.unwrap();
}

/// Where nothing lies nothing is seen: never used, released, or ended with its lease.
pub async fn shows_nothing_where_nothing_lies(world: &World) {
    let client = world.client();
    assert!(world.look("m").await.is_none());
    Mutex::new(&client, "m").lock().await.unwrap().release().await.unwrap();
    assert!(world.look("m").await.is_none());
    world.grant(Acquire { lease: world.units(1), ..world.ask("m", Claim::Mutex, world.stranger()) }).await;
    world.pass(world.units(1) + Duration::from_millis(20)).await;
    assert!(world.look("m").await.is_none());
    assert!(everything(world, "*", 100).await.is_empty());
}

/// The numbers of semaphores, counters and latches are seen.
pub async fn shows_numbers(world: &World) {
    let client = world.client();
    let permit = Semaphore::new(&client, "s", 5).acquire_many(2).await.unwrap();
    CountingSemaphore::new(&client, "c").release(7).await.unwrap();
    CountDownLatch::new(&client, "l").try_set(3).await.unwrap();
    for (name, kind, value, total) in
        [("s", Kind::Semaphore, 3, Some(5)), ("c", Kind::CountingSemaphore, 7, None), ("l", Kind::Latch, 3, None)]
    {
        let found = world.look(name).await.expect("there");
        assert_eq!((found.kind, found.value, found.total), (kind, Some(value), total), "{name}");
    }
    permit.release().await.unwrap();
}

/// Waiters are shown with their client's card, and only as long as they wait.
pub async fn shows_who_waits(world: &World) {
    // A client of its own: cards are by client, and other cases run beside this one.
    let waiter = WireOwner { client: world.runtime().client_id(), ..world.stranger() };
    let card = ClientCard::new(waiter.client, "rose-garden".to_owned(), 4711, "gardener".to_owned());
    world.backend().announce(card.clone(), world.units(60)).await.unwrap();
    let holder = world.occupy("m", Claim::Fair).await;
    assert!(matches!(world.take(world.ask("m", Claim::Fair, waiter)).await, Attempt::Busy(_)));
    let found = world.look("m").await.expect("held");
    assert_eq!(found.queue.iter().map(|waiting| waiting.owner.as_str()).collect::<Vec<_>>(), [waiter.to_string()]);
    assert_eq!(found.queue[0].client, Some(card));
    assert!(!world.give_back("m", Claim::Fair, waiter).await);
    assert_eq!(world.queued("m").await, 0);
    assert!(world.give_back("m", Claim::Fair, holder).await);
}

/// All pages of a listing.
async fn everything(world: &World, pattern: &str, limit: usize) -> Vec<Snapshot> {
    let mut listing = Listing { pattern: pattern.to_owned(), after: None, limit };
    let mut found = Vec::new();
    for _ in 0..1_000 {
        let page = world.backend().list(listing.clone()).await.unwrap();
        found.extend(page.found);
        listing.after = page.next;
        if listing.after.is_none() {
            return found;
        }
    }
    panic!("a listing without end");
}

async fn names(world: &World, pattern: &str, limit: usize) -> BTreeSet<String> {
    everything(world, pattern, limit).await.into_iter().map(|found| found.name.as_str().to_owned()).collect()
}

/// A listing in pages shows everything that is there all the time, whatever the size of a page.
pub async fn lists_everything_page_by_page(world: &World) {
    let client = world.client();
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(Mutex::new(&client, format!("n{number}")).lock().await.unwrap());
    }
    let all: BTreeSet<_> = guards.iter().map(|guard| guard.name().to_owned()).collect();
    for limit in [1, 7, 30, 1_000] {
        assert_eq!(names(world, "*", limit).await, all, "in pages of {limit}");
    }
    client.close().await.unwrap();
}

/// Patterns: `*` is any text, `?` one character, `\` takes the next one literally; nothing else is special.
pub async fn lists_what_matches_a_pattern(world: &World) {
    let client = world.client();
    let mut guards = Vec::new();
    for name in ["a:1", "a:2", "a:10", "b:1", "a*", "a?", "[a]", "é"] {
        guards.push(Mutex::new(&client, name).lock().await.unwrap());
    }
    for (pattern, expected) in [
        ("a:*", &["a:1", "a:10", "a:2"][..]),
        ("a:?", &["a:1", "a:2"]),
        ("*1", &["a:1", "b:1"]),
        ("a\\*", &["a*"]),
        ("a\\?", &["a?"]),
        ("\\[a\\]", &["[a]"]),
        ("?:1", &["a:1", "b:1"]),
        ("A:*", &[]),
        ("a", &[]),
    ] {
        let expected: BTreeSet<_> = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names(world, pattern, 100).await, expected, "{pattern}");
    }
    client.close().await.unwrap();
}

/// The card of a client is shown with its holds until it expires.
pub async fn shows_who_is_behind_an_owner(world: &World) {
    let owner = world.stranger();
    let card = ClientCard {
        id: owner.client,
        host: "rose-garden".to_owned(),
        pid: 4711,
        program: "gardener".to_owned(),
        user: Some("rose".to_owned()),
    };
    world.grant(Acquire { lease: world.units(60), ..world.ask("m", Claim::Mutex, owner) }).await;
    let seen = async || world.look("m").await.expect("held").holders[0].client.clone();
    assert_eq!(seen().await, None);
    world.backend().announce(card.clone(), world.units(20)).await.unwrap();
    assert_eq!(seen().await, Some(card.clone()));
    assert_eq!(world.force("m").await.from[0].client, Some(card.clone()));
    world.grant(Acquire { lease: world.units(60), ..world.ask("m", Claim::Mutex, owner) }).await;
    world.pass(world.units(20) + Duration::from_millis(20)).await;
    assert_eq!(seen().await, None, "forgotten unless told again");
    world.backend().announce(card.clone(), world.units(20)).await.unwrap();
    assert_eq!(seen().await, Some(card));
    assert!(world.give_back("m", Claim::Mutex, owner).await);
}

/// A client that holds something for a while tells by itself which process it is.
pub async fn a_client_that_holds_something_tells_who_it_is(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    world.pass(world.lease() / 2).await;
    let found = world.look("m").await.expect("held");
    let card = found.holders[0].client.as_ref().expect("a card");
    assert_eq!((card.id, card.pid), (client.id(), std::process::id()));
    assert!(!card.host.is_empty());
    guard.release().await.unwrap();
}
