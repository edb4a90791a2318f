//! The servers' clocks as seen from here. They tell which token comes next, and which server cannot take part because its tokens are
//! too far from those of the others.
//!
//! Everything is learned from the servers' own clocks, never from this machine's wall clock and never from tokens: tokens contain the
//! head start that this module added, and would grow without end.

use std::sync::Mutex;
use std::time::Duration;

use super::member::locked;
use super::votes::majority;
use crate::runtime::Instant;

/// How far a floor is ahead of the fastest clock, besides the time of a round trip.
const HEAD_START: i64 = 2_000;

/// The longest round trip that is added to a floor. After a slower one a second round of requests makes the servers agree.
const LONGEST_ROUND: i64 = 100_000;

/// What is known of all servers of a quorum.
#[derive(Debug)]
pub(super) struct Clocks {
    known: Mutex<Vec<Option<Known>>>,
    /// Tokens of servers must not be further apart than this, in microseconds: by so much a server accepts a repeated request's floor further ahead
    /// of its clock than a first one's.
    limit: i64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// The server's clock less ours (the boot clock), in microseconds. At most as large as it really is: it is taken when the answer arrives.
    ahead: i64,
    /// The last token that it answered.
    token: i64,
}

impl Clocks {
    pub(super) fn new(servers: usize, max_lease: Duration) -> Self {
        Self { known: Mutex::new(vec![None; servers]), limit: micros(max_lease) / 4 }
    }

    /// A server answered, with this clock and perhaps with a token.
    pub(super) fn learn(&self, server: usize, clock: u64, token: Option<u64>, now: Instant) {
        let ahead = signed(clock).saturating_sub(since_start(now));
        let known = &mut locked(&self.known)[server];
        let token = token.map_or_else(|| known.map_or(0, |known| known.token), signed);
        *known = Some(Known { ahead, token });
    }

    /// A token that all servers are likely to answer, if their last round trip took `round`; 0 while no majority of clocks is known that agree.
    /// Otherwise one server that answers first and whose clock is far ahead would draw the tokens of all others ahead of their clocks.
    pub(super) fn next_floor(&self, round: Duration, now: Instant) -> u64 {
        let known = locked(&self.known);
        let levels = levels(&known, now);
        let Some(median) = median(levels.iter().flatten().copied()) else { return 0 };
        let agree = || {
            let both = known.iter().zip(&levels).filter_map(|(known, level)| Some((known.as_ref()?, (*level)?)));
            both.filter(|(_, level)| (level - median).abs() <= self.limit).map(|(known, _)| known.ahead)
        };
        if agree().count() < majority(known.len()) {
            return 0;
        }
        let head_start = HEAD_START + micros(round).min(LONGEST_ROUND);
        agree().max().map_or(0, |ahead| u64::try_from(ahead + since_start(now) + head_start).unwrap_or_default())
    }

    /// By how many microseconds this server's tokens are ahead of those of the others (negative: behind), if that is too far for them to agree.
    pub(super) fn too_far(&self, server: usize, now: Instant) -> Option<i64> {
        let levels = levels(&locked(&self.known), now);
        let apart = levels[server]? - median(levels.iter().flatten().copied())?;
        (apart.abs() > self.limit).then_some(apart)
    }
}

/// What each server's next token is at least.
fn levels(known: &[Option<Known>], now: Instant) -> Vec<Option<i64>> {
    known.iter().map(|known| known.map(|known| known.token.max(known.ahead + since_start(now)))).collect()
}

/// The middle one; the smaller one of two.
fn median(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut values: Vec<i64> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

fn since_start(now: Instant) -> i64 {
    signed(now.as_nanos() / 1_000)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const NOW: Instant = Instant::from_nanos(5_000_000_000);
    const SECOND: u64 = 1_000_000;

    /// Servers whose clocks say this at [`NOW`].
    fn clocks(clocks: &[u64]) -> Clocks {
        let all = Clocks::new(clocks.len(), MINUTE);
        clocks.iter().enumerate().for_each(|(server, clock)| all.learn(server, *clock, None, NOW));
        all
    }

    #[test]
    fn a_floor_is_a_little_ahead_of_the_fastest_clock() {
        let all = clocks(&[100 * SECOND, 101 * SECOND, 99 * SECOND]);
        assert_eq!(all.next_floor(Duration::ZERO, NOW), 101 * SECOND + 2_000);
        let later = NOW.plus(Duration::from_secs(1));
        assert_eq!(all.next_floor(Duration::from_millis(3), later), 102 * SECOND + 5_000);
        assert_eq!(all.next_floor(MINUTE, NOW), 101 * SECOND + 102_000, "a slow round counts only so much");
        assert_eq!(Clocks::new(3, MINUTE).next_floor(MINUTE, NOW), 0, "nothing is known");
    }

    #[test]
    fn a_floor_needs_a_majority_of_clocks_that_agree() {
        let all = Clocks::new(5, MINUTE);
        let learn = |server, clock| {
            all.learn(server, clock, None, NOW);
            all.next_floor(Duration::ZERO, NOW)
        };
        assert_eq!(learn(0, 700 * SECOND), 0, "the first answer comes from a server whose clock is far ahead");
        assert_eq!(learn(1, 700 * SECOND), 0);
        assert_eq!(learn(2, 100 * SECOND), 0);
        assert_eq!(learn(3, 101 * SECOND), 0);
        assert_eq!(learn(4, 100 * SECOND), 101 * SECOND + 2_000);
    }

    #[test]
    fn tokens_do_not_move_floors() {
        let all = clocks(&[100 * SECOND; 3]);
        all.learn(0, 100 * SECOND, Some(109 * SECOND), NOW);
        assert_eq!(all.next_floor(Duration::ZERO, NOW), 100 * SECOND + 2_000);
        assert_eq!(all.too_far(0, NOW), None);
    }

    #[test]
    fn a_server_whose_clock_or_tokens_are_far_off_is_found() {
        let all = clocks(&[100 * SECOND, 700 * SECOND, 101 * SECOND]);
        assert_eq!([0, 1, 2].map(|server| all.too_far(server, NOW)), [None, Some(599 * SECOND as i64), None]);
        assert_eq!(all.next_floor(Duration::ZERO, NOW), 101 * SECOND + 2_000);
        let behind = clocks(&[700 * SECOND, 100 * SECOND, 701 * SECOND]);
        assert_eq!(behind.too_far(1, NOW), Some(-600 * SECOND as i64));
        let counter = clocks(&[100 * SECOND; 3]);
        counter.learn(2, 100 * SECOND, Some(400 * SECOND), NOW);
        assert_eq!([0, 1, 2].map(|server| counter.too_far(server, NOW)), [None, None, Some(300 * SECOND as i64)]);
        // Clocks that were all set back: the servers agree on tokens that are all ahead.
        (0..2).for_each(|server| counter.learn(server, 100 * SECOND, Some(401 * SECOND), NOW));
        assert_eq!([0, 1, 2].map(|server| counter.too_far(server, NOW)), [None; 3]);
        assert_eq!(clocks(&[100 * SECOND]).too_far(0, NOW), None);
    }
}
