//! Shrinking: a history that breaks a promise is run again with fewer faults, then with fewer steps, as long as it breaks the same promise.

use super::{Flaw, History, simulate_without};

/// What can be left out of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Requests that are lost.
    LostRequests,
    /// Answers that are lost.
    LostAnswers,
    /// Messages that come twice.
    Copies,
    /// Notifications that are lost.
    LostNotifications,
    /// The time that messages take.
    Delays,
    /// The time that a poll takes.
    PollCosts,
    /// Clocks that are apart and run at different rates.
    Clocks,
    /// A fault of a machine, a store or a connection, by its number.
    Fault(usize),
    /// All turns of a task but so many.
    TurnsFrom {
        /// Its number.
        task: usize,
        /// How many are left.
        left: usize,
    },
}

const FAULTS: usize = 4;
const TASKS: usize = 9;
const TURNS: usize = 12;

impl Part {
    /// How many of `turns` a task still has.
    pub(super) fn turns_left(without: &[Self], number: usize, turns: usize) -> usize {
        let limits = without.iter().filter_map(|part| match part {
            Self::TurnsFrom { task, left } if *task == number => Some(*left),
            _ => None,
        });
        limits.fold(turns, usize::min)
    }

    /// What to try in this order: whole kinds of faults, single faults, whole tasks, single turns.
    fn candidates() -> impl Iterator<Item = Self> {
        let kinds = [
            Self::Clocks,
            Self::PollCosts,
            Self::Delays,
            Self::LostNotifications,
            Self::Copies,
            Self::LostRequests,
            Self::LostAnswers,
        ];
        let turns = (0..TURNS).flat_map(|left| (0..TASKS).map(move |task| Self::TurnsFrom { task, left }));
        kinds.into_iter().chain((0..FAULTS).map(Self::Fault)).chain(turns)
    }
}

/// The smallest history found that breaks the same promise as that of the seed, and what was left out; the history as it is if nothing is wrong with it.
#[must_use]
pub fn shrink(seed: u64, flaw: Flaw) -> (Vec<Part>, History) {
    let (mut without, mut smallest) = (Vec::new(), simulate_without(seed, flaw, &[]));
    if smallest.is_sound() {
        return (without, smallest);
    }
    let broken = smallest.broken();
    let same = |history: &History| !history.is_sound() && history.broken() == broken;
    for part in Part::candidates() {
        if let Part::TurnsFrom { task, left } = part
            && Part::turns_left(&without, task, TURNS) <= left
        {
            continue;
        }
        let mut less = without.clone();
        less.push(part);
        let history = simulate_without(seed, flaw, &less);
        if same(&history) {
            (without, smallest) = (less, history);
        }
    }
    (without, smallest)
}
