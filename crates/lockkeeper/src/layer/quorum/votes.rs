//! What the answers of a majority mean. Pure functions with table tests: everything that decides who holds a lock is here.

use std::time::Duration;

use crate::backend::drift;
use crate::error::ErrorKind;

/// How many of `servers` are more than half.
pub(super) const fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// How long a grant of `lease` is still good after `elapsed` since it was asked for; `None`: no longer.
pub(super) fn validity(lease: Duration, elapsed: Duration) -> Option<Duration> {
    lease.checked_sub(elapsed)?.checked_sub(drift(lease)).filter(|left| !left.is_zero())
}

/// What one server has answered so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// Nothing yet.
    Pending,
    /// It voted for us, with this token.
    Granted(u64),
    /// Another owner has its vote, for this long if that is known.
    Refused(Option<Duration>),
    /// The request came too late.
    Late,
    /// It gave no vote.
    Failed(ErrorKind),
}

/// What follows from all answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Not known yet.
    Undecided,
    /// Held by us. The token is the largest that was answered. `agreed`: a majority answered it; otherwise it has to be written to one.
    Won { token: u64, agreed: bool },
    /// Held by another owner, or by nobody because the votes are split. Ask again after `retry_in` at the latest, if that is known.
    Lost { retry_in: Option<Duration>, split: bool },
    /// Too many servers got the request too late.
    Late,
    /// Too many servers gave no vote.
    Failed(ErrorKind),
}

/// Decides as soon as the pending answers can no longer change the outcome.
pub(super) fn decide(answers: &[Answered]) -> Outcome {
    let needed = majority(answers.len());
    let count = |which: fn(&Answered) -> bool| answers.iter().filter(|answer| which(answer)).count();
    let tokens: Vec<u64> =
        answers.iter().filter_map(|answer| if let Answered::Granted(token) = answer { Some(*token) } else { None }).collect();
    if tokens.len() >= needed {
        let token = tokens.iter().copied().max().unwrap_or_default();
        return Outcome::Won { token, agreed: tokens.iter().filter(|answered| **answered == token).count() >= needed };
    }
    let (open, no) =
        (count(|answer| matches!(answer, Answered::Pending)), count(|answer| matches!(answer, Answered::Refused(_))));
    // It can still be won, or it is not known yet whether another owner has it.
    if tokens.len() + open >= needed || tokens.len() + no < needed && tokens.len() + no + open >= needed {
        return Outcome::Undecided;
    }
    if tokens.len() + no >= needed {
        // The time by which as many votes as we lack have ended by themselves.
        let mut ends: Vec<Duration> =
            answers.iter().filter_map(|answer| if let Answered::Refused(end) = answer { *end } else { None }).collect();
        ends.sort_unstable();
        return Outcome::Lost { retry_in: ends.get(needed - tokens.len() - 1).copied(), split: no < needed };
    }
    if tokens.len() + no + count(|answer| matches!(answer, Answered::Late)) >= needed {
        return Outcome::Late;
    }
    Outcome::Failed(failure(
        answers.iter().filter_map(|answer| if let Answered::Failed(kind) = answer { Some(*kind) } else { None }),
    ))
}

/// The kind of several failures together: misuse before unknown before unreachable.
pub(super) fn failure(kinds: impl Iterator<Item = ErrorKind>) -> ErrorKind {
    let rank = |kind: &ErrorKind| match kind {
        ErrorKind::Unavailable => 0,
        ErrorKind::Indeterminate => 1,
        ErrorKind::Protocol => 2,
        _ => 3,
    };
    kinds.max_by_key(rank).unwrap_or(ErrorKind::Unavailable)
}

/// The answer to a question that each server answers with yes or no (`None`: no answer yet, or none at all). Yes by majority; no when the
/// answers alone rule out a majority of yes; `None` while neither.
pub(super) fn yes_or_no(answers: &[Option<bool>]) -> Option<bool> {
    let count = |wanted| answers.iter().filter(|answer| **answer == Some(wanted)).count();
    if count(true) >= majority(answers.len()) {
        Some(true)
    } else if count(false) > answers.len() - majority(answers.len()) {
        Some(false)
    } else {
        None
    }
}

/// Whether a hold was held until its release, from which servers still had its vote (`None`: no answer). It was not held if another owner could
/// have had a majority meanwhile. `None` while the pending answers can still decide it.
pub(super) fn kept_until_released(had: &[Option<bool>]) -> Option<bool> {
    let count = |wanted| had.iter().filter(|answer| **answer == wanted).count();
    let (without, open, needed) = (count(Some(false)), count(None), majority(had.len()));
    if without >= needed {
        Some(false)
    } else if without + open < needed {
        Some(true)
    } else {
        None
    }
}

/// The largest value that a majority of the servers reaches: how long a hold lasts by majority.
pub(super) fn by_majority<T: Ord>(servers: usize, mut told: Vec<T>) -> Option<T> {
    told.sort_unstable_by(|a, b| b.cmp(a));
    told.into_iter().nth(majority(servers) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Answered::{Failed, Granted, Late, Pending, Refused};

    const DOWN: Answered = Failed(ErrorKind::Unavailable);
    const UNKNOWN: Answered = Failed(ErrorKind::Indeterminate);

    fn secs(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn two_majorities_always_meet() {
        for (servers, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)] {
            assert_eq!(majority(servers), needed);
            assert!(2 * needed > servers);
        }
    }

    #[test]
    fn answers_decide_the_outcome() {
        let won = |token, agreed| Outcome::Won { token, agreed };
        let lost = |retry_in, split| Outcome::Lost { retry_in, split };
        for (answers, outcome) in [
            (vec![Granted(7)], won(7, true)),
            (vec![Pending; 5], Outcome::Undecided),
            (vec![Granted(7), Granted(7), Pending, Pending, Pending], Outcome::Undecided),
            // Decided as soon as a majority has answered; slow servers do not matter.
            (vec![Granted(7), Granted(7), Granted(7), Pending, Pending], won(7, true)),
            (vec![Granted(7), Granted(7), Granted(7), DOWN, Refused(None)], won(7, true)),
            // Tokens differ: the largest has to be written to a majority.
            (vec![Granted(7), Granted(9), Granted(7), Pending, Pending], won(9, false)),
            (vec![Granted(9), Granted(9), Granted(7), Granted(9), Pending], won(9, true)),
            // Half is not more than half.
            (vec![Granted(7), Granted(7), Pending, Pending], Outcome::Undecided),
            (vec![Granted(7), Granted(7), Refused(secs(1)), Refused(secs(2))], lost(secs(1), true)),
            // Held by another owner.
            (vec![Refused(secs(3)), Refused(secs(1)), Refused(secs(2)), Pending, Pending], lost(secs(3), false)),
            (
                vec![Refused(secs(3)), Refused(secs(1)), Refused(secs(2)), Refused(secs(9)), Refused(secs(8))],
                lost(secs(3), false),
            ),
            (vec![Refused(None), Refused(None), Refused(None), Pending, Pending], lost(None, false)),
            // Split: nobody has it, and we need one more vote.
            (vec![Granted(7), Granted(7), Refused(secs(5)), Refused(secs(4)), Refused(secs(6))], lost(secs(4), false)),
            (vec![Granted(7), Granted(7), Refused(secs(5)), DOWN, DOWN], lost(secs(5), true)),
            (vec![Refused(None), Refused(None), DOWN, DOWN, Pending], Outcome::Undecided),
            (vec![Refused(None), DOWN, DOWN, DOWN, Pending], Outcome::Failed(ErrorKind::Unavailable)),
            (vec![Granted(7), Granted(7), DOWN, DOWN, DOWN], Outcome::Failed(ErrorKind::Unavailable)),
            (vec![Granted(7), Granted(7), DOWN, UNKNOWN, DOWN], Outcome::Failed(ErrorKind::Indeterminate)),
            (vec![Failed(ErrorKind::WrongKind), DOWN, UNKNOWN, Pending, Pending], Outcome::Failed(ErrorKind::WrongKind)),
            (vec![Late, Late, Granted(7), DOWN, DOWN], Outcome::Late),
        ] {
            assert_eq!(decide(&answers), outcome, "{answers:?}");
        }
    }

    /// Pending answers do not change an outcome; only `agreed` may become true.
    #[test]
    fn an_outcome_is_final() {
        const ALL: [Answered; 5] = [Pending, Granted(7), Granted(9), Refused(None), DOWN];
        for code in 0..5_usize.pow(5) {
            let answers: Vec<Answered> = (0..5).map(|place| ALL[code / 5_usize.pow(place) % 5]).collect();
            let before = decide(&answers);
            for at in (0..5).filter(|at| answers[*at] == Pending) {
                for more in [Granted(7), Refused(None), DOWN] {
                    let mut later = answers.clone();
                    later[at] = more;
                    match (before, decide(&later)) {
                        (Outcome::Won { .. }, Outcome::Won { .. })
                        | (Outcome::Lost { .. }, Outcome::Lost { .. })
                        | (Outcome::Undecided, _)
                        | (Outcome::Failed(_), Outcome::Failed(_)) => {}
                        (before, after) => panic!("{answers:?}: {before:?}, then {after:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn validity_is_the_lease_less_what_passed_less_drift() {
        let millis = Duration::from_millis;
        for (lease, elapsed, left) in [
            (millis(10_000), millis(0), Some(millis(9_898))),
            (millis(10_000), millis(500), Some(millis(9_398))),
            (millis(10_000), millis(9_897), Some(millis(1))),
            (millis(10_000), millis(9_898), None),
            // Never a wrapped number.
            (millis(10_000), millis(60_000), None),
            (millis(2), millis(0), None),
        ] {
            assert_eq!(validity(lease, elapsed), left, "{lease:?} after {elapsed:?}");
        }
    }

    #[test]
    fn yes_and_no_are_decided_by_answers_alone() {
        let (yes, no) = (Some(true), Some(false));
        for (answers, decided) in [
            (vec![yes, yes, yes, None, None], yes),
            (vec![yes, yes, None, None, None], None),
            (vec![no, no, no, None, None], no),
            (vec![yes, yes, no, no, None], None),
            (vec![yes, no, no, no, None], no),
            (vec![no, None, None], None),
            (vec![yes, no, no, yes], no),
        ] {
            assert_eq!(yes_or_no(&answers), decided, "{answers:?}");
        }
    }

    #[test]
    fn a_release_waits_only_for_answers_that_can_change_its_own() {
        let (yes, no) = (Some(true), Some(false));
        for (had, held) in [
            // Two frozen servers do not matter.
            (vec![yes, yes, yes, None, None], yes),
            (vec![yes, yes, no, None, None], None),
            (vec![yes, yes, no, no, None], None),
            (vec![yes, yes, no, no, yes], yes),
            (vec![yes, yes, no, no, no], no),
            (vec![no, no, no, None, None], no),
            (vec![yes, yes, None], yes),
            (vec![yes, no, None], None),
            // Of four servers another owner needs three.
            (vec![yes, yes, no, no], yes),
            (vec![yes, yes, None, None], yes),
            (vec![yes, no, None, no], None),
        ] {
            assert_eq!(kept_until_released(&had), held, "{had:?}");
        }
    }

    #[test]
    fn a_majority_reaches_the_middle_value() {
        assert_eq!(by_majority(5, vec![9, 1, 5, 7]), Some(5));
        assert_eq!(by_majority(5, vec![9, 1]), None);
    }
}
