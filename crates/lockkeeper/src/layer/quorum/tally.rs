//! The arithmetic of majorities: pure, and told in tables. Everything that decides who holds a lock stands here.

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

/// What one server has said so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing yet.
    Open,
    /// It voted for us, with this token.
    Yes(u64),
    /// It voted for somebody else, for as long as this if it knows.
    No(Option<Duration>),
    /// The request came too late.
    Late,
    /// It gave no vote.
    Failed(ErrorKind),
}

/// What follows from what all have said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not known yet.
    Open,
    /// Ours. The token is the largest that was answered; `agreed` if a majority answered it, else it has to be written to one.
    Won { token: u64, agreed: bool },
    /// Somebody else's, or nobody's: votes were split. Ask again after so long at the latest, if that is known.
    Lost { retry_in: Option<Duration>, split: bool },
    /// Too many were asked too late.
    Late,
    /// Too many gave no vote.
    Failed(ErrorKind),
}

/// What follows from what the servers said. Decided as soon as what is open can no longer change it.
pub(super) fn judge(said: &[Said]) -> Verdict {
    let needed = majority(said.len());
    let count = |which: fn(&Said) -> bool| said.iter().filter(|said| which(said)).count();
    let tokens: Vec<u64> = said.iter().filter_map(|said| if let Said::Yes(token) = said { Some(*token) } else { None }).collect();
    if tokens.len() >= needed {
        let token = tokens.iter().copied().max().unwrap_or_default();
        return Verdict::Won { token, agreed: tokens.iter().filter(|answered| **answered == token).count() >= needed };
    }
    let (open, no) = (count(|said| matches!(said, Said::Open)), count(|said| matches!(said, Said::No(_))));
    // It may be won, or it is to be known whether somebody else has it.
    if tokens.len() + open >= needed || tokens.len() + no < needed && tokens.len() + no + open >= needed {
        return Verdict::Open;
    }
    if tokens.len() + no >= needed {
        // When as many as we lack have become free by themselves.
        let mut ends: Vec<Duration> = said.iter().filter_map(|said| if let Said::No(end) = said { *end } else { None }).collect();
        ends.sort_unstable();
        return Verdict::Lost { retry_in: ends.get(needed - tokens.len() - 1).copied(), split: no < needed };
    }
    if tokens.len() + no + count(|said| matches!(said, Said::Late)) >= needed {
        return Verdict::Late;
    }
    Verdict::Failed(failure(said.iter().filter_map(|said| if let Said::Failed(kind) = said { Some(*kind) } else { None })))
}

/// What several failures are together: misuse if one calls it so, then unknown, then unreachable.
pub(super) fn failure(kinds: impl Iterator<Item = ErrorKind>) -> ErrorKind {
    let rank = |kind: &ErrorKind| match kind {
        ErrorKind::Unavailable => 0,
        ErrorKind::Indeterminate => 1,
        ErrorKind::Protocol => 2,
        _ => 3,
    };
    kinds.max_by_key(rank).unwrap_or(ErrorKind::Unavailable)
}

/// What follows from a question that each server answers with yes or no (`None`: open, or no answer): yes by majority, no when that has
/// become impossible by answers alone, `None` while neither.
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

/// Whether a hold that is given back was held until then, by who had its vote (`None`: open, or no answer). It was not if another could have had a
/// majority meanwhile; `None` while that may turn out either way.
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

/// The least that a majority has, of numbers that servers told: how long a hold lasts by majority.
pub(super) fn by_majority<T: Ord>(servers: usize, mut told: Vec<T>) -> Option<T> {
    told.sort_unstable_by(|a, b| b.cmp(a));
    told.into_iter().nth(majority(servers) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Said::{Failed, Late, No, Open, Yes};

    const DOWN: Said = Failed(ErrorKind::Unavailable);
    const UNKNOWN: Said = Failed(ErrorKind::Indeterminate);

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
    fn what_is_said_decides() {
        let won = |token, agreed| Verdict::Won { token, agreed };
        let lost = |retry_in, split| Verdict::Lost { retry_in, split };
        for (said, verdict) in [
            (vec![Yes(7)], won(7, true)),
            (vec![Open; 5], Verdict::Open),
            (vec![Yes(7), Yes(7), Open, Open, Open], Verdict::Open),
            // As soon as the majority has answered; the slow ones do not matter.
            (vec![Yes(7), Yes(7), Yes(7), Open, Open], won(7, true)),
            (vec![Yes(7), Yes(7), Yes(7), DOWN, No(None)], won(7, true)),
            // They differ: the largest has to be written to a majority.
            (vec![Yes(7), Yes(9), Yes(7), Open, Open], won(9, false)),
            (vec![Yes(9), Yes(9), Yes(7), Yes(9), Open], won(9, true)),
            // Half is not more than half.
            (vec![Yes(7), Yes(7), Open, Open], Verdict::Open),
            (vec![Yes(7), Yes(7), No(secs(1)), No(secs(2))], lost(secs(1), true)),
            // Held by somebody else.
            (vec![No(secs(3)), No(secs(1)), No(secs(2)), Open, Open], lost(secs(3), false)),
            (vec![No(secs(3)), No(secs(1)), No(secs(2)), No(secs(9)), No(secs(8))], lost(secs(3), false)),
            (vec![No(None), No(None), No(None), Open, Open], lost(None, false)),
            // Split: nobody has it, and we need one more.
            (vec![Yes(7), Yes(7), No(secs(5)), No(secs(4)), No(secs(6))], lost(secs(4), false)),
            (vec![Yes(7), Yes(7), No(secs(5)), DOWN, DOWN], lost(secs(5), true)),
            (vec![No(None), No(None), DOWN, DOWN, Open], Verdict::Open),
            (vec![No(None), DOWN, DOWN, DOWN, Open], Verdict::Failed(ErrorKind::Unavailable)),
            (vec![Yes(7), Yes(7), DOWN, DOWN, DOWN], Verdict::Failed(ErrorKind::Unavailable)),
            (vec![Yes(7), Yes(7), DOWN, UNKNOWN, DOWN], Verdict::Failed(ErrorKind::Indeterminate)),
            (vec![Failed(ErrorKind::WrongKind), DOWN, UNKNOWN, Open, Open], Verdict::Failed(ErrorKind::WrongKind)),
            (vec![Late, Late, Yes(7), DOWN, DOWN], Verdict::Late),
        ] {
            assert_eq!(judge(&said), verdict, "{said:?}");
        }
    }

    /// Whatever is still open, a verdict stands; only an agreement may come about.
    #[test]
    fn a_verdict_is_final() {
        const ALL: [Said; 5] = [Open, Yes(7), Yes(9), No(None), DOWN];
        for code in 0..5_usize.pow(5) {
            let said: Vec<Said> = (0..5).map(|place| ALL[code / 5_usize.pow(place) % 5]).collect();
            let before = judge(&said);
            for at in (0..5).filter(|at| said[*at] == Open) {
                for more in [Yes(7), No(None), DOWN] {
                    let mut later = said.clone();
                    later[at] = more;
                    match (before, judge(&later)) {
                        (Verdict::Won { .. }, Verdict::Won { .. })
                        | (Verdict::Lost { .. }, Verdict::Lost { .. })
                        | (Verdict::Open, _)
                        | (Verdict::Failed(_), Verdict::Failed(_)) => {}
                        (before, after) => panic!("{said:?}: {before:?}, then {after:?}"),
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
    fn a_release_waits_only_for_what_can_change_what_it_tells() {
        let (yes, no) = (Some(true), Some(false));
        for (had, held) in [
            // Two that are frozen do not matter.
            (vec![yes, yes, yes, None, None], yes),
            (vec![yes, yes, no, None, None], None),
            (vec![yes, yes, no, no, None], None),
            (vec![yes, yes, no, no, yes], yes),
            (vec![yes, yes, no, no, no], no),
            (vec![no, no, no, None, None], no),
            (vec![yes, yes, None], yes),
            (vec![yes, no, None], None),
            // Of four another needs three.
            (vec![yes, yes, no, no], yes),
            (vec![yes, yes, None, None], yes),
            (vec![yes, no, None, no], None),
        ] {
            assert_eq!(kept_until_released(&had), held, "{had:?}");
        }
    }

    #[test]
    fn what_a_majority_has_is_the_least_of_the_best() {
        assert_eq!(by_majority(5, vec![9, 1, 5, 7]), Some(5));
        assert_eq!(by_majority(5, vec![9, 1]), None);
    }
}
