//! How a process shares a name with others: how often it may hand over to itself, and how long it gives way afterwards. Pure.

use std::time::Duration;

use crate::runtime::Instant;

/// Hand-overs in a row before a true release, and for how long, while no waiter of another process is known. With few local waiters there are
/// fewer, so that nobody waits for more than a few times what its share would take.
const IN_A_ROW: u32 = 16;
const PER_WAITER: u32 = 4;
const ROW_LASTS: Duration = Duration::from_secs(3);

/// The same beside waiters of other processes: two holds for each turn of theirs, or more if they are very short. A JVM that releases asks
/// again before others hear of it, and so has many turns in a row: there is one hand-over for each of them, in one row or several,
/// but no more in a row than there are local waiters.
const IN_A_ROW_CONTESTED: u32 = 1;
const MOST_OWED: u32 = 64;
const SHORT_ROW: Duration = Duration::from_millis(1);

/// Without notifications other processes find out by polling. So the name is handed over for this long, and is then free for as long as a
/// poll takes to come.
const ROW_WITHOUT_PUSH: Duration = Duration::from_secs(1);
const FREE_WITHOUT_PUSH: Duration = Duration::from_millis(200);

/// Where the store tells whether others wait, a process keeps the name as long as nobody does. After this time it does so no more often than it
/// hands over elsewhere: some that wait may not be seen, such as clients that poll or listen at a replica.
const KEPT_FOR: Duration = Duration::from_millis(100);

/// How long woken waiters of other processes go first: a JVM takes up to 5 ms to react. Longer where the store is slow, by so many times what
/// the release took.
const BACK_OFF: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(100);
const ROUND_TRIPS: u32 = 4;

/// A listener that does not react (a stopped process) must not slow this process down for ever: after so many back-offs in which
/// nobody came they become shorter, except for one in so many.
const UNUSED: u32 = 4;
const FULL_AGAIN: u32 = 16;
const SHORTEST: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// Hand-overs since the store was last asked for the name.
    in_a_row: u32,
    /// When the request was sent that began the row.
    row_began: Instant,
    back_off: Option<BackOff>,
    /// Back-offs in a row during which no other holder was seen.
    unused: u32,
    /// The last true release woke listeners of other processes.
    contested: bool,
    /// With more notifications than these, others have released the name since our last true release.
    own_until: u64,
    /// How many turns others had for which there was no hand-over here yet.
    owed: u32,
    /// How long a notification takes at most where the store polls for its waiters.
    notifies_within: Duration,
}

#[derive(Clone, Copy, Debug)]
struct BackOff {
    until: Instant,
    /// With so many notifications another process has released the name since: its turn is over, and so is the back-off.
    seen_with: u64,
}

impl BackOff {
    fn saw_another(&self, heard: Option<u64>) -> bool {
        heard.is_some_and(|heard| heard >= self.seen_with)
    }
}

/// How many hand-overs there may be in a row while no waiter of another process is known.
fn uncontested_row(waiters: usize) -> u32 {
    u32::try_from(waiters).unwrap_or(u32::MAX).saturating_mul(PER_WAITER).min(IN_A_ROW)
}

impl Sharing {
    /// A notification may take that long.
    pub(super) fn notified_within(&mut self, longest: Duration) {
        self.notifies_within = longest;
    }

    pub(super) const fn is_contested(&self) -> bool {
        self.contested
    }

    /// The store granted the name to an owner of this process, by a request of its own sent at `sent`; our subscription has had `heard`
    /// notifications.
    pub(super) fn row_begins(&mut self, sent: Instant, heard: Option<u64>) {
        (self.in_a_row, self.row_began) = (0, sent);
        let turns = heard.map_or(0, |heard| heard.saturating_sub(self.own_until).min(u64::from(MOST_OWED)));
        self.owed = (self.owed + turns as u32).min(MOST_OWED);
    }

    /// Whether a release may ask the store to keep the name here if nobody else waits.
    pub(super) fn may_keep(&mut self, waiters: usize, now: Instant) -> bool {
        let row = now.since(self.row_began);
        let may = row < KEPT_FOR || self.in_a_row < uncontested_row(waiters) && row < ROW_LASTS;
        self.in_a_row = if may { self.in_a_row + 1 } else { 0 };
        may
    }

    /// Whether a hold may pass to one of so many local waiters without a request, although others want the name; if so it is counted.
    pub(super) fn may_pass(&mut self, waiters: usize, now: Instant) -> bool {
        let may = self.in_a_row < self.contested_row(waiters, now);
        if may {
            self.in_a_row += 1;
            self.owed = self.owed.saturating_sub(1);
        }
        may
    }

    /// How many hand-overs there may be in a row beside waiters of other processes.
    fn contested_row(&self, waiters: usize, now: Instant) -> u32 {
        let waiters = u32::try_from(waiters).unwrap_or(u32::MAX);
        let short = now.since(self.row_began) < SHORT_ROW;
        let owed = if short { IN_A_ROW } else { (self.in_a_row + self.owed).min(waiters) };
        owed.clamp(IN_A_ROW_CONTESTED, IN_A_ROW)
    }

    /// Whether a release may hand the name over to one of so many local waiters; if so it is counted.
    pub(super) fn may_hand_over(&mut self, waiters: usize, push: bool, now: Instant) -> bool {
        let row = now.since(self.row_began);
        let may = if !push {
            row < ROW_WITHOUT_PUSH
        } else if self.contested {
            self.in_a_row < self.contested_row(waiters, now)
        } else {
            self.in_a_row < uncontested_row(waiters) && row < ROW_LASTS
        };
        if may {
            self.in_a_row += 1;
            self.owed = self.owed.saturating_sub(1);
        } else {
            self.in_a_row = 0;
            if !push {
                self.back_off = Some(BackOff { until: now.plus(FREE_WITHOUT_PUSH), seen_with: u64::MAX });
            }
        }
        may
    }

    /// Whether a release of permits may let local waiters ask at once; if so it is counted. Such a row begins with its first release.
    pub(super) fn may_free(&mut self, waiters: usize, push: bool, now: Instant) -> bool {
        if self.in_a_row == 0 {
            self.row_began = now;
        }
        self.may_hand_over(waiters, push, now)
    }

    /// A true release notified listeners of other processes, or nobody but us. If our subscription notices each release, another holder was
    /// seen when it had `seen_with` notifications; it has `heard` now. The release was sent at `sent`.
    pub(super) fn released(&mut self, others: bool, seen_with: u64, heard: Option<u64>, sent: Instant, now: Instant) {
        self.contested = others;
        self.own_until = seen_with.saturating_sub(1);
        if !others {
            self.owed = 0;
            return;
        }
        self.unused = match self.back_off {
            Some(last) if !last.saw_another(heard) => self.unused.saturating_add(1),
            _ => 0,
        };
        self.back_off = Some(BackOff { until: now.plus(self.length(now.since(sent))), seen_with });
    }

    /// What a notification takes, and what those that were notified need to ask.
    fn length(&self, round_trip: Duration) -> Duration {
        let round_trips = (round_trip * ROUND_TRIPS).min(LONGEST);
        if self.unused < UNUSED || self.unused.is_multiple_of(FULL_AGAIN) {
            return self.notifies_within + BACK_OFF.max(round_trips);
        }
        let shortened = BACK_OFF / 2_u32.saturating_pow((self.unused - UNUSED).min(8));
        self.notifies_within + shortened.max(SHORTEST).max(round_trips)
    }

    /// Another process holds the name: the back-off did what it is for.
    pub(super) fn saw_another_holder(&mut self) {
        (self.back_off, self.unused) = (None, 0);
    }

    /// Until when others go first, if they do.
    pub(super) fn back_off_until(&self, heard: Option<u64>, now: Instant) -> Option<Instant> {
        self.back_off.filter(|back_off| now < back_off.until && !back_off.saw_another(heard)).map(|back_off| back_off.until)
    }

    /// When the last back-off ends by itself.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.back_off.map(|back_off| back_off.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(3_600_000_000_000);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// How many hand-overs come before a true release, with holds of this length.
    fn row(sharing: &mut Sharing, waiters: usize, push: bool, hold: Duration) -> u32 {
        sharing.row_begins(NOW, None);
        let mut now = NOW.plus(hold);
        let mut handed = 0;
        while sharing.may_hand_over(waiters, push, now) {
            (handed, now) = (handed + 1, now.plus(hold));
        }
        handed
    }

    #[test]
    fn hand_overs_are_bounded_by_number_by_waiters_and_by_time() {
        let mut alone = Sharing::default();
        assert_eq!(row(&mut alone, 64, true, ms(1)), IN_A_ROW);
        assert_eq!(row(&mut alone, 1, true, ms(1)), 4);
        assert_eq!(row(&mut alone, 64, true, ms(1_000)), 2);
        let mut contested = Sharing { contested: true, ..Sharing::default() };
        assert_eq!(row(&mut contested, 64, true, ms(1)), 1);
        assert_eq!(row(&mut contested, 64, true, ms(100)), 1);
        assert_eq!(row(&mut contested, 64, true, Duration::from_micros(10)), IN_A_ROW);
    }

    #[test]
    fn a_name_is_kept_for_a_while_and_then_as_often_as_it_would_be_handed_over() {
        let mut sharing = Sharing::default();
        let mut row = |waiters: usize, hold: Duration| {
            sharing.row_begins(NOW, None);
            (1..10_000).take_while(|turn| sharing.may_keep(waiters, NOW.plus(hold * *turn))).count()
        };
        assert_eq!(row(64, ms(1)), 99);
        assert_eq!(row(64, ms(50)), 16);
        assert_eq!(row(1, ms(50)), 4);
        assert_eq!(row(64, ms(1_000)), 2);
    }

    #[test]
    fn others_that_held_it_several_times_in_a_row_are_answered_in_kind() {
        let mut sharing = Sharing::default();
        let mut after = |turns: u64, waiters: usize| {
            // Our own release is the 8th notification.
            sharing.released(true, 9, Some(8), NOW, NOW);
            sharing.saw_another_holder();
            sharing.row_begins(NOW, Some(8 + turns));
            (1..=20).take_while(|hold| sharing.may_hand_over(waiters, true, NOW.plus(ms(20) * *hold))).count()
        };
        assert_eq!(after(0, 8), 1);
        assert_eq!(after(1, 8), 1);
        assert_eq!(after(5, 8), 5);
        assert_eq!(after(5, 2), 2, "no more than local waiters");
        assert_eq!(after(1, 8), 4, "and the rest in the next row");
        assert_eq!(after(1, 8), 1);
        assert_eq!(after(100, 64), 16);
        assert_eq!((0..9).map(|_| after(0, 64)).sum::<usize>(), 48 + 6, "what is owed is bounded");
    }

    #[test]
    fn without_push_a_row_ends_in_time_and_leaves_the_name_free_for_a_poll() {
        let mut sharing = Sharing::default();
        assert_eq!(row(&mut sharing, 64, false, ms(10)), 99);
        let end = sharing.back_off_until(None, NOW.plus(ms(1_000))).unwrap();
        assert!(end.since(NOW.plus(ms(1_000))) >= ms(200));
    }

    #[test]
    fn a_back_off_ends_when_another_holder_was_seen_or_after_a_while() {
        let mut sharing = Sharing::default();
        sharing.released(true, 9, Some(8), NOW, NOW);
        // Our own release notified us once.
        assert_eq!(sharing.back_off_until(Some(8), NOW), Some(NOW.plus(BACK_OFF)));
        assert_eq!(sharing.back_off_until(Some(9), NOW), None);
        assert_eq!(sharing.back_off_until(Some(8), NOW.plus(BACK_OFF)), None);
        sharing.saw_another_holder();
        assert_eq!(sharing.back_off_until(Some(8), NOW), None);
        sharing.released(true, 1, None, NOW, NOW.plus(ms(15)));
        assert_eq!(sharing.back_off_until(None, NOW), Some(NOW.plus(ms(75))), "the store is slow");
        sharing.saw_another_holder();
        sharing.released(false, 1, None, NOW, NOW);
        assert!(sharing.back_off_until(None, NOW).is_none() && !sharing.is_contested());
    }

    #[test]
    fn a_back_off_leaves_time_to_ask_after_a_notification_that_takes_long() {
        let mut sharing = Sharing::default();
        sharing.notified_within(ms(125));
        sharing.released(true, 1, None, NOW, NOW.plus(ms(10)));
        assert_eq!(sharing.back_off_until(None, NOW), Some(NOW.plus(ms(10 + 125 + 40))));
        for _ in 0..10 {
            sharing.released(true, 1, None, NOW, NOW);
            assert!(sharing.back_off_until(None, NOW).unwrap().since(NOW) > ms(125), "also if nobody came before");
        }
    }

    #[test]
    fn a_listener_that_never_comes_slows_nobody_down_for_long() {
        let mut sharing = Sharing::default();
        let mut lengths = Vec::new();
        for _ in 0..34 {
            sharing.released(true, 2, Some(1), NOW, NOW);
            lengths.push(sharing.back_off_until(Some(1), NOW).unwrap().since(NOW));
        }
        assert_eq!(lengths[..5], [BACK_OFF; 5]);
        assert_eq!(lengths.iter().skip(10).filter(|length| **length == BACK_OFF).count(), 2, "{lengths:?}");
        assert!(lengths.iter().skip(10).filter(|length| **length <= ms(1)).count() >= 20, "{lengths:?}");
        sharing.saw_another_holder();
        sharing.released(true, 2, Some(1), NOW, NOW);
        assert_eq!(sharing.back_off_until(Some(1), NOW), Some(NOW.plus(BACK_OFF)));
    }
}
