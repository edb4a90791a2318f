//! A hold at the store that passes from guard to guard of this process without a request: when it may, and with which token. Pure.
//!
//! The store granted it once, with a range of tokens. Each guard that it passes to has a token of its own, larger than those before. A hold passes
//! on a few times only, and only shortly after the store was last asked: what happens at the store meanwhile (a forced release, a flush) is not
//! seen here. The owner of the value may use the hold; there is one value for each hold, and it moves.

use std::time::Duration;

use crate::backend::{Grant, drift};
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// So often a hold passes on before the store is asked again.
pub(crate) const MOST_PASSES: u32 = 16;

/// A hold passes on only while less than this has passed since the last request for it was sent that the store answered.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(10);

/// A waiter that was given a hold uses it within this time, or not at all.
pub(crate) const PICKED_UP_WITHIN: Duration = Duration::from_millis(50);

/// A hold at the store, as it passes on inside this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireHold {
    /// Under which owner the store has it.
    pub(crate) owner: WireOwner,
    /// The token of its holder, and how many numbers after it are reserved.
    pub(crate) token: Option<u64>,
    pub(crate) spare_tokens: u32,
    /// How often it has passed on since the store granted it.
    pub(crate) passes: u32,
    /// When the granting request was sent, and how long the hold is safe from then.
    pub(crate) confirmed: Instant,
    pub(crate) good_for: Duration,
}

impl WireHold {
    /// What the store granted to this owner, by a request sent at `sent`.
    pub(crate) fn granted(owner: WireOwner, grant: Grant, sent: Instant) -> Self {
        let Grant { token, spare_tokens, good_for, .. } = grant;
        Self { owner, token, spare_tokens, passes: 0, confirmed: sent, good_for }
    }

    /// The hold as the next holder of this process has it; `None` if the store has to be asked.
    pub(crate) fn next(self, now: Instant) -> Option<Self> {
        let fresh = now.since(self.confirmed) < CONFIRMED_WITHIN && self.is_good(now);
        let token = self.token?.checked_add(1)?;
        let spare_tokens = self.spare_tokens.checked_sub(1)?;
        (fresh && self.passes < MOST_PASSES).then_some(Self { token: Some(token), spare_tokens, passes: self.passes + 1, ..self })
    }

    /// Whether a waiter to which it passed at `passed` may use it now.
    pub(crate) fn may_be_picked_up(&self, passed: Instant, now: Instant) -> bool {
        now.since(passed) < PICKED_UP_WITHIN && self.is_good(now)
    }

    fn is_good(&self, now: Instant) -> bool {
        now.since(self.confirmed) + drift(self.good_for) < self.good_for
    }

    /// What its holder was granted.
    pub(crate) fn grant(&self) -> Grant {
        Grant::new(self.token, self.good_for).with_spare_tokens(self.spare_tokens)
    }
}

/// The owner of a hold that was handed over under another owner than the waiter's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) owner: WireOwner,
    /// How often it has passed on since the store granted it.
    pub(crate) passes: u32,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::owner::ClientId;

    const NOW: Instant = Instant::from_nanos(3_600_000_000_000);

    fn granted(spare_tokens: u32) -> WireHold {
        let owner = WireOwner { client: ClientId::from_bits(1), number: 7 };
        let good_for = Duration::from_secs(30);
        WireHold { owner, token: Some(100), spare_tokens, passes: 0, confirmed: NOW, good_for }
    }

    #[test]
    fn a_hold_passes_on_sixteen_times_within_ten_milliseconds_and_its_tokens() {
        let count = |spare: u32, pause: Duration| {
            let (mut hold, mut now, mut count) = (granted(spare), NOW, 0);
            while let Some(next) = hold.next(now) {
                assert!(next.token > hold.token && next.owner == hold.owner);
                (hold, now, count) = (next, now.plus(pause), count + 1);
            }
            count
        };
        assert_eq!(count(63, Duration::from_micros(1)), MOST_PASSES);
        assert_eq!(count(3, Duration::from_micros(1)), 3, "no more than there are tokens");
        assert_eq!(count(63, Duration::from_millis(1)), 10);
        assert_eq!(count(63, Duration::from_millis(4)), 3);
        assert_eq!(granted(63).next(NOW.plus(CONFIRMED_WITHIN)), None, "a long hold, a pause, a suspend");
        assert_eq!(WireHold { token: None, ..granted(63) }.next(NOW), None, "without tokens a paused holder is never refused");
        assert_eq!(WireHold { good_for: Duration::from_millis(2), ..granted(63) }.next(NOW), None, "its lease is over");
    }

    #[test]
    fn a_waiter_uses_what_it_was_given_soon_or_not_at_all() {
        let hold = granted(63);
        assert!(hold.may_be_picked_up(NOW, NOW.plus(Duration::from_millis(49))));
        assert!(!hold.may_be_picked_up(NOW, NOW.plus(PICKED_UP_WITHIN)));
        let short = WireHold { good_for: Duration::from_millis(20), ..hold };
        assert!(!short.may_be_picked_up(NOW, NOW.plus(Duration::from_millis(18))), "its lease is over");
    }

    proptest! {
        /// P2: whatever the pauses, no number is used twice, none beyond the range, and none after the time is over.
        #[test]
        fn tokens_grow_and_stay_in_the_range(spare in 0_u32..64, pauses in proptest::collection::vec(0_u64..3_000, 0..40)) {
            let (mut hold, mut now) = (granted(spare), NOW);
            let last = hold.grant().last_token();
            for micros in pauses {
                now = now.plus(Duration::from_micros(micros));
                let Some(next) = hold.next(now) else { break };
                prop_assert!(next.token > hold.token && next.token <= last && next.grant().last_token() == last);
                prop_assert!(now.since(next.confirmed) < CONFIRMED_WITHIN && next.passes <= MOST_PASSES);
                hold = next;
            }
        }
    }
}
