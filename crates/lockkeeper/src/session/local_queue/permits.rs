//! Permits are asked for side by side: several may be free. While nobody of this process waits, every newcomer asks; after that, each release
//! of this process lets as many waiters ask as it frees, in the order of the queue. Their requests follow the release on the same
//! connection, so a permit changes hands in one round trip.
//!
//! Other processes must not starve by it: there are as many such releases in a row as there are hand-overs of a mutex.
//!
//! This only saves time. A waiter that asks in vain, or is cancelled before it asks, changes nothing for the others: the store notifies the first
//! waiter of every release.

use super::LocalQueue;
use crate::backend::Claim;
use crate::runtime::Instant;
use crate::session::lock;

impl LocalQueue {
    /// Whether the store has agreed to the size in this claim. Then a call that waits here uses the size that is there when it asks: somebody may
    /// have changed it meanwhile.
    pub(crate) fn has_agreed(&self, claim: Claim) -> bool {
        matches!(claim, Claim::Permits { of, .. } if lock(&self.state).agreed_size == Some(of))
    }

    /// A release of this claim has been sent: as many waiters may ask at once, if others have had their chance. `push`: the store notifies.
    pub(in crate::session) fn frees(&self, claim: Claim, push: bool, now: Instant) {
        let Claim::Permits { take, .. } = claim else { return };
        let mut state = lock(&self.state);
        let waiters = state.waiters.len();
        if waiters == 0 || state.closed || !state.sharing.may_free(waiters, push, now) {
            return;
        }
        let mut left = take;
        for waiter in state.waiters.iter() {
            if left == 0 {
                break;
            }
            let mut slot = lock(&waiter.slot);
            if slot.passed_over || slot.asking || slot.may_ask {
                continue;
            }
            slot.may_ask = true;
            drop(slot);
            waiter.wake.notify_one();
            left -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::tests::session_with;
    use super::super::turn::Turn;
    use super::*;
    use crate::backend::{Acquire, Subscription};
    use crate::name::Name;
    use crate::owner::{ClientId, WireOwner};
    use crate::runtime::Instant;
    use crate::session::stand::Stand;

    const NOW: Instant = Instant::from_nanos(3_600_000_000_000);
    const LIMIT: Duration = Duration::from_secs(3);

    fn permits(take: u32) -> Claim {
        Claim::Permits { take, of: 8 }
    }

    fn request(number: u64) -> Acquire {
        let owner = WireOwner { client: ClientId::from_bits(1), number };
        Acquire::new(Name::new("s").unwrap(), permits(1), owner, Duration::from_secs(30)).with_times(NOW, Instant::NEVER)
    }

    #[tokio::test(start_paused = true)]
    async fn newcomers_ask_side_by_side_while_nobody_waits() {
        let (session, queue) = (session_with(|can| can), Arc::new(LocalQueue::default()));
        assert!(queue.ask_alone(&request(1), NOW, LIMIT) && queue.ask_alone(&request(2), NOW, LIMIT));
        let _waiter = queue.join(session.core(), &request(3).name);
        assert!(!queue.ask_alone(&request(4), NOW, LIMIT), "it would overtake the waiter");
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_lets_as_many_waiters_ask_as_it_frees() {
        let (session, queue) = (session_with(|can| can), Arc::new(LocalQueue::default()));
        let requests: Vec<_> = (1..=4).map(request).collect();
        let turns: Vec<_> = requests.iter().map(|request| queue.join(session.core(), &request.name)).collect();
        let stands = || -> Vec<_> { turns.iter().zip(&requests).map(|(turn, request)| turn.stand(request, true, NOW)).collect() };
        assert_eq!(stands(), [Stand::Ask, Stand::Wait, Stand::Wait, Stand::Wait]);
        turns[0].asks(&requests[0], NOW.plus(LIMIT));
        queue.frees(permits(2), true, NOW);
        for at in 1..3 {
            assert_eq!(turns[at].stand(&requests[at], true, NOW), Stand::Ask, "waiter {at}: the first one asks already");
            turns[at].asks(&requests[at], NOW.plus(LIMIT));
        }
        assert_eq!(turns[3].stand(&requests[3], true, NOW), Stand::Wait);
        assert_eq!(turns[1].stand(&requests[1], true, NOW), Stand::Wait, "told once");
    }

    /// The waiters that a release of one permit lets ask: 1 or none.
    fn told(queue: &LocalQueue, turn: &Turn, now: Instant) -> bool {
        queue.frees(permits(1), true, now);
        lock(&turn.waiter.slot).may_ask
    }

    #[tokio::test(start_paused = true)]
    async fn other_processes_have_their_chance_after_few_such_releases() {
        for contested in [false, true] {
            let (session, queue) = (session_with(|can| can), Arc::new(LocalQueue::default()));
            let (core, ours) = (session.core(), request(1));
            let turn = queue.join(core, &ours.name);
            queue.frees(Claim::Mutex, true, NOW);
            assert!(!lock(&turn.waiter.slot).may_ask, "only permits are freed");
            turn.set_subscription(Arc::new(Subscription::silent()));
            let listeners = if contested { 2 } else { 1 };
            assert_eq!(queue.woke(listeners, queue.heard(), NOW, core, &ours.name), contested);
            let mut row = 0;
            while told(&queue, &turn, NOW.plus(Duration::from_millis(2 * row))) {
                assert!(row < 20, "others never have their chance");
                assert_eq!(turn.stand(&ours, true, NOW), Stand::Ask);
                row += 1;
            }
            assert!(if contested { row == 1 } else { row > 1 }, "contested: {contested}, {row} in a row");
        }
    }
}
