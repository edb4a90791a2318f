//! The end of one hold, its holder and their clocks, through random histories: renewals and extensions that are late, doubled, reordered or never
//! answered, and a clock that is set back. Times are multiples of ten seconds, so that ends meet each other often.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::far_ends::FarEnds;
use crate::backend::{Claim, Reach, Renew};
use crate::model::{Asked, MARGIN};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::Instant;

/// Every time is a multiple of this.
const UNIT: Duration = Duration::from_secs(10);

/// The lease of a renewal.
const LEASE: Duration = Duration::from_secs(30);

/// A request that is older than this does not arrive.
const LATEST: Duration = Duration::from_secs(50);

#[derive(Clone, Copy, Debug)]
enum Act {
    /// So many units pass.
    Pass(u32),
    /// The store's clock is set back by so many units.
    SetBack(u32),
    Renew,
    Extend(u32),
    Look,
    /// The store carries out a request that is on its way. It stays on its way if it comes twice.
    Arrive {
        which: usize,
        again: bool,
    },
    /// An answer arrives.
    Answer(usize),
}

fn events() -> impl Strategy<Value = Vec<Act>> {
    let event = prop_oneof![
        4 => (1_u32..4).prop_map(Act::Pass),
        1 => prop_oneof![Just(7_u32), Just(12), Just(30), Just(360)].prop_map(Act::SetBack),
        5 => Just(Act::Renew),
        2 => prop_oneof![Just(3_u32), Just(6), Just(12), Just(30), Just(90), Just(360)].prop_map(Act::Extend),
        1 => Just(Act::Look),
        9 => (0_usize..3, proptest::bool::weighted(0.2)).prop_map(|(which, again)| Act::Arrive { which, again }),
        7 => (0_usize..2).prop_map(Act::Answer),
    ];
    proptest::collection::vec(event, 0..80)
}

#[derive(Clone)]
struct Sent {
    request: Renew,
    asked: Asked,
    at: Instant,
}

struct History {
    rule: Rule,
    now: Instant,
    /// The store's clock and the end of the hold on it.
    clock: Instant,
    end: Instant,
    far: FarEnds,
    asked_until: Instant,
    on_the_way: Vec<Sent>,
    answers: Vec<(Sent, Instant, Duration)>,
    /// When the leases end that were carried out, on the holder's clock.
    promised: Instant,
}

/// The end after a request.
type Rule = fn(&Asked, Instant, Instant) -> Instant;

impl History {
    fn new(rule: Rule) -> Self {
        let (now, clock) = (Instant::default().plus(UNIT * 10_000), Instant::default().plus(UNIT * 100_000));
        let until = now.plus(LEASE);
        Self {
            rule,
            now,
            clock,
            end: clock.plus(LEASE),
            far: FarEnds::default(),
            asked_until: until,
            on_the_way: Vec::new(),
            answers: Vec::new(),
            promised: until,
        }
    }

    fn send(&mut self, lease: Option<Duration>) {
        // A nanosecond each, so that nothing happens at the same time.
        self.now = self.now.plus(Duration::from_nanos(1));
        self.asked_until = self.asked_until.max(self.now.plus(lease.unwrap_or_default()));
        let owner = WireOwner { client: ClientId::from_bits(1), number: 1 };
        let request = Renew::new(Name::new("m").unwrap(), Claim::Mutex, owner, lease);
        let request = request.with_reach(Reach::new(self.asked_until, self.now));
        let asked = self.far.ask(std::iter::once(&request), || self.now).remove(0);
        self.on_the_way.push(Sent { request, asked, at: self.now });
    }

    /// `false`: the hold is over.
    fn step(&mut self, event: Act) -> bool {
        match event {
            Act::Pass(units) => {
                self.now = self.now.plus(UNIT * units);
                self.clock = self.clock.plus(UNIT * units);
                let now = self.now;
                self.on_the_way.retain(|sent| now.since(sent.at) <= LATEST);
            }
            Act::SetBack(units) => {
                self.clock = Instant::from_nanos(self.clock.as_nanos() - u64::try_from((UNIT * units).as_nanos()).unwrap());
            }
            Act::Renew => self.send(Some(LEASE)),
            Act::Extend(units) => self.send(Some(UNIT * units)),
            Act::Look => self.send(None),
            Act::Arrive { which, again } => {
                if which < self.on_the_way.len() {
                    let sent = if again { self.on_the_way[which].clone() } else { self.on_the_way.remove(which) };
                    self.end = (self.rule)(&sent.asked, self.end, self.clock);
                    self.promised = self.promised.max(sent.at.plus(sent.request.lease.unwrap_or_default()));
                    self.answers.push((sent, self.end, self.end.since(self.clock)));
                }
            }
            Act::Answer(which) => {
                if which < self.answers.len() {
                    self.now = self.now.plus(Duration::from_nanos(1));
                    let (sent, end, left) = self.answers.remove(which);
                    self.far.answered(&sent.request, &sent.asked, Some((end, left)), || self.now);
                }
            }
        }
        self.end > self.clock
    }

    /// The store keeps the hold for as long as its holder was promised. (All requests together take less than a millisecond here.)
    fn keeps_its_promise(&self) -> bool {
        self.end.since(self.clock) + Duration::from_millis(1) > self.promised.since(self.now)
    }
}

/// What goes wrong under a rule.
fn broken(rule: Rule, events: &[Act]) -> Option<String> {
    let mut history = History::new(rule);
    for (number, event) in events.iter().enumerate() {
        let alive = history.step(*event);
        if !history.keeps_its_promise() {
            let (left, promised) = (history.end.since(history.clock), history.promised.since(history.now));
            return Some(format!("{left:?} are left of {promised:?} after {:?}", &events[..=number]));
        }
        if !alive {
            return None;
        }
    }
    None
}

const SOUND: Rule = |asked, end, now| asked.end_after(end, now);

proptest! {
    #![proptest_config(Config::with_cases(3_000))]
    /// P1: however requests arrive, nothing that was promised is cut.
    #[test]
    fn a_renewal_cuts_no_promise(events in events()) {
        prop_assert_eq!(broken(SOUND, &events), None);
    }

    /// P5: once the clock stands, two renewals that are answered one after the other are enough.
    #[test]
    fn two_renewals_bring_a_far_end_back(events in events(), back in 1_u32..1_000) {
        prop_assert_eq!(stays_far(SOUND, &events, back), None);
    }
}

/// How far the end still lies ahead after the clock was set back and the holder renewed, if that is too far.
fn stays_far(rule: Rule, events: &[Act], back: u32) -> Option<String> {
    let mut history = History::new(rule);
    if !events.iter().all(|event| history.step(*event)) {
        return None;
    }
    history.step(Act::SetBack(back));
    // Requests that named another end get their time, and are answered.
    for units in [1, 1, 1, 1, 1, 1, 1, 7, 0] {
        history.send(Some(LEASE));
        let (request, answer) = (history.on_the_way.len() - 1, history.answers.len());
        history.step(Act::Arrive { which: request, again: false });
        history.step(Act::Answer(answer));
        if !history.step(Act::Pass(units)) {
            return None;
        }
    }
    let (left, reach) = (history.end.since(history.clock), history.asked_until.since(history.now));
    (left > reach + MARGIN).then(|| format!("{left:?} are left, and {reach:?} are counted on"))
}

/// Negative controls: each condition of the rule is needed.
#[test]
fn rules_that_lack_a_condition_are_caught() {
    let always: Rule = |asked, end, now| {
        if asked.is_far(end, now) { now.plus(asked.reach.unwrap()) } else { asked.end_after(end, now) }
    };
    let to_the_lease: Rule = |asked, end, now| {
        let after = asked.end_after(end, now);
        if after < end { now.plus(asked.lease.unwrap_or_default()) } else { after }
    };
    let leaves_the_end: Rule = |asked, end, now| {
        let after = asked.end_after(end, now);
        if after < end { after } else { end.max(now.plus(asked.lease.unwrap_or_default())) }
    };
    for (what, rule) in [
        ("shortens whatever lies too far ahead", always),
        ("forgets extensions", to_the_lease),
        ("leaves the end that it names", leaves_the_end),
    ] {
        let mut runner = TestRunner::new_with_rng(
            Config { cases: 200_000, failure_persistence: None, ..Config::default() },
            proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
        );
        let found = runner.run(&events(), |events| match broken(rule, &events) {
            Some(why) => Err(TestCaseError::fail(why)),
            None => Ok(()),
        });
        assert!(found.is_err(), "a rule that {what} was not caught");
    }
    let never: Rule = |asked, end, now| end.max(now.plus(asked.lease.unwrap_or_default()));
    assert!(stays_far(never, &[], 360).is_some(), "a rule that never shortens was not caught");
}
