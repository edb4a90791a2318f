//! The second judge of latches: whether all that processes were answered by a latch can be put in one order, each between its call and its answer.
//! It shares no code with the referee.
//!
//! The history is read once, with all states that the latch can be in. When a call is answered, every call under way may have been carried out before it, in
//! any order; states in which this one was not carried out with its answer are dropped. Where none is left, there is no order. A call whose answer is not
//! known may be carried out at any later time, or never.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper::referee::{Event, LatchAsk, What};

use super::Order;

/// More states than this are not followed: so many unknown calls say nothing any more.
const MOST_STATES: usize = 20_000;

/// Only so many are compared with each other.
const COMPARED: usize = 1_000;

/// What a call is to have done, and its answer.
type Known = (LatchAsk, i64);

/// A call of a client, by its number.
type Call = (u32, u64);

/// One state that a latch may be in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// How many are to go; 0 is open.
    left: u32,
    /// Those under way that were carried out, but are not answered yet.
    done: BTreeSet<Call>,
    /// How many calls without an answer were carried out: to count down, and to close, by how many.
    unknown_downs: u32,
    unknown_closes: BTreeMap<u32, u32>,
}

/// All that one latch may be, and what is under way.
#[derive(Debug)]
struct Latch {
    states: BTreeSet<State>,
    under_way: BTreeMap<Call, Known>,
    /// How many calls without an answer there were so far.
    downs: u32,
    closes: BTreeMap<u32, u32>,
    /// The largest count that was asked for.
    most: u32,
}

impl Latch {
    /// A latch that was never set is open.
    fn new() -> Self {
        let open = State { left: 0, done: BTreeSet::new(), unknown_downs: 0, unknown_closes: BTreeMap::new() };
        Self { states: BTreeSet::from([open]), under_way: BTreeMap::new(), downs: 0, closes: BTreeMap::new(), most: 0 }
    }

    /// What the latch may be one step later.
    fn steps(&self, state: &State) -> Vec<State> {
        let mut next = Vec::new();
        for (call, (ask, answer)) in self.under_way.iter().filter(|(call, _)| !state.done.contains(call)) {
            if let Some(left) = carried_out(state.left, *ask, *answer) {
                let mut after = State { left, ..state.clone() };
                after.done.insert(*call);
                next.push(after);
            }
        }
        // On an open latch a count changes nothing, and neither does an attempt to close one that is closed.
        if state.left > 0 && state.unknown_downs < self.downs {
            next.push(State { left: state.left - 1, unknown_downs: state.unknown_downs + 1, ..state.clone() });
        }
        for (by, count) in self.closes.iter().filter(|_| state.left == 0) {
            let used = state.unknown_closes.get(by).copied().unwrap_or(0);
            if used < *count {
                let mut after = State { left: *by, ..state.clone() };
                after.unknown_closes.insert(*by, used + 1);
                next.push(after);
            }
        }
        next
    }

    /// All that it may be after any number of steps; `None` if they are too many.
    fn reachable(&self) -> Option<BTreeSet<State>> {
        let mut all = self.states.clone();
        let mut new: Vec<State> = all.iter().cloned().collect();
        while let Some(state) = new.pop() {
            for after in self.steps(&state) {
                if all.insert(after.clone()) {
                    new.push(after);
                }
            }
            if all.len() > MOST_STATES {
                return None;
            }
        }
        Some(all)
    }

    /// The call is answered: it was carried out. Whether that is possible; `None` if it cannot be told.
    fn answered(&mut self, call: Call) -> Option<bool> {
        let mut reachable = self.reachable()?;
        reachable.retain(|state| state.done.contains(&call));
        self.under_way.remove(&call);
        self.states = reachable
            .into_iter()
            .map(|mut state| {
                state.done.remove(&call);
                state
            })
            .collect();
        self.drop_covered();
        Some(!self.states.is_empty())
    }

    /// The store may have lost something: its number may be any that it had. What is under way may have been carried out before, and is lost then.
    /// `None` if the states are too many.
    fn forgets(&mut self) -> Option<()> {
        let (all, most) = (self.reachable()?, self.most);
        self.states = all.into_iter().flat_map(|state| (0..=most).map(move |left| State { left, ..state.clone() })).collect();
        self.drop_covered();
        Some(())
    }

    /// A state that needed fewer of the unknown calls can do all that the others can.
    fn drop_covered(&mut self) {
        if self.states.len() <= COMPARED {
            let all: Vec<State> = self.states.iter().cloned().collect();
            self.states.retain(|state| !all.iter().any(|other| other != state && covers(other, state)));
        }
    }
}

/// Whether `one` can do all that `other` can: the same, with at least as many unknown calls still to come.
fn covers(one: &State, other: &State) -> bool {
    let closes = |state: &State, by: &u32| state.unknown_closes.get(by).copied().unwrap_or(0);
    one.left == other.left
        && one.done == other.done
        && one.unknown_downs <= other.unknown_downs
        && one.unknown_closes.keys().all(|by| closes(one, by) <= closes(other, by))
}

/// What is to go after a call that got this answer; `None` if it cannot have got it then.
fn carried_out(left: u32, ask: LatchAsk, answer: i64) -> Option<u32> {
    let after = match ask {
        LatchAsk::Close { count } if left == 0 => (count, 1),
        LatchAsk::Close { .. } => (left, 0),
        LatchAsk::Down => (left.saturating_sub(1), i64::from(left.saturating_sub(1))),
        LatchAsk::Wait if left == 0 => (0, 0),
        LatchAsk::Wait => return None,
    };
    (after.1 == answer).then_some(after.0)
}

/// Puts the calls of all latches of a history in order. Events are in the order of time.
pub(super) fn put_in_order(events: &[Event]) -> Order {
    let answers: BTreeMap<Call, i64> = events
        .iter()
        .filter_map(|event| match &event.what {
            What::LatchAnswers { call, value, .. } => Some(((event.client, *call), *value)),
            _ => None,
        })
        .collect();
    let (mut latches, mut order): (BTreeMap<&str, Option<Latch>>, Order) = (BTreeMap::new(), Order::default());
    for event in events {
        match &event.what {
            What::LatchAsks { call, name, ask } => {
                let Some(latch) = latches.entry(name).or_insert_with(|| Some(Latch::new())) else { continue };
                if let LatchAsk::Close { count } = ask {
                    latch.most = latch.most.max(*count);
                }
                match (answers.get(&(event.client, *call)), ask) {
                    (Some(answer), _) => drop(latch.under_way.insert((event.client, *call), (*ask, *answer))),
                    (None, LatchAsk::Down) => latch.downs += 1,
                    (None, LatchAsk::Close { count }) => *latch.closes.entry(*count).or_default() += 1,
                    // One that was given up says nothing.
                    (None, LatchAsk::Wait) => {}
                }
            }
            What::LatchAnswers { call, name, value } => {
                let Some(Some(latch)) = latches.get_mut(name.as_str()) else { continue };
                let asked = latch.under_way.get(&(event.client, *call)).copied();
                match latch.answered((event.client, *call)) {
                    Some(true) => order.latch_calls += 1,
                    Some(false) => {
                        let at = event.at as f64 / 1e9;
                        order.broken.push(format!(
                            "latch {name:?}: {asked:?} was answered {value} at {at:.6} s, and no order allows that"
                        ));
                        latches.insert(name, None);
                    }
                    None => drop(latches.insert(name, None)),
                }
            }
            What::Unhealthy { .. } => {
                for latch in latches.values_mut() {
                    if latch.as_mut().is_some_and(|latch| latch.forgets().is_none()) {
                        *latch = None;
                    }
                }
            }
            _ => {}
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSE: LatchAsk = LatchAsk::Close { count: 2 };
    const DOWN: LatchAsk = LatchAsk::Down;
    const WAIT: LatchAsk = LatchAsk::Wait;

    /// When it was given, and what it was.
    type Answer = Option<(u64, i64)>;

    /// Client, what it asks, when, and the answer if it is known. A client has one call here.
    type Asked = (u32, LatchAsk, u64, Answer);

    /// Whether the calls have an order.
    fn sound(calls: &[Asked]) -> bool {
        let mut events = Vec::new();
        for (client, ask, from, answer) in calls {
            let (client, call, name) = (*client, 1, "gate".to_owned());
            events.push(Event { at: *from, client, what: What::LatchAsks { call, name: name.clone(), ask: *ask } });
            events.extend(answer.map(|(at, value)| Event { at, client, what: What::LatchAnswers { call, name, value } }));
        }
        events.sort_by_key(|event| event.at);
        let order = put_in_order(&events);
        assert!(order.latch_calls > 0);
        order.broken.is_empty()
    }

    #[test]
    fn a_latch_that_opens_after_its_count_is_in_order() {
        let first = [(1, WAIT, 1, Some((2, 0))), (2, CLOSE, 3, Some((4, 1))), (3, CLOSE, 5, Some((6, 0)))];
        let counts = [(4, DOWN, 7, Some((20, 1))), (5, DOWN, 8, Some((9, 0))), (6, WAIT, 5, Some((10, 0)))];
        assert!(sound(&[&first[..], &counts].concat()));
        // Who asks beside the one that closes may come before it.
        assert!(sound(&[(1, CLOSE, 1, Some((10, 1))), (2, WAIT, 2, Some((3, 0))), (3, DOWN, 4, Some((5, 0)))]));
        // Calls without an answer may have counted, and may have closed it.
        assert!(sound(&[(1, CLOSE, 1, Some((2, 1))), (2, DOWN, 3, None), (3, DOWN, 4, None), (4, WAIT, 5, Some((6, 0)))]));
        assert!(sound(&[(1, CLOSE, 1, None), (2, WAIT, 2, Some((3, 0))), (3, DOWN, 4, Some((5, 1)))]));
        // And the number that is answered may be one that they brought about.
        assert!(sound(&[(1, CLOSE, 1, Some((2, 1))), (2, DOWN, 3, None), (3, DOWN, 4, Some((5, 0)))]));
    }

    #[test]
    fn a_latch_that_lets_somebody_pass_too_early_has_no_order() {
        assert!(!sound(&[(1, CLOSE, 1, Some((2, 1))), (2, WAIT, 3, Some((4, 0)))]));
        assert!(!sound(&[(1, CLOSE, 1, Some((2, 1))), (2, DOWN, 3, Some((4, 1))), (3, WAIT, 5, Some((6, 0)))]));
        // The second count was asked for too late.
        assert!(!sound(&[(1, CLOSE, 1, Some((2, 1))), (2, DOWN, 3, None), (3, WAIT, 4, Some((5, 0))), (4, DOWN, 6, None)]));
    }

    #[test]
    fn a_count_that_is_carried_out_twice_or_never_has_no_order() {
        assert!(!sound(&[(1, CLOSE, 1, Some((2, 1))), (2, DOWN, 3, Some((4, 0)))]));
        assert!(!sound(&[(1, CLOSE, 1, Some((2, 1))), (2, DOWN, 3, Some((4, 1))), (3, DOWN, 5, Some((6, 1)))]));
        // Closed twice without a count.
        assert!(!sound(&[(1, CLOSE, 1, Some((2, 1))), (2, CLOSE, 3, Some((4, 1)))]));
    }

    #[test]
    fn a_store_that_forgot_may_have_opened_it() {
        let asks = |at, client, ask| Event { at, client, what: What::LatchAsks { call: 1, name: "gate".to_owned(), ask } };
        let says = |at, client, value| Event { at, client, what: What::LatchAnswers { call: 1, name: "gate".to_owned(), value } };
        let forgot = Event { at: 3, client: 0, what: What::Unhealthy { forgot: true, lag: 0 } };
        let told = [asks(1, 1, CLOSE), says(2, 1, 1), forgot, asks(4, 2, WAIT), says(5, 2, 0)];
        assert!(put_in_order(&told).broken.is_empty());
        // What was closed when it forgot is answered afterwards.
        let late = [asks(1, 1, CLOSE), Event { at: 2, ..told[2].clone() }, says(3, 1, 1), asks(4, 2, WAIT), says(5, 2, 0)];
        assert!(put_in_order(&late).broken.is_empty());
        for events in [told, late] {
            let untold: Vec<Event> = events.into_iter().filter(|event| event.client > 0).collect();
            assert_eq!(put_in_order(&untold).broken.len(), 1);
        }
    }
}
