//! An exhaustive search of all states of a model, breadth first, so that the path to a broken property is a shortest one.
//!
//! States are recognised by a 64-bit digest with fixed keys: counts are the same in every run. Two of ten million states share a digest with
//! a probability of about three in a million.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hasher;

/// A property of states, by name.
pub type Property<S> = (&'static str, fn(&S) -> bool);

/// Something with states and actions.
pub trait Model {
    /// All that matters.
    type State;
    /// What may happen.
    type Action: fmt::Debug;

    /// Where it begins.
    fn start(&self) -> Self::State;

    /// All that may happen in this state.
    fn actions(&self, state: &Self::State, into: &mut Vec<Self::Action>);

    /// What comes of an action.
    fn next(&self, state: &Self::State, action: &Self::Action) -> Self::State;

    /// Feeds all that tells this state from others.
    fn digest(&self, state: &Self::State, hasher: &mut DefaultHasher);

    /// What holds in every state.
    fn always(&self) -> Vec<Property<Self::State>>;

    /// What holds in some state; otherwise the model shows less than it seems to.
    fn sometimes(&self) -> Vec<Property<Self::State>>;
}

/// What the search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How many different states were reached.
    pub states: usize,
    /// How many actions were tried.
    pub transitions: usize,
    /// The length of the longest of all shortest paths.
    pub depth: usize,
    /// Every reachable state was seen.
    pub complete: bool,
    /// There are more than it was to look at. So many states are the same ones in every run.
    pub at_bound: bool,
    /// The first property that did not hold, and the actions that lead there.
    pub broken: Option<(&'static str, Vec<String>)>,
    /// Which of the `sometimes` properties never held.
    pub never: Vec<&'static str>,
}

/// Looks at all states; stops at the first broken property, and at `most` states. A broken property of the last of them is still found.
pub fn explore<M: Model>(model: &M, most: usize) -> Report {
    explore_while(model, most, || true)
}

/// As [`explore`], and stops when `go_on` says no; it is asked every now and then.
pub fn explore_while<M: Model>(model: &M, most: usize, go_on: impl Fn() -> bool) -> Report {
    let digest = |state: &M::State| {
        let mut hasher = DefaultHasher::new();
        model.digest(state, &mut hasher);
        hasher.finish()
    };
    let always = model.always();
    let mut sometimes = model.sometimes();
    let mut report =
        Report { states: 0, transitions: 0, depth: 0, complete: true, at_bound: false, broken: None, never: Vec::new() };
    // Each state's predecessor, and which of its actions led here.
    let mut seen: HashMap<u64, (u64, u32)> = HashMap::new();
    let mut queue = VecDeque::new();
    let start = model.start();
    sometimes.retain(|(_, holds)| !holds(&start));
    let broken = |state: &M::State| always.iter().find(|(_, holds)| !holds(state)).map(|(name, _)| *name);
    let first = digest(&start);
    seen.insert(first, (first, 0));
    if let Some(name) = broken(&start) {
        report.broken = Some((name, Vec::new()));
        report.complete = false;
        return report;
    }
    queue.push_back((start, first, 0));
    let (mut actions, mut visited) = (Vec::new(), 0_usize);
    'search: while let Some((state, here, depth)) = queue.pop_front() {
        report.depth = depth;
        visited += 1;
        if visited % 4_096 == 0 && !go_on() {
            report.complete = false;
            break 'search;
        }
        actions.clear();
        model.actions(&state, &mut actions);
        for (index, action) in actions.iter().enumerate() {
            report.transitions += 1;
            let next = model.next(&state, action);
            // Also of states that were seen before: what a model notes of its last action need not tell states apart.
            sometimes.retain(|(_, holds)| !holds(&next));
            let there = digest(&next);
            let full = seen.len() >= most;
            let Entry::Vacant(new) = seen.entry(there) else { continue };
            if full {
                (report.complete, report.at_bound) = (false, true);
                break 'search;
            }
            new.insert((here, u32::try_from(index).unwrap_or(u32::MAX)));
            // When it is found, not when its turn comes: the search may stop before.
            if let Some(name) = broken(&next) {
                report.broken = Some((name, path(model, &seen, there)));
                report.complete = false;
                break 'search;
            }
            queue.push_back((next, there, depth + 1));
        }
    }
    report.states = seen.len();
    report.never = sometimes.into_iter().map(|(name, _)| name).collect();
    report
}

/// The actions that lead from the start to the state with this digest.
fn path<M: Model>(model: &M, seen: &HashMap<u64, (u64, u32)>, mut there: u64) -> Vec<String> {
    let mut steps = Vec::new();
    while let Some(&(before, index)) = seen.get(&there)
        && before != there
    {
        steps.push(index as usize);
        there = before;
    }
    let mut state = model.start();
    let mut words = Vec::new();
    for step in steps.into_iter().rev() {
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        let Some(action) = actions.get(step) else { break };
        words.push(format!("{action:?}"));
        state = model.next(&state, action);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hash as _;

    /// Two counters that are raised by turns or not, up to a limit.
    struct Counters(u8);

    impl Model for Counters {
        type State = (u8, u8);
        type Action = bool;

        fn start(&self) -> (u8, u8) {
            (0, 0)
        }

        fn actions(&self, state: &(u8, u8), into: &mut Vec<bool>) {
            into.extend((state.0 < self.0).then_some(true));
            into.extend((state.1 < self.0).then_some(false));
        }

        fn next(&self, state: &(u8, u8), action: &bool) -> (u8, u8) {
            if *action { (state.0 + 1, state.1) } else { (state.0, state.1 + 1) }
        }

        fn digest(&self, state: &(u8, u8), hasher: &mut DefaultHasher) {
            state.hash(hasher);
        }

        fn always(&self) -> Vec<Property<(u8, u8)>> {
            let flaw: Property<(u8, u8)> = ("not two and three", |state| *state != (2, 3));
            // Larger ones are sound.
            if self.0 > 5 { Vec::new() } else { vec![flaw] }
        }

        fn sometimes(&self) -> Vec<Property<(u8, u8)>> {
            vec![("both one", |state| *state == (1, 1)), ("nine", |state| state.0 == 9)]
        }
    }

    #[test]
    fn every_state_is_seen_once() {
        let report = explore(&Counters(2), usize::MAX);
        assert_eq!((report.states, report.transitions, report.depth, report.complete), (9, 12, 4, true));
        assert_eq!((report.broken, report.never), (None, vec!["nine"]));
    }

    #[test]
    fn a_broken_property_is_found_by_a_shortest_path() {
        let (name, path) = explore(&Counters(5), usize::MAX).broken.unwrap();
        assert_eq!((name, path.len()), ("not two and three", 5));
        assert_eq!(path.iter().filter(|step| *step == "true").count(), 2);
    }

    #[test]
    fn a_search_that_is_cut_short_says_so() {
        let report = explore(&Counters(2), 5);
        assert_eq!((report.states, report.complete, report.at_bound), (5, false, true));
        let report = explore(&Counters(2), 9);
        assert_eq!((report.states, report.complete, report.at_bound), (9, true, false));
        let report = explore_while(&Counters(200), usize::MAX, || false);
        assert_eq!((report.complete, report.at_bound), (false, false));
    }

    #[test]
    fn a_search_stops_at_its_bound() {
        // Two actions of each state. What lies behind the last ones is not tried.
        let report = explore(&Counters(250), 5_000);
        assert_eq!((report.states, report.at_bound), (5_000, true));
        assert!(report.transitions < 2 * report.states, "{} transitions", report.transitions);
        assert_eq!(explore(&Counters(250), 5_000), report, "the same states in every run");
    }

    #[test]
    fn what_is_broken_in_the_last_state_before_the_bound_is_found() {
        let all = (1..).find(|most| explore(&Counters(5), *most).broken.is_some()).unwrap();
        let report = explore(&Counters(5), all);
        assert_eq!(report.states, all, "it is the last one");
    }
}
