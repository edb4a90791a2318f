//! The second judge: whether the grants and ends of holds can be put in one order that a lock allows, each between its call and its answer.
//! It shares no code with the referee.
//!
//! In general that needs a search. Here it does not: tokens say in which order a lock granted, and where there are none (permits) every hold
//! can be taken as late and ended as early as its interval allows, because that is best for all others.

use std::collections::BTreeMap;

use lockkeeper::referee::{Event, Side, What};

/// One hold: it was granted between `asked` and `answered`, and ended at `ends` or later.
#[derive(Clone, Debug)]
struct Hold {
    client: u32,
    owner: String,
    side: Side,
    token: Option<u64>,
    asked: u64,
    answered: u64,
    /// From when on the store may have ended it.
    ends: u64,
    /// Guards that are in use.
    guards: u32,
}

#[derive(Debug, Default)]
struct Name {
    open: Vec<Hold>,
    ended: Vec<Hold>,
}

/// What the judge found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// How many holds were put in order.
    pub holds: u64,
    /// How many calls of latches.
    pub latch_calls: u64,
    /// Where no order is possible.
    pub broken: Vec<String>,
}

impl Order {
    /// What two judges found, or one in two histories.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.holds += other.holds;
        self.latch_calls += other.latch_calls;
        self.broken.extend(other.broken);
        self
    }
}

/// A lease ends no earlier than this part of it says: the client's clock and the store's run apart by less than a hundredth.
const fn lasts(sent: u64, lease: u64) -> u64 {
    sent.saturating_add(lease - lease / 100).saturating_sub(2_000_000)
}

/// When the store first forgot something after this time, as far as it is known yet.
fn forgotten(unhealthy: &[u64], sent: u64) -> Option<u64> {
    unhealthy.get(unhealthy.partition_point(|when| *when <= sent)).copied()
}

/// Puts the holds of a history in order. Events are in the order of time.
#[must_use]
pub fn put_in_order(events: &[Event]) -> Order {
    let mut names: BTreeMap<&str, Name> = BTreeMap::new();
    let mut unhealthy: Vec<u64> = Vec::new();
    for event in events {
        match &event.what {
            What::Granted { name, owner, side, token, sent, lease, .. } => {
                let state = names.entry(name).or_default();
                let same =
                    |hold: &&mut Hold| hold.owner == *owner && hold.token == *token && hold.side == *side && token.is_some();
                match state.open.iter_mut().find(same) {
                    Some(hold) => hold.guards += 1,
                    None => state.open.push(Hold {
                        client: event.client,
                        owner: owner.clone(),
                        side: *side,
                        token: *token,
                        asked: *sent,
                        answered: event.at,
                        // What a store granted before it forgot may have ended then, although the answer is read later.
                        ends: forgotten(&unhealthy, *sent).unwrap_or(u64::MAX).min(lasts(*sent, *lease)),
                        guards: 1,
                    }),
                }
            }
            What::Kept { name, owner, sent, lease } => {
                for hold in names.entry(name).or_default().open.iter_mut().filter(|hold| hold.owner == *owner) {
                    // An answer after the end revives nothing.
                    if event.at <= hold.ends {
                        hold.ends = hold.ends.max(lasts(*sent, *lease));
                    }
                }
            }
            What::Release { name, owner } | What::Lost { name, owner } => {
                let given_up = matches!(event.what, What::Release { .. });
                let state = names.entry(name).or_default();
                if let Some(at) = state.open.iter().position(|hold| hold.owner == *owner) {
                    state.open[at].guards -= 1;
                    if state.open[at].guards == 0 {
                        let mut hold = state.open.remove(at);
                        hold.ends = if given_up { hold.ends.min(event.at) } else { hold.ends };
                        state.ended.push(hold);
                    }
                }
            }
            What::Crashed => {
                for state in names.values_mut() {
                    let (dead, open) = state.open.drain(..).partition(|hold| hold.client == event.client);
                    state.open = open;
                    state.ended.extend(dead.into_iter().map(|hold: Hold| Hold { ends: hold.ends.min(event.at), ..hold }));
                }
            }
            What::Unhealthy { .. } => {
                unhealthy.push(event.at);
                // The store may have forgotten what it had granted.
                for hold in names.values_mut().flat_map(|state| state.open.iter_mut()) {
                    hold.ends = hold.ends.min(event.at);
                }
            }
            _ => {}
        }
    }
    let mut order = Order::default();
    for (name, Name { open, ended }) in names {
        let holds: Vec<Hold> = ended.into_iter().chain(open).collect();
        order.holds += holds.len() as u64;
        let (permits, locks): (Vec<_>, Vec<_>) = holds.into_iter().partition(|hold| matches!(hold.side, Side::Permits { .. }));
        order.broken.extend(too_many(name, &permits));
        order.broken.extend(in_order_of_tokens(name, locks));
    }
    order
}

/// Each grant at the earliest time that its call and the holds before it allow.
fn in_order_of_tokens(name: &str, mut holds: Vec<Hold>) -> Option<String> {
    holds.sort_by_key(|hold| (hold.token, hold.asked));
    // When the last grant was, when the last writer had ended, when all had.
    let (mut now, mut writers_end, mut all_end) = (0_u64, 0_u64, 0_u64);
    for hold in holds {
        let free = if hold.side == Side::Shared { writers_end } else { all_end };
        let granted = now.max(hold.asked).max(free);
        if granted > hold.answered {
            let (granted, answered) = (granted as f64 / 1e9, hold.answered as f64 / 1e9);
            let (owner, token) = (hold.owner, hold.token);
            return Some(format!(
                "{name:?}: {owner} with token {token:?} was answered at {answered:.6} s, but it was free at {granted:.6} s"
            ));
        }
        now = granted;
        let ended = granted.max(hold.ends);
        all_end = all_end.max(ended);
        if hold.side != Side::Shared {
            writers_end = writers_end.max(ended);
        }
    }
    None
}

/// Whether more permits were held at a time than there are.
fn too_many(name: &str, holds: &[Hold]) -> Option<String> {
    let mut changes = Vec::new();
    let mut most = u64::MAX;
    for hold in holds.iter().filter(|hold| hold.answered < hold.ends) {
        if let Side::Permits { take, of } = hold.side {
            most = most.min(of.into());
            // At the same time ends come first.
            changes.push((hold.answered, true, u64::from(take)));
            changes.push((hold.ends, false, u64::from(take)));
        }
    }
    changes.sort_unstable();
    let mut taken = 0;
    for (at, begins, permits) in changes {
        taken = if begins { taken + permits } else { taken - permits };
        if taken > most {
            return Some(format!("{name:?}: {taken} of {most} permits were held at {:.6} s", at as f64 / 1e9));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 3_000_000_000;
    const READ: Side = Side::Shared;
    const WRITE: Side = Side::Exclusive;
    const PERMIT: Side = Side::Permits { take: 1, of: 2 };

    fn granted(sent: u64, at: u64, client: u32, side: Side, token: Option<u64>) -> Event {
        let (name, owner) = ("x".to_owned(), client.to_string());
        Event { at, client, what: What::Granted { call: 1, name, owner, side, token, sent, lease: LEASE } }
    }

    fn release(at: u64, client: u32) -> Event {
        Event { at, client, what: What::Release { name: "x".into(), owner: client.to_string() } }
    }

    fn sound(events: &[Event]) -> bool {
        let order = put_in_order(events);
        assert!(order.holds > 0);
        order.broken.is_empty()
    }

    #[test]
    fn holds_one_after_the_other_are_in_order() {
        assert!(sound(&[granted(1, 2, 1, WRITE, Some(5)), release(8, 1), granted(3, 9, 2, WRITE, Some(6))]));
        // A lease that ended, a process that was killed, readers beside each other.
        assert!(sound(&[granted(1, 2, 1, WRITE, Some(5)), granted(LEASE, LEASE + 5, 2, WRITE, Some(6))]));
        let crashed = Event { at: 4, client: 1, what: What::Crashed };
        assert!(sound(&[granted(1, 2, 1, WRITE, Some(5)), crashed, granted(3, 9, 2, WRITE, Some(6))]));
        assert!(sound(&[granted(1, 2, 1, READ, Some(5)), granted(3, 4, 2, READ, Some(6)), release(5, 1), release(6, 2)]));
        // The answer came late: the store ended the first before.
        assert!(sound(&[granted(4, 5, 2, WRITE, Some(6)), granted(1, LEASE + 9, 1, WRITE, Some(5)), release(7, 2)].map(
            |mut event| {
                if let What::Granted { lease, sent: 1, .. } = &mut event.what {
                    *lease = 3;
                }
                event
            }
        )));
        let forgot = Event { at: 4, client: 0, what: What::Unhealthy { forgot: true, lag: 0 } };
        assert!(sound(&[granted(1, 2, 1, WRITE, Some(5)), forgot.clone(), granted(5, 6, 2, WRITE, Some(6))]));
        // It went on forgetting while the next one was granted, and the first got to know of its grant only then.
        let again = Event { at: 7, ..forgot.clone() };
        assert!(sound(&[forgot, granted(5, 6, 2, WRITE, Some(6)), again, granted(1, 8, 1, WRITE, Some(5))]));
    }

    #[test]
    fn two_holders_have_no_order() {
        assert!(!sound(&[granted(1, 2, 1, WRITE, Some(5)), granted(3, 4, 2, WRITE, Some(6)), release(5, 1), release(6, 2)]));
        assert!(!sound(&[granted(1, 2, 1, READ, Some(5)), granted(3, 4, 2, WRITE, Some(6)), release(5, 1), release(6, 2)]));
        assert!(!sound(&[granted(1, 2, 1, WRITE, Some(5)), granted(3, 4, 2, READ, Some(6)), release(5, 1), release(6, 2)]));
    }

    #[test]
    fn a_token_that_goes_back_has_no_order() {
        assert!(!sound(&[granted(1, 2, 1, WRITE, Some(6)), release(3, 1), granted(4, 5, 2, WRITE, Some(5)), release(6, 2)]));
    }

    #[test]
    fn permits_are_counted() {
        let two = [granted(1, 2, 1, PERMIT, None), granted(1, 3, 2, PERMIT, None)];
        assert!(sound(&[&two[..], &[release(4, 1), granted(3, 5, 3, PERMIT, None)]].concat()));
        assert!(!sound(&[&two[..], &[granted(3, 5, 3, PERMIT, None), release(6, 1)]].concat()));
    }
}
