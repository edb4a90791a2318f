//! The contract, request by request, without the client on top.

use std::time::Duration;

use super::World;
use super::any::rival;
use crate::backend::{
    Acquire, Attempt, AttemptAll, Busy, Claim, Count, CountOp, CountOutcome, CounterOp, Kind, LatchOp, Release, Released, Renew,
    Renewed,
};
use crate::error::ErrorKind;
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// Twice is once: an acquire sent again is one hold, freed by one release.
pub async fn acquiring_twice_is_once(world: &World) {
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let request = world.ask(&name, claim, world.stranger());
        for _ in 0..3 {
            world.grant(request.clone()).await;
        }
        assert_eq!(world.holders(&name).await, 1);
        assert!(world.give_back(&name, claim, request.owner).await);
        assert_eq!(world.holders(&name).await, 0, "{claim:?}: one release was not enough");
    }
}

/// Twice is once: a release sent again answers that nothing was held, and does not release the next holder.
pub async fn releasing_twice_is_once(world: &World) {
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let (first, second) = (world.stranger(), world.stranger());
        world.grant(world.ask(&name, claim, first)).await;
        assert!(world.give_back(&name, claim, first).await);
        assert!(!world.give_back(&name, claim, first).await);
        world.grant(world.ask(&name, rival(claim), second)).await;
        assert!(!world.give_back(&name, claim, first).await);
        assert_eq!(world.holders(&name).await, 1);
        assert!(world.give_back(&name, rival(claim), second).await);
    }
}

/// P1: a release by another owner, or of another claim, changes nothing.
pub async fn a_release_by_another_changes_nothing(world: &World) {
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let holder = world.stranger();
        world.grant(world.ask(&name, claim, holder)).await;
        // The same client, another acquisition; and the same number at another client.
        let neighbour = WireOwner { number: holder.number + 1_000, ..holder };
        let namesake = WireOwner { client: crate::owner::ClientId::from_bits(7), ..holder };
        for other in [neighbour, namesake] {
            assert!(!world.give_back(&name, claim, other).await);
        }
        assert!(world.renew(&name, claim, holder, None).await.is_kept(), "{claim:?}");
        assert!(world.give_back(&name, claim, holder).await);
        assert!(!world.give_back("nothing there", claim, holder).await);
    }
}

/// A renewal by another owner finds nothing and keeps nothing; so does one of a name where nothing lies.
pub async fn a_renewal_by_another_is_gone(world: &World) {
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let holder = world.stranger();
        world.grant(world.ask(&name, claim, holder)).await;
        for lease in [None, Some(world.units(20))] {
            assert_eq!(world.renew(&name, claim, world.stranger(), lease).await, Renewed::Gone);
            assert_eq!(world.renew("nothing there", claim, holder, lease).await, Renewed::Gone);
            assert!(world.renew(&name, claim, holder, lease).await.is_kept());
        }
        assert_eq!(world.holders(&name).await, 1);
        assert!(world.give_back(&name, claim, holder).await);
        assert_eq!(world.renew(&name, claim, holder, None).await, Renewed::Gone);
        assert_eq!(world.holders("nothing there").await, 0);
    }
}

/// A renewal lengthens; a look does not; and neither it nor a repeated acquire ever shortens.
pub async fn a_lease_is_lengthened_and_never_shortened(world: &World) {
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let request = world.ask(&name, claim, world.stranger());
        let owner = request.owner;
        let left = async || world.look(&name).await.and_then(|found| found.holders[0].lease_left);
        world.grant(request.clone()).await;
        assert!(left().await.is_none_or(|left| left <= world.units(10)));
        world.renew(&name, claim, owner, None).await;
        assert!(left().await.is_none_or(|left| left <= world.units(10)), "{claim:?}: a look lengthened it");
        assert!(world.renew(&name, claim, owner, Some(world.units(40))).await.is_kept());
        assert!(world.renew(&name, claim, owner, Some(world.units(2))).await.is_kept());
        world.grant(Acquire { lease: world.units(2), ..request }).await;
        assert!(left().await.is_none_or(|left| left > world.units(20)), "{claim:?}: shortened to {:?}", left().await);
        world.pass(world.units(12)).await;
        assert!(world.renew(&name, claim, owner, None).await.is_kept());
        assert!(world.give_back(&name, claim, owner).await);
    }
}

/// P5: after the end of a lease there is nothing to renew and nothing to release, and the name is free.
pub async fn an_ended_lease_is_gone(world: &World) {
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let (first, second) = (world.stranger(), world.stranger());
        world.grant(Acquire { lease: world.units(2), ..world.ask(&name, claim, first) }).await;
        world.pass(world.units(2) + Duration::from_millis(20)).await;
        assert_eq!(world.renew(&name, claim, first, Some(world.units(9))).await, Renewed::Gone, "{claim:?} was revived");
        world.grant(world.ask(&name, rival(claim), second)).await;
        assert!(!world.give_back(&name, claim, first).await);
        assert!(world.give_back(&name, rival(claim), second).await);
    }
}

/// Renewals in one request are answered one by one, in their order, and do not touch each other.
pub async fn renewals_are_answered_one_by_one(world: &World) {
    let owners: Vec<_> = (0..5).map(|_| world.stranger()).collect();
    let name = |number| Name::new(format!("n{number}")).unwrap();
    for number in [0, 2, 4] {
        world.grant(world.ask(&format!("n{number}"), Claim::Mutex, owners[number])).await;
    }
    let renewals = (0..5).map(|number| Renew::new(name(number), Claim::Mutex, owners[number], Some(world.units(20)))).collect();
    let answers: Vec<_> = world.backend().renew(renewals).await.unwrap().into_iter().map(|answer| answer.unwrap()).collect();
    assert_eq!(answers.into_iter().map(Renewed::is_kept).collect::<Vec<_>>(), [true, false, true, false, true]);
    assert!(world.backend().renew(Vec::new()).await.unwrap().is_empty());
    for number in [0, 2, 4] {
        assert!(world.give_back(&format!("n{number}"), Claim::Mutex, owners[number]).await);
    }
}

/// A time that has passed on every clock.
fn past(world: &World) -> Instant {
    Instant::from_nanos(world.now().as_nanos().saturating_sub(world.units(10).as_nanos() as u64))
}

/// Never late: an acquire that arrives after its `not_after` changes nothing, not even for the holder.
pub async fn a_late_acquire_changes_nothing(world: &World) {
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let late = |owner| Acquire { not_after: past(world), lease: world.units(50), ..world.ask(&name, claim, owner) };
        assert_eq!(world.take(late(world.stranger())).await, Attempt::Late);
        assert!(world.look(&name).await.is_none_or(|found| found.holders.is_empty()), "{claim:?}");
        let holder = world.stranger();
        world.grant(world.ask(&name, rival(claim), holder)).await;
        assert_eq!(world.take(late(world.stranger())).await, Attempt::Late);
        assert_eq!(world.queued(&name).await, 0, "{claim:?}: it stands in the queue");
        if rival(claim) == claim {
            assert_eq!(world.take(late(holder)).await, Attempt::Late);
            let left = world.look(&name).await.and_then(|found| found.holders[0].lease_left);
            assert!(left.is_none_or(|left| left <= world.units(10)), "{claim:?}: it lengthened the lease");
        }
        assert!(world.give_back(&name, rival(claim), holder).await);
    }
}

/// Never late: nor does a count; reading is never late.
pub async fn a_late_count_changes_nothing(world: &World) {
    for (kind, ops) in [
        (Kind::CountingSemaphore, vec![CountOp::Counter(CounterOp::Give(1)), CountOp::Counter(CounterOp::Add(1))]),
        (Kind::Latch, vec![CountOp::Latch(LatchOp::Init(1))]),
    ] {
        if !world.capabilities().supports(kind) {
            continue;
        }
        let name = format!("{kind:?}");
        for op in ops {
            let late = Count { not_after: past(world), ..world.tell(&name, op) };
            assert_eq!(world.count(&late).await, CountOutcome::Late, "{op:?}");
        }
        let read = if kind == Kind::Latch { CountOp::Latch(LatchOp::Read) } else { CountOp::Counter(CounterOp::Read) };
        let read = Count { not_after: past(world), ..world.tell(&name, read) };
        assert!(matches!(world.count(&read).await, CountOutcome::Counted(counted) if counted.value == 0));
    }
}

/// Twice is once: a count sent again gets the first answer, though others counted in between; another id is another request.
pub async fn counting_twice_is_once(world: &World) {
    let give = world.tell("c", CountOp::Counter(CounterOp::Give(5)));
    let take = world.tell("c", CountOp::Counter(CounterOp::Take(2)));
    let first = (world.count(&give).await, world.count(&take).await);
    assert!(matches!(first.1, CountOutcome::Counted(counted) if counted.done && counted.value == 3));
    world.count(&world.tell("c", CountOp::Counter(CounterOp::Give(10)))).await;
    assert_eq!((world.count(&give).await, world.count(&take).await), first);
    let read = world.tell("c", CountOp::Counter(CounterOp::Read));
    assert!(matches!(world.count(&read).await, CountOutcome::Counted(counted) if counted.value == 13));
    // A refusal is an answer like any other: repeated, though it would succeed by now.
    let drained = world.count(&world.tell("c", CountOp::Counter(CounterOp::Drain))).await;
    assert!(matches!(drained, CountOutcome::Counted(counted) if counted.value == 13));
    let refused = world.tell("c", CountOp::Counter(CounterOp::Take(1)));
    assert!(matches!(world.count(&refused).await, CountOutcome::Counted(counted) if !counted.done));
    world.count(&world.tell("c", CountOp::Counter(CounterOp::Give(1)))).await;
    assert!(matches!(world.count(&refused).await, CountOutcome::Counted(counted) if !counted.done));
}

/// A release with a successor: what `owner` has goes to `then`, in one step.
async fn hand_over(world: &World, owner: WireOwner, then: Acquire) -> Released {
    let release = Release::new(then.name.clone(), Claim::Mutex, owner).with_then(then);
    world.backend().release(release).await.unwrap()
}

/// A hand-over grants to the successor in one step. Sent twice it has the same result; from an owner without a hold it grants nothing.
pub async fn a_hand_over_is_one_step(world: &World) {
    let (first, second, third) = (world.stranger(), world.stranger(), world.stranger());
    world.grant(world.ask("m", Claim::Mutex, first)).await;
    let to_second = world.ask("m", Claim::Mutex, second);
    let released = hand_over(world, first, to_second.clone()).await;
    assert!(released.held && matches!(released.next, Some(Attempt::Granted(_))), "{released:?}");
    let again = hand_over(world, first, to_second).await;
    assert!(!again.held && matches!(again.next, Some(Attempt::Granted(_))), "{again:?}");
    let stolen = hand_over(world, first, world.ask("m", Claim::Mutex, third)).await;
    assert!(!stolen.held && matches!(stolen.next, Some(Attempt::Busy(_))), "{stolen:?}");
    let found = world.look("m").await.expect("held");
    assert_eq!(found.holders.iter().map(|holder| holder.owner.clone()).collect::<Vec<_>>(), [second.to_string()]);
    assert!(world.give_back("m", Claim::Mutex, second).await);
}

/// A late successor is granted nothing, and the release takes effect.
pub async fn a_late_successor_is_not_granted(world: &World) {
    let (first, second) = (world.stranger(), world.stranger());
    world.grant(world.ask("m", Claim::Mutex, first)).await;
    let late = Acquire { not_after: past(world), ..world.ask("m", Claim::Mutex, second) };
    let released = hand_over(world, first, late).await;
    assert_eq!(released, Released { held: true, next: Some(Attempt::Late), woke: Some(0) });
    assert_eq!(world.holders("m").await, 0);
}

/// Several names are acquired together, with a grant for each. The part in braces is the same, so that a cluster keeps them in one slot.
pub async fn several_names_are_taken_together(world: &World) {
    let owner = world.stranger();
    let requests: Vec<_> = ["{all}a", "{all}b", "{all}c"].map(|name| world.ask(name, Claim::Mutex, owner)).into();
    for _ in 0..2 {
        let answer = world.backend().acquire_all(requests.clone()).await.unwrap();
        assert!(matches!(&answer, AttemptAll::Granted(grants) if grants.len() == 3), "{answer:?}");
    }
    for name in ["{all}a", "{all}b", "{all}c"] {
        assert_eq!(world.holders(name).await, 1);
        assert!(world.give_back(name, Claim::Mutex, owner).await);
    }
}

/// If one is busy, none is acquired: the answer names the first busy one, and nothing is held, queued or extended.
pub async fn several_names_or_none(world: &World) {
    let (owner, other) = (world.stranger(), world.stranger());
    for name in ["{all}b", "{all}c"] {
        world.grant(world.ask(name, Claim::Mutex, other)).await;
    }
    world.grant(world.ask("{all}z", Claim::Mutex, owner)).await;
    let ask = |name| Acquire { lease: world.units(50), ..world.ask(name, Claim::Mutex, owner) };
    let answer = world.backend().acquire_all(["{all}z", "{all}a", "{all}b", "{all}c"].map(ask).into()).await.unwrap();
    assert!(matches!(answer, AttemptAll::Busy { index: 2, .. }), "{answer:?}");
    let left = world.look("{all}z").await.and_then(|found| found.holders[0].lease_left);
    assert!(left.is_none_or(|left| left <= world.units(10)), "the lease of z was lengthened");
    let late = Acquire { not_after: past(world), ..ask("{all}d") };
    assert_eq!(world.backend().acquire_all(vec![ask("{all}a"), late]).await.unwrap(), AttemptAll::Late);
    // Two owners cannot both hold one exclusive name.
    let twice = vec![ask("{all}a"), world.ask("{all}a", Claim::Mutex, world.stranger())];
    let answer = world.backend().acquire_all(twice).await.unwrap();
    assert!(matches!(answer, AttemptAll::Busy { index: 1, .. }), "{answer:?}");
    for name in ["{all}a", "{all}d"] {
        assert!(world.look(name).await.is_none(), "{name} was taken");
    }
    for (name, owner) in [("{all}b", other), ("{all}c", other), ("{all}z", owner)] {
        assert_eq!(world.queued(name).await, 0);
        assert!(world.give_back(name, Claim::Mutex, owner).await);
    }
}

/// Several names of which one has another kind: all are refused, and nothing changes.
pub async fn several_names_with_a_wrong_kind_change_nothing(world: &World) {
    let (owner, reader) = (world.stranger(), world.stranger());
    world.grant(world.ask("{all}r", Claim::Read, reader)).await;
    let requests = ["{all}a", "{all}r"].map(|name| world.ask(name, Claim::Mutex, owner)).into();
    assert_eq!(world.backend().acquire_all(requests).await.unwrap_err().kind(), ErrorKind::WrongKind);
    assert!(world.look("{all}a").await.is_none(), "a was taken");
    assert!(world.give_back("{all}r", Claim::Read, reader).await);
}

/// Every name is in one group of those that go together, and names with the same text in braces are in one.
pub async fn which_names_go_together_is_told(world: &World) {
    let names: Vec<Name> = ["foo", "{all}a", "bar", "{all}b", "x"].map(|name| Name::new(name).unwrap()).into();
    let groups = world.backend().atomic_groups(&names.iter().collect::<Vec<_>>());
    let mut places: Vec<usize> = groups.iter().flatten().copied().collect();
    places.sort_unstable();
    assert_eq!(places, [0, 1, 2, 3, 4], "{groups:?}");
    assert!(groups.iter().any(|group| group.contains(&1) && group.contains(&3)), "{groups:?}");
}

/// P6: when the answer to a watch is there the store is listening: what frees the name afterwards is notified.
pub async fn a_subscriber_is_notified_of_what_happens_afterwards(world: &World) {
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let (holder, next) = (world.stranger(), world.stranger());
        for forced in [false, true] {
            world.grant(world.ask(&name, claim, holder)).await;
            let waits = rival(claim);
            if claim == Claim::Fair {
                assert!(matches!(world.take(world.ask(&name, waits, next)).await, Attempt::Busy(_)));
            }
            let subscription = world.listen(&name, claim.kind(), (claim == Claim::Fair).then_some(next)).await;
            if forced {
                assert_eq!(world.force(&name).await.from.len(), 1);
            } else {
                assert!(world.give_back(&name, claim, holder).await);
            }
            assert!(world.is_notified(&subscription).await, "{claim:?}, forced: {forced}");
            world.give_back(&name, waits, next).await;
        }
    }
}

/// P6: a change of a number notifies its waiters.
pub async fn a_subscriber_is_notified_when_a_number_changes(world: &World) {
    let can = world.capabilities();
    if can.counting_semaphore {
        for op in [CounterOp::Give(1), CounterOp::Add(1)] {
            let subscription = world.listen("c", Kind::CountingSemaphore, None).await;
            world.count(&world.tell("c", CountOp::Counter(op))).await;
            assert!(world.is_notified(&subscription).await, "{op:?}");
        }
    }
    if can.latch {
        for op in [LatchOp::Down, LatchOp::Remove] {
            world.count(&world.tell("l", CountOp::Latch(LatchOp::Init(1)))).await;
            let subscription = world.listen("l", Kind::Latch, None).await;
            world.count(&world.tell("l", CountOp::Latch(op))).await;
            assert!(world.is_notified(&subscription).await, "{op:?}");
        }
    }
}

/// Busy tells when something may change by itself: not later than the holder's lease ends.
pub async fn busy_tells_when_to_ask_again(world: &World) {
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let holder = world.stranger();
        world.grant(world.ask(&name, rival(claim), holder)).await;
        let request = Acquire { place: None, ..world.ask(&name, claim, world.stranger()) };
        let Attempt::Busy(Busy { retry_in, .. }) = world.take(request).await else { panic!("{claim:?} is held") };
        assert!(retry_in.is_none_or(|end| end <= world.units(10)), "{claim:?}: ask again in {retry_in:?}");
        assert_eq!(world.queued(&name).await, 0, "without a place it does not wait");
        assert!(world.give_back(&name, rival(claim), holder).await);
    }
}
