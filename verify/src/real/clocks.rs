//! Tokens beside the clock: all servers of a topology share the wall clock of the machine, so no token may be a second or more ahead of it.
//!
//! ZooKeeper and etcd count; their tokens have nothing to do with a clock.

use std::time::SystemTime;

use lockkeeper::referee::{Event, What};

use super::topology::now;

/// How far the wall clock is ahead of the clock that histories are recorded on, in microseconds.
pub(super) fn ahead() -> i128 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros());
    i128::try_from(wall).unwrap_or(i128::MAX) - i128::from(now() / 1_000)
}

/// Adds what the wall clock showed when each token was known. The store granted it before, so its clock showed less.
pub(super) fn beside_tokens(events: Vec<Event>, begin: u64, ahead: i128) -> Vec<Event> {
    let mut all = Vec::with_capacity(events.len());
    for event in events {
        let token = match &event.what {
            What::Granted { name, token: Some(token), .. } => {
                let clock = u64::try_from(i128::from((begin + event.at) / 1_000) + ahead).unwrap_or(0);
                Some(What::Token { name: name.clone(), token: *token, clock })
            }
            _ => None,
        };
        let (at, client) = (event.at, event.client);
        all.push(event);
        all.extend(token.map(|what| Event { at, client, what }));
    }
    all
}

#[cfg(test)]
mod tests {
    use lockkeeper::referee::{Limits, Promise, Referee, Side};

    use super::*;

    /// What the referee says of a token that is ahead of the clock by so many microseconds.
    fn judged(token_ahead: i64) -> (u64, bool) {
        let (begin, at) = (7_000_000_000, 3_000_000);
        let clock = u64::try_from(i128::from((begin + at) / 1_000) + ahead()).unwrap();
        let token = clock.checked_add_signed(token_ahead);
        let (name, owner, side) = ("mutex".to_owned(), "1:1".to_owned(), Side::Exclusive);
        let granted = What::Granted { call: 1, name, owner, side, token, sent: at - 1_000_000, lease: 2_000_000_000 };
        let mut referee = Referee::new(Limits::on_a_real_machine());
        for event in beside_tokens(vec![Event { at, client: 1, what: granted }], begin, ahead()) {
            referee.observe(&event);
        }
        let verdict = referee.finish(at);
        (verdict.checks_of(Promise::TokenClock), verdict.violations.iter().any(|broken| broken.promise == Promise::TokenClock))
    }

    #[test]
    fn a_token_a_second_ahead_of_the_clock_is_found() {
        assert_eq!(judged(-500), (1, false));
        assert_eq!(judged(900_000), (1, false));
        assert_eq!(judged(1_100_000), (1, true));
    }
}
