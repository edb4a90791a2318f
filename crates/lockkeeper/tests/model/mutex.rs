//! Exclusion: never two unexpired grants of a mutex.

use lockkeeper::backend::Kind;
use lockkeeper::model::Record;

use super::common::{Bench, Subject, Verdict, prove};
use super::ledger::Ledger;
use super::script::{Move, script_on};

/// Replays a history of a mutex or a read-write lock and keeps account of it.
pub(crate) fn excludes<S: Subject>(script: &[Move]) -> Verdict {
    let (mut bench, mut ledger) = (Bench::<S>::default(), Ledger::default());
    for (turn, Move { gap, wall, act }) in script.iter().enumerate() {
        bench.pass(*gap, *wall);
        let request = act.request(bench.at(), turn);
        // A successor on anything but a mutex is refused, and then nothing happened.
        if let Ok(step) = bench.send(&request) {
            ledger.enter(&request, &step.answer, bench.at())?;
        }
    }
    Ok(())
}

#[test]
fn a_mutex_is_never_held_by_two() {
    prove(script_on(Kind::Mutex), |script| excludes::<Record>(script));
}
