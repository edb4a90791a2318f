//! The numbers of the promises, and what a setting adds to them.

/// How much a history may take, in nanoseconds. The defaults are those of `docs/guarantees.md` on a network without delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest round trip between a client and the store.
    pub round_trip: u64,
    /// What the recording itself may be late by.
    pub slack: u64,
    /// How long a message may be under way and still be carried out.
    pub longest_delay: u64,
    /// P6: how long a free name may stay free while somebody waits. Two round trips are added.
    pub free_while_waited_for: u64,
    /// How long a waiter that died may stand before others in a fair queue.
    pub dead_waiter: u64,
    /// P4: a shorter lease is not asked about, so that its loss is told at its deadline: explicit leases, where there are no kept ones.
    pub asked_from: u64,
    /// How soon a hold that was released is passed on inside the process, or released at the store. Two round trips are added.
    pub picked_up: u64,
    /// After a pause: how soon a loss is told.
    pub told_after_pause: u64,
    /// How far a token may be ahead of the store's wall clock, in microseconds.
    pub token_ahead: u64,
    /// How far clocks run apart, in parts per million of the time that passed. It loosens P3 by that part of the lease.
    pub clock_error: u64,
    /// Whether the network doubles messages: a copy of an acquire may then arrive after the release, and is gone with its lease.
    pub copies: bool,
    /// Holds live in the sessions of clients: they end when the store says so, and that is at most so long after it last heard of the client.
    pub session: Option<u64>,
}

const SECOND: u64 = 1_000_000_000;

impl Default for Limits {
    fn default() -> Self {
        Self {
            round_trip: 0,
            slack: 1_000_000,
            longest_delay: 0,
            free_while_waited_for: SECOND,
            dead_waiter: 5 * SECOND,
            asked_from: 0,
            picked_up: SECOND / 5,
            told_after_pause: SECOND,
            token_ahead: 1_000_000,
            clock_error: 0,
            copies: false,
            session: None,
        }
    }
}

impl Limits {
    /// For processes of one machine that is busy: what is due may be recorded a second late.
    #[must_use]
    pub fn on_a_real_machine() -> Self {
        Self { slack: SECOND, ..Self::default() }
    }

    /// P3: until when a hold may look valid that was asked for at `sent`.
    pub(super) const fn valid_until(&self, sent: u64, lease: u64) -> u64 {
        let drift = lease / 100 + 2_000_000;
        sent.saturating_add(lease.saturating_sub(drift)).saturating_add(self.fast_by(lease))
    }

    /// How much earlier than it says a lease may end, by a clock that is fast.
    pub(super) const fn fast_by(&self, lease: u64) -> u64 {
        (lease as u128 * self.clock_error as u128 / 1_000_000) as u64
    }

    /// Until when the store keeps a hold that it grants or renews at `at`, and how long that is without a word from its client.
    pub(super) fn kept_until(&self, at: u64, lease: u64) -> (u64, u64) {
        self.session.map_or((at.saturating_add(lease), lease), |lasts| (u64::MAX, lasts))
    }

    /// P4: how long after the store ended a hold its client is told, if it reaches the store.
    pub(super) const fn told_within(&self, lease: u64) -> u64 {
        if lease < self.asked_from { lease } else { lease / 3 + self.round_trip + self.slack }
    }
}
