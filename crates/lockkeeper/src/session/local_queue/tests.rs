//! No waiter depends on another caller's future being polled.

use super::*;
use crate::backend::{
    AttemptAll, Backend, ClientCard, Count, CountOutcome, Forced, Grant, Listing, Notifier, Page, Released, Renew, Renewed,
    Reply, Snapshot, Watch,
};
use crate::error::Result;
use crate::owner::ClientId;
use crate::runtime::Runtime;
use crate::session::stand::Stand;
use crate::session::{Grounds, Held, Hold, Left, Session, Settings, WireHold};

const LIMIT: Duration = Duration::from_secs(3);

fn request(number: u64) -> Acquire {
    Acquire::new(
        Name::new("m").unwrap(),
        Claim::Mutex,
        WireOwner { client: ClientId::from_bits(1), number },
        Duration::from_secs(30),
    )
    .with_times(Instant::default(), Instant::NEVER)
}

/// A store that never answers.
#[derive(Debug)]
struct Silent(Capabilities);

fn never<T: Send + 'static>() -> Reply<'static, T> {
    Box::pin(std::future::pending())
}

impl Backend for Silent {
    fn capabilities(&self) -> Capabilities {
        self.0
    }
    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        self
    }
    fn identity(&self) -> Reply<'_, String> {
        never()
    }
    fn acquire(&self, _: Acquire) -> Reply<'_, Attempt> {
        never()
    }
    fn acquire_all(&self, _: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        never()
    }
    fn release(&self, _: Release) -> Reply<'_, Released> {
        never()
    }
    fn renew(&self, _: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        never()
    }
    fn count(&self, _: Count) -> Reply<'_, CountOutcome> {
        never()
    }
    fn watch(&self, _: Watch) -> Reply<'_, Subscription> {
        never()
    }
    fn inspect(&self, _: Name) -> Reply<'_, Option<Snapshot>> {
        never()
    }
    fn list(&self, _: Listing) -> Reply<'_, Page> {
        never()
    }
    fn force_release(&self, _: Name) -> Reply<'_, Forced> {
        never()
    }
    fn announce(&self, _: ClientCard, _: Duration) -> Reply<'_, ()> {
        never()
    }
}

fn session() -> Session {
    session_with(|capabilities| capabilities)
}

/// A session at a store that never answers, and can do a little more.
pub(super) fn session_with(more: impl Fn(Capabilities) -> Capabilities) -> Session {
    let simple = Capabilities::new("silent").with_kinds(&[crate::backend::Kind::Mutex]).with_hand_over().with_push(true);
    Session::new(Arc::new(Silent(more(simple))), Settings::default(), Runtime::simulated()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_whose_call_is_left_is_revoked_and_the_next_may_ask() {
    let session = session();
    let (queue, core) = (Arc::new(LocalQueue::default()), session.core());
    let (now, left, next) = (core.runtime.now(), request(1), request(2));
    assert!(queue.ask_alone(&left, now, LIMIT));
    let turn = queue.join(core, &next.name);
    assert_eq!(turn.stand(&next, true, now), Stand::Wait);
    let later = now.plus(LIMIT + LocalQueue::MARGIN);
    assert_eq!(queue.check(now.plus(LIMIT)).orphans, []);
    assert_eq!(queue.check(later).orphans, [Orphan { owner: left.owner, claim: Claim::Mutex }]);
    assert_eq!(turn.stand(&next, true, later), Stand::Ask);
    // Its answer comes after all, and does not count.
    let granted = Attempt::Granted(Grant::new(None, Duration::from_secs(30)));
    assert!(!queue.answered(&left, Some(&granted), later));
}

#[tokio::test(start_paused = true)]
async fn a_first_waiter_that_does_not_run_is_passed_over() {
    let session = session();
    let (queue, core) = (Arc::new(LocalQueue::default()), session.core());
    let (now, first, second) = (core.runtime.now(), request(1), request(2));
    queue.taken((request(9).owner, None), false, now);
    let (stalled, next) = (queue.join(core, &first.name), queue.join(core, &first.name));
    assert_eq!((stalled.stand(&first, true, now), next.stand(&second, true, now)), (Stand::Behind, Stand::Wait));
    queue.left(request(9).owner, now);
    let later = now.plus(RUNS_WITHIN);
    queue.check(later);
    assert_eq!(next.stand(&second, true, later), Stand::Ask);
    // It runs again, and is first as before.
    assert_eq!(stalled.stand(&first, true, later), Stand::Ask);
    assert_eq!(next.stand(&second, true, later), Stand::Wait);
}

/// All waiters of an executor that stands still are passed over together, not one after the other.
#[tokio::test(start_paused = true)]
async fn many_waiters_that_do_not_run_are_passed_over_together() {
    let session = session();
    let (queue, core) = (Arc::new(LocalQueue::default()), session.core());
    let (now, name) = (core.runtime.now(), request(0).name);
    queue.taken((request(1_000).owner, None), false, now);
    let stalled: Vec<_> = (1..=50).map(|number| (queue.join(core, &name), request(number))).collect();
    for (turn, request) in &stalled {
        turn.stand(request, true, now);
    }
    let (turn, running) = (queue.join(core, &name), request(51));
    assert_eq!(turn.stand(&running, true, now), Stand::Wait);
    queue.left(request(1_000).owner, now);
    let mut looks = 0;
    let stand = loop {
        looks += 1;
        let at = now.plus(RUNS_WITHIN * looks);
        queue.check(at);
        // It runs as soon as it is woken.
        tokio::select! {
            biased;
            () = turn.changed() => {}
            () = std::future::ready(()) => {}
        }
        let stand = turn.stand(&running, true, at);
        if stand != Stand::Wait || looks > 100 {
            break stand;
        }
    };
    assert_eq!(stand, Stand::Ask);
    assert!(looks <= 3, "after {looks} looks");
    // One that runs again is first as before.
    let at = now.plus(RUNS_WITHIN * (looks + 1));
    assert_eq!(stalled[7].0.stand(&stalled[7].1, true, at), Stand::Ask);
    assert_eq!(turn.stand(&running, true, at), Stand::Wait);
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_whose_release_is_left_is_revoked() {
    let session = session();
    let (queue, core) = (Arc::new(LocalQueue::default()), session.core());
    let (now, holder, wait) = (core.runtime.now(), request(1), request(2));
    queue.taken((holder.owner, None), false, now);
    let turn = queue.join(core, &wait.name);
    assert_eq!(turn.stand(&wait, true, now), Stand::Behind);
    let Acquire { name, claim, owner, .. } = holder;
    let holder_owner = owner;
    let release = Release::new(name, claim, owner);
    let handing = queue.hand_over(&release, core).unwrap();
    assert_eq!(turn.stand(&wait, true, now), Stand::Wait);
    let later = now.plus(LIMIT + LocalQueue::MARGIN);
    let orphans = [wait.owner, holder_owner].map(|owner| Orphan { owner, claim: Claim::Mutex });
    assert_eq!(queue.check(later).orphans, orphans);
    assert_eq!(turn.stand(&wait, true, later), Stand::Revoked);
    assert_eq!(turn.stand(&request(3), true, later), Stand::Ask);
    // Granted after all: nobody waits for that owner id.
    let granted = Attempt::Granted(Grant::new(None, Duration::from_secs(30)));
    assert_eq!(
        handing.deliver(Delivered::Answered(Some(granted)), later),
        Some(Unclaimed::Unused((wait.owner, Left::default())))
    );
}

fn granted() -> Attempt {
    Attempt::Granted(Grant::new(None, Duration::from_secs(30)))
}

fn release(of: &Acquire) -> Release {
    Release::new(of.name.clone(), of.claim, of.owner)
}

/// The same hold was granted twice, and the answer to the waiter's own request came first: it is in use, so the other answer ends nothing. Unless the
/// holder that handed it over has a newer token: then the store had forgotten the first grant.
#[tokio::test(start_paused = true)]
async fn a_hand_over_to_a_waiter_that_got_it_by_itself_releases_nothing() {
    let granted = |token| Attempt::Granted(Grant::new(Some(token), Duration::from_secs(30)));
    for (before, own) in [(7, 9), (7, 5)] {
        let session = session();
        let (queue, core) = (Arc::new(LocalQueue::default()), session.core());
        let (now, holder, wait) = (core.runtime.now(), request(1), request(2));
        queue.taken((holder.owner, Some(before)), false, now);
        let turn = queue.join(core, &wait.name);
        assert_eq!(turn.stand(&wait, true, now), Stand::Behind);
        turn.asks(&wait, now.plus(LIMIT));
        let handing = queue.hand_over(&release(&holder), core).unwrap();
        assert!(queue.answered(&wait, Some(&granted(own)), now));
        assert!(matches!(turn.close(), Closing::OnItsWay(_)));
        // Whatever token the store tells now: one that grants again to the same owner may give it a new one.
        let stale = (own < before).then_some(Unclaimed::Stale(wait.owner));
        assert_eq!(handing.deliver(Delivered::Answered(Some(granted(11))), now), stale);
    }
}

/// The answer to a hand-over that was revoked is not that to the next one.
#[tokio::test(start_paused = true)]
async fn a_late_answer_is_not_taken_for_that_of_another_hand_over() {
    let session = session();
    let (queue, core) = (Arc::new(LocalQueue::default()), session.core());
    let (now, holder, wait, again) = (core.runtime.now(), request(1), request(2), request(3));
    queue.taken((holder.owner, None), false, now);
    let turn = queue.join(core, &wait.name);
    turn.stand(&wait, true, now);
    let late = queue.hand_over(&release(&holder), core).unwrap();
    let later = now.plus(LIMIT + LocalQueue::MARGIN);
    queue.check(later);
    assert_eq!(turn.stand(&wait, true, later), Stand::Revoked);
    assert_eq!(turn.stand(&again, true, later), Stand::Ask);
    let other = request(8);
    queue.taken((other.owner, None), false, later);
    let next = queue.hand_over(&release(&other), core).unwrap();
    assert_eq!(late.deliver(Delivered::Answered(Some(granted())), later), Some(Unclaimed::Unused((wait.owner, Left::default()))));
    assert_eq!(turn.stand(&again, true, later), Stand::Wait);
    assert_eq!(next.deliver(Delivered::Answered(Some(granted())), later), None);
    assert_eq!(turn.stand(&again, true, later).granted_to(again.owner), Some(again.owner));
}

/// A session at a store where holds pass from guard to guard.
fn session_that_passes_holds() -> Session {
    session_with(|can| can.with_hand_over_if_alone().with_token_ranges().with_fencing().with_refuses_late())
}

/// The request of a waiter is out when a guard keeps the name for it under another owner. Then the waiter does not run any more.
#[tokio::test(start_paused = true)]
async fn what_was_kept_for_a_waiter_is_released_when_its_own_request_is_revoked() {
    let session = session_that_passes_holds();
    let (queue, core) = (Arc::new(LocalQueue::default()), session.core());
    let (now, holder, wait) = (core.runtime.now(), request(1), request(2));
    queue.taken((holder.owner, None), false, now);
    let turn = queue.join(core, &wait.name);
    assert_eq!(turn.stand(&wait, true, now), Stand::Behind);
    turn.asks(&wait, now.plus(LIMIT));
    let handing = queue.hand_over(&release(&holder), core).unwrap();
    let kept = handing.request().owner;
    assert!(handing.keeps() && kept != wait.owner);
    assert_eq!(handing.deliver(Delivered::Answered(Some(granted())), now.plus(LIMIT)), None);
    let orphans = [kept, wait.owner].map(|owner| Orphan { owner, claim: Claim::Mutex });
    assert_eq!(queue.check(now.plus(LIMIT + LocalQueue::MARGIN)).orphans, orphans);
}

/// A waiter that was passed over runs again, and stands before the one that was given the hold and does not run.
#[tokio::test(start_paused = true)]
async fn a_hold_is_taken_back_also_from_a_waiter_that_is_not_first() {
    let session = session_that_passes_holds();
    let (queue, core) = (Arc::new(LocalQueue::default()), session.core());
    let (now, first, second, holder) = (core.runtime.now(), request(1), request(2), request(9).owner);
    queue.taken((holder, None), false, now);
    let (slow, next) = (queue.join(core, &first.name), queue.join(core, &first.name));
    assert_eq!((slow.stand(&first, true, now), next.stand(&second, true, now)), (Stand::Behind, Stand::Wait));
    let later = now.plus(SHOWS_UP_WITHIN);
    queue.check(later);
    let grant = Grant::new(Some(5), Duration::from_secs(30)).with_spare_tokens(16);
    assert!(queue.pass(&WireHold::granted(holder, grant, later), later), "to the second waiter");
    assert_eq!(slow.stand(&first, true, later), Stand::Behind);
    assert_eq!(queue.check(later.plus(Duration::from_millis(49))).orphans, []);
    assert_eq!(queue.check(later.plus(Duration::from_millis(50))).orphans, [Orphan { owner: holder, claim: Claim::Mutex }]);
    assert!(matches!(next.stand(&second, true, later), Stand::Wait), "it was taken back");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_outlives_the_waiters_only_while_others_contend() {
    let session = session();
    let (queue, core) = (Arc::new(LocalQueue::default()), session.core());
    let (now, ours) = (core.runtime.now(), request(1));
    let waits = |queue: &Arc<LocalQueue>| {
        let turn = queue.join(core, &ours.name);
        turn.set_subscription(Arc::new(Subscription::silent()));
        queue.taken((ours.owner, None), false, now);
    };
    waits(&queue);
    assert_eq!(queue.heard(), None, "nobody else is known");
    waits(&queue);
    assert!(queue.woke(1, queue.heard(), now, core, &ours.name), "nobody of this process listens, so it was another");
    waits(&queue);
    assert_eq!(queue.heard(), Some(0), "kept while it is held");
    assert!(queue.woke(2, queue.heard(), now, core, &ours.name));
    queue.left(ours.owner, now);
    assert!(queue.is_backing_off(now) && queue.heard() == Some(0), "kept until the back-off ends");
    assert_eq!(queue.check(now.plus(Duration::from_secs(1))).again, None);
    assert_eq!(queue.heard(), None);
}

/// A notification is about the hold of this process if it came after the request that got it.
#[tokio::test(start_paused = true)]
async fn a_holder_is_doubtful_once_for_notifications_that_came_after_its_request() {
    let (queue, now) = (Arc::new(LocalQueue::default()), Instant::from_nanos(3_600_000_000_000));
    let session = session_with(|can| can);
    let (ours, notifier) = (request(1), Notifier::default());
    assert!(queue.ask_alone(&ours, now, LIMIT));
    queue.taken((ours.owner, None), false, now);
    notifier.notify();
    assert_eq!(queue.check(now).doubtful, None, "nobody listens");
    let turn = queue.join(session.core(), &ours.name);
    turn.set_subscription(Arc::new(Subscription::new(&notifier, ())));
    assert_eq!(queue.check(now).doubtful, Some(ours.owner), "a notification may have been missed");
    assert_eq!(queue.check(now).doubtful, None, "told once");
    notifier.notify();
    assert_eq!(queue.check(now).doubtful, Some(ours.owner));
    queue.left(ours.owner, now);
    notifier.notify();
    assert_eq!(queue.check(now).doubtful, None, "nobody here holds it");
    let next = request(2);
    turn.asks(&next, now.plus(LIMIT));
    queue.taken((next.owner, None), false, now);
    assert_eq!(queue.check(now).doubtful, None, "notified before it asked");
    notifier.notify();
    drop(turn);
    assert_eq!(queue.check(now).doubtful, None, "nobody waits");
}

/// A process that only waits for others is not woken for it; whatever may go wrong later has the queue checked again.
#[tokio::test(start_paused = true)]
async fn a_queue_with_one_waiter_is_checked_when_something_happens() {
    let (queue, now) = (Arc::new(LocalQueue::default()), Instant::from_nanos(3_600_000_000_000));
    let (session, wait, other) = (session_with(|can| can), request(1), request(9));
    let turn = queue.join(session.core(), &wait.name);
    assert_eq!(turn.stand(&wait, true, now), Stand::Ask);
    assert_eq!(queue.check(now).again, None);
    assert!(turn.asks(&wait, now.plus(LIMIT)), "its request may be left");
    assert!(queue.check(now).again.is_some());
    queue.answered(&wait, None, now);
    assert_eq!(queue.check(now).again, None);
    assert!(queue.taken((other.owner, None), false, now), "its hold may pass to the waiter, which may not run");
    assert!(queue.check(now).again.is_some());
    queue.left(other.owner, now);
    assert_eq!(queue.check(now).again, None);
    let second = queue.join(session.core(), &wait.name);
    assert!(queue.check(now).again.is_some(), "the first may not run");
    drop(second);
    assert_eq!(queue.check(now).again, None);
}

fn held(session: &Session, number: u64) -> Held {
    let (sent, lease) = (session.core().runtime.now(), Duration::from_secs(30));
    let Acquire { name, claim, owner, .. } = request(number);
    let grounds = Grounds {
        name,
        claim,
        owner,
        id: number,
        token: Some(number),
        spare_tokens: 0,
        passes: 0,
        lease,
        good_for: lease,
        session: 0,
        kept: true,
        sent,
        unsettled_until: Instant::default(),
        queue: None,
        handed_over: false,
        until: Instant::NEVER,
        place: None,
    };
    Hold::new(session, grounds).enter()
}

#[tokio::test(start_paused = true)]
async fn a_stale_hold_is_lost_and_no_other() {
    let session = session();
    let (stale, other) = (held(&session, 1), held(&session, 2));
    session.core().lose_stale(stale.owner());
    assert!(!stale.is_valid() && other.is_valid());
}
