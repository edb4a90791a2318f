//! Many readers or one writer, and neither side starves.

use lockkeeper::backend::{Acquire, Attempt, Claim, Kind};
use lockkeeper::model::{Outcome, Record, Request};
use lockkeeper::owner::WireOwner;
use proptest::collection::vec;
use proptest::prop_oneof;
use proptest::strategy::{BoxedStrategy, Strategy};

use super::common::{Bench, OWNERS, Subject, Verdict, ensure, owner, prove};
use super::ledger::{Ledger, nanos_of};
use super::mutex::excludes;
use super::script::{Act, Ask, Move, script_on};

pub(crate) const WRITERS_FIRST: &str = "a reader yields to writers that came before it";
const READERS_FIRST: &str = "a reader yields to no writer that came after it";
const NO_IDLING: &str = "a free lock is granted to a writer";

/// A writer that was told to wait.
struct Mark {
    owner: WireOwner,
    since: u64,
    until: u64,
}

#[derive(Default)]
struct Marks(Vec<Mark>);

impl Marks {
    fn judge(&mut self, asked: &Acquire, attempt: &Attempt, ledger: &Ledger, at: u64) -> Verdict {
        if ledger.holds(asked.owner, asked.claim) {
            return Ok(());
        }
        let since = asked.since.as_nanos();
        let mut others = self.0.iter().filter(|mark| mark.owner != asked.owner);
        match (asked.claim, attempt) {
            // The writer itself may read: it is the one others wait for.
            (Claim::Read, Attempt::Granted(_)) if ledger.holds(asked.owner, Claim::Write) => Ok(()),
            (Claim::Read, Attempt::Granted(_)) => {
                ensure(!others.any(|mark| mark.since < since), WRITERS_FIRST, || format!("{asked:?} is granted"))
            }
            // Who came in the same instant is nobody's promise.
            (Claim::Read, Attempt::Busy(_)) => {
                let yields = ledger.is_taken_from(asked.owner) || others.any(|mark| mark.since <= since);
                ensure(yields, READERS_FIRST, || format!("{asked:?} is refused"))
            }
            (_, Attempt::Granted(_)) => {
                self.0.retain(|mark| mark.owner != asked.owner);
                Ok(())
            }
            (_, Attempt::Busy(_)) => {
                ensure(!ledger.is_free(), NO_IDLING, || format!("{asked:?} is refused"))?;
                if let Some(place) = asked.place {
                    let until = at + nanos_of(place);
                    match self.0.iter_mut().find(|mark| mark.owner == asked.owner) {
                        Some(mark) => mark.until = mark.until.max(until),
                        None => self.0.push(Mark { owner: asked.owner, since, until }),
                    }
                }
                Ok(())
            }
            (_, Attempt::Late) => Err(format!("what comes in time is not late: {asked:?}")),
            (_, other) => unreachable!("{other:?}"),
        }
    }
}

pub(crate) fn nobody_starves<S: Subject>(script: &[Move]) -> Verdict {
    let (mut bench, mut ledger, mut marks) = (Bench::<S>::default(), Ledger::default(), Marks::default());
    for (turn, Move { gap, wall, act }) in script.iter().enumerate() {
        bench.pass(*gap, *wall);
        let at = bench.at();
        ledger.expire(at);
        marks.0.retain(|mark| mark.until > at);
        let request = act.request(at, turn);
        // A successor is for mutexes only; refused, it leaves everything as it was.
        let Ok(step) = bench.send(&request) else { continue };
        match (&request, &step.answer) {
            (Request::Acquire(asked), Outcome::Acquire(attempt)) => marks.judge(asked, attempt, &ledger, at)?,
            (Request::Release(asked), _) if asked.claim == Claim::Write => marks.0.retain(|mark| mark.owner != asked.owner),
            _ => {}
        }
        ledger.enter(&request, &step.answer, at)?;
    }
    Ok(())
}

#[test]
fn a_writer_excludes_all_others() {
    prove(script_on(Kind::RwLock), |script| excludes::<Record>(script));
}

#[test]
fn readers_yield_to_earlier_writers_and_to_no_others() {
    prove(script_on(Kind::RwLock), |script| nobody_starves::<Record>(script));
}

/// What happens around a writer that waits.
#[derive(Clone, Debug)]
enum Around {
    NewReader { who: u64, lease: u64 },
    OldReaderLeaves { who: u64 },
    Nothing,
}

fn around() -> BoxedStrategy<Vec<(u64, Around)>> {
    let what = prop_oneof![
        4 => (0..OWNERS, 1..=40_u64).prop_map(|(who, lease)| Around::NewReader { who, lease }),
        1 => (0..OWNERS).prop_map(|who| Around::OldReaderLeaves { who }),
        1 => proptest::prelude::Just(Around::Nothing),
    ];
    vec((0..=4_u64, what), 1..=30).boxed()
}

/// Old readers 0 to 3, then a writer that asks again after each event, then new readers (100 and up) all the time.
fn the_writer_gets_its_turn<S: Subject>(leases: &[u64], events: &[(u64, Around)]) -> Verdict {
    const WRITER: u64 = 50;
    // Longer than any pause between two of its requests.
    const PLACE: u64 = 5;
    let mut bench = Bench::<S>::default();
    let start = bench.at();
    let ask = |who, claim, lease, age, place| Act::Acquire(Ask { who, claim, lease, place, age });
    let granted = |bench: &mut Bench<S>, act: Act| -> std::result::Result<bool, String> {
        let step = bench.send(&act.request(bench.at(), 0)).map_err(|error| error.to_string())?;
        Ok(matches!(step.answer, Outcome::Acquire(Attempt::Granted(_))))
    };
    let mut old: Vec<(u64, u64)> = Vec::new();
    for (who, lease) in (0..).zip(leases) {
        ensure(granted(&mut bench, ask(who, Claim::Read, *lease, 0, None))?, READERS_FIRST, || "nobody writes".to_owned())?;
        old.push((who, start + lease));
    }
    bench.pass(1, 0);
    let came = bench.at();
    for (gap, event) in [(0, Around::Nothing)].iter().chain(events) {
        bench.pass(*gap, 0);
        let at = bench.at();
        match event {
            Around::NewReader { who, lease } => {
                // It came after the writer, however long it has been asking.
                let age = (at - came).saturating_sub(1);
                let passed = at > came && granted(&mut bench, ask(100 + who, Claim::Read, *lease, age, None))?;
                ensure(!passed, WRITERS_FIRST, || format!("reader {who} is granted at {at}"))?;
            }
            Around::OldReaderLeaves { who } => {
                old.retain(|(reader, _)| reader != who);
                let leave = Act::Release { who: *who, claim: Claim::Read, then: None };
                bench.send(&leave.request(at, 0)).map_err(|error| error.to_string())?;
            }
            Around::Nothing => {}
        }
        old.retain(|(_, until)| *until > at);
        let turn = granted(&mut bench, ask(WRITER, Claim::Write, 1, at - came, Some(PLACE)))?;
        ensure(turn == old.is_empty(), NO_IDLING, || format!("{} at {at}: granted {turn}, {old:?} read", owner(WRITER)))?;
        if turn {
            return Ok(());
        }
    }
    Ok(())
}

#[test]
fn a_waiting_writer_is_granted_when_the_readers_before_it_are_gone() {
    let leases = vec(1..=40_u64, 0..=usize::try_from(OWNERS).expect("few"));
    prove((leases, around()), |(leases, events)| the_writer_gets_its_turn::<Record>(leases, events));
}
