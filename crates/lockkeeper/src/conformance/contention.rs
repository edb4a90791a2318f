//! What a store may offer for contended names: grants in notifications, ranges of tokens, and holds that are kept unless another
//! client waits.

use super::World;
use crate::backend::{Acquire, Attempt, Claim, Kind, Release, Released, Watch};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::session::Session;
use crate::sync::Mutex;

/// An owner of another client than [`World::stranger`] gives.
fn foreigner(world: &World) -> WireOwner {
    WireOwner { client: ClientId::from_bits(0xf0e), ..world.stranger() }
}

/// Passes the hold on to `then`, unless another client waits.
async fn keep(world: &World, owner: WireOwner, then: Acquire) -> Released {
    let release = Release::new(then.name.clone(), Claim::Mutex, owner).with_then(then).with_if_alone();
    world.backend().release(release).await.unwrap()
}

/// P2: the numbers that a grant reserves are given to nobody else, also after its end and when the grant is repeated.
pub async fn a_range_of_tokens_is_given_out_once(world: &World) {
    let mut last = 0;
    for (round, spare) in [(0, 0), (1, 5), (2, Acquire::MAX_SPARE_TOKENS), (3, u32::MAX), (4, 0)] {
        let request = world.ask("m", Claim::Mutex, world.stranger()).with_spare_tokens(spare);
        let grant = world.grant(request.clone()).await;
        let (first, end) = (grant.token.expect("a token"), grant.last_token().expect("a token"));
        assert!(first > last, "round {round}: {first} is not larger than {last}");
        assert!(grant.spare_tokens <= spare.min(Acquire::MAX_SPARE_TOKENS), "round {round}: {grant:?}");
        let again = world.grant(request.clone()).await;
        let repeated = again.token.expect("a token");
        assert!(repeated == first || repeated > end, "round {round}: {again:?} after {grant:?}");
        assert!(again.last_token() <= Some(end) || repeated > end, "round {round}: {again:?} after {grant:?}");
        last = end.max(again.last_token().expect("a token"));
        // Grants of another name must not use these tokens.
        let beside = world.ask("beside", Claim::Mutex, world.stranger());
        world.grant(beside.clone()).await;
        assert!(world.give_back("beside", Claim::Mutex, beside.owner).await);
        assert!(world.give_back("m", Claim::Mutex, request.owner).await);
    }
}

/// A hold passes to a new owner while no other client waits. The request sent twice has the same result.
pub async fn a_hold_is_kept_while_no_other_client_waits(world: &World) {
    // A name of its own: on some servers a listener at the same name in another database counts too.
    const NAME: &str = "kept";
    let (first, second) = (world.stranger(), world.stranger());
    let token = world.grant(world.ask(NAME, Claim::Mutex, first)).await.token;
    // A waiter of the same client does not count: the client passes the hold on inside its process.
    let own = Watch::number(Name::new(NAME).unwrap(), Kind::Mutex, world.stranger());
    let _own = world.backend().watch(own).await.unwrap();
    let next = world.ask(NAME, Claim::Mutex, second);
    let kept = keep(world, first, next.clone()).await;
    let Some(Attempt::Granted(grant)) = kept.next else { panic!("{kept:?}") };
    assert!(kept.held && (grant.token > token || token.is_none()), "{grant:?} after {token:?}");
    let again = keep(world, first, next.clone()).await;
    assert!(!again.held && matches!(again.next, Some(Attempt::Granted(_))), "{again:?}");
    assert!(world.give_back(NAME, Claim::Mutex, second).await);
    // P5: a copy that arrives when the hold is over grants nothing.
    let late = keep(world, first, next).await;
    assert!(!late.held && late.next.is_none(), "{late:?}");
    assert_eq!(world.holders(NAME).await, 0);
}

/// A hold is not kept when another client waits, whether it listens or has a place in the queue.
pub async fn a_hold_is_not_kept_when_another_client_waits(world: &World) {
    let name = Name::new("m").unwrap();
    for fair in [false, true] {
        if fair && !world.capabilities().fair {
            continue;
        }
        let (first, second, other) = (world.stranger(), world.stranger(), foreigner(world));
        world.grant(world.ask("m", Claim::Mutex, first)).await;
        let claim = if fair { Claim::Fair } else { Claim::Mutex };
        let waits = world.ask("m", claim, other);
        assert!(matches!(world.take(waits.clone()).await, Attempt::Busy(busy) if busy.placed == fair));
        let subscription = world.backend().watch(Watch::new(name.clone(), claim, other)).await.unwrap();
        let released = keep(world, first, world.ask("m", Claim::Mutex, second)).await;
        assert!(released.held && released.next.is_none(), "fair: {fair}: {released:?}");
        assert!(world.is_notified(&subscription).await, "fair: {fair}");
        world.grant(waits).await;
        assert!(world.give_back("m", claim, other).await);
    }
}

/// P6: a waiter that asked for it is granted the name with the notification, and holds it at the store.
pub async fn a_notification_brings_the_grant(world: &World) {
    for forced in [false, true] {
        let (holder, first, second) = (world.stranger(), world.stranger(), world.stranger());
        let token = world.grant(world.ask("m", Claim::Mutex, holder)).await.token;
        let [first, second] = [first, second].map(|owner| world.ask("m", Claim::Mutex, owner));
        let waiting = world.backend().watch(Watch::granting(first.clone())).await.unwrap();
        let behind = world.backend().watch(Watch::granting(second.clone())).await.unwrap();
        assert!(waiting.take_grant().is_none() && !waiting.is_shareable());
        if forced {
            assert_eq!(world.force("m").await.from.len(), 1);
        } else {
            assert!(world.give_back("m", Claim::Mutex, holder).await);
        }
        assert!(world.is_notified(&waiting).await, "forced: {forced}");
        let grant = waiting.take_grant().expect("a grant");
        assert!(grant.token > token || token.is_none(), "{grant:?} after {token:?}");
        assert!(grant.good_for <= first.lease);
        assert!(waiting.take_grant().is_none() && behind.take_grant().is_none(), "granted twice");
        assert!(world.renew("m", Claim::Mutex, first.owner, None).await.is_kept());
        // The waiter confirms the grant by asking with the same owner.
        assert_eq!(world.grant(first.clone()).await.token, grant.token);
        assert!(world.give_back("m", Claim::Mutex, first.owner).await);
        assert!(world.is_notified(&behind).await && behind.take_grant().is_some(), "the next one is granted");
        assert!(world.give_back("m", Claim::Mutex, second.owner).await);
    }
}

/// P5: nothing is granted to a waiter whose subscription ended or whose request is late.
pub async fn a_waiter_that_left_is_granted_nothing(world: &World) {
    let holder = world.stranger();
    world.grant(world.ask("m", Claim::Mutex, holder)).await;
    let (left, late) = (world.ask("m", Claim::Mutex, world.stranger()), world.ask("m", Claim::Mutex, world.stranger()));
    let past = late.since;
    world.pass(world.units(1)).await;
    drop(world.backend().watch(Watch::granting(left)).await.unwrap());
    let waiting = world.backend().watch(Watch::granting(late.with_times(past, past))).await.unwrap();
    assert!(world.give_back("m", Claim::Mutex, holder).await);
    assert_eq!(world.holders("m").await, 0);
    assert!(waiting.take_grant().is_none());
}

/// The first waiter of a process stands in the store's queue while another task of the process holds the lock, before those who come later from
/// elsewhere. It goes on when the holder releases, and leaves no place if it gives up.
pub async fn a_waiter_behind_its_own_process_has_its_place_before_the_release(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let wait = |client: &Session| {
        let lock = Mutex::new(client, "m").lock();
        world.spawn(async move { lock.await.unwrap() })
    };
    let holder = Mutex::new(&ours, "m").lock().await.unwrap();
    let given_up = wait(&ours);
    world.until("the waiter has a place", || async { world.queued("m").await == 1 }).await;
    given_up.abort();
    world.until("no place is left", || async { world.queued("m").await == 0 }).await;

    let own = wait(&ours);
    world.until("the waiter has a place", || async { world.queued("m").await == 1 }).await;
    let other = wait(&theirs);
    world.until("both have a place", || async { world.queued("m").await == 2 }).await;
    holder.release().await.unwrap();
    let guard = own.await.unwrap();
    assert!(!other.is_finished() && guard.is_valid());
    guard.release().await.unwrap();
    other.await.unwrap().release().await.unwrap();
}
