//! Each transition, and what holds for every order of events.

use proptest::prelude::*;

use super::*;
use crate::owner::WireOwner;
use crate::session::WireHold;

const NOW: Instant = Instant::from_nanos(3_600_000_000_000);
const LIMIT: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(870);

fn at(now: Instant) -> Moment {
    Moment { now, poll: POLL }
}

fn machine(patience: Patience, queued: bool) -> Acquisition {
    Acquisition::new(patience, NOW, LIMIT, queued, Trouble::new(patience.bearable(&Settings::default())))
}

fn registers(command: &Command) -> Option<Register> {
    if let Command::Ask { register, .. } = command { Some(*register) } else { None }
}

fn answer(attempt: Attempt) -> Step {
    Step::Answered { answer: Ok(attempt), sent: NOW }
}

const BUSY: Attempt = Attempt::Busy(Busy { retry_in: None, ahead: None, placed: false, unseen: false });
const GRANTED: Attempt = Attempt::Granted(Grant::new(Some(1), Duration::from_secs(30)));

#[test]
fn a_waiter_that_listens_registers_behind_all_and_before_all_if_it_comes_too_late() {
    let mut machine = machine(Patience::Forever, true).woken_in_turn(true);
    let first = machine.step(Step::Started { may_ask: true }, at(NOW));
    assert_eq!(registers(&first), Some(Register::No), "nobody was in the way");
    assert!(matches!(machine.step(answer(BUSY), at(NOW)), Command::Subscribe { .. }));
    assert!(matches!(machine.step(Step::Subscribed(true), at(NOW)), Command::Look));
    let asks = |machine: &mut Acquisition| registers(&machine.step(Step::Stands(Stand::Ask), at(NOW)));
    assert_eq!(asks(&mut machine), Some(Register::Last));
    for _ in 0..2 {
        assert!(matches!(machine.step(answer(BUSY), at(NOW)), Command::Sleep { listen: true, .. }));
        assert!(matches!(machine.step(Step::Woken, at(NOW)), Command::Look));
        assert_eq!(asks(&mut machine), Some(Register::First));
    }
}

/// P6: the first in line that always comes too late would cost the others 50 ms at each release.
#[test]
fn a_waiter_whose_answers_are_slow_registers_behind_all_and_one_slow_answer_is_forgiven() {
    let (quick, slow) = (Duration::from_millis(25), Duration::from_millis(26));
    for (took, expected) in [
        (&[slow, slow, slow][..], Register::Last),
        (&[quick, slow], Register::First),
        (&[slow, quick], Register::First),
        (&[quick, slow, slow], Register::Last),
        (&[slow, slow, quick], Register::First),
        (&[slow, quick, slow], Register::First),
    ] {
        let mut machine = machine(Patience::Forever, true).woken_in_turn(true);
        let mut command = machine.step(Step::Started { may_ask: true }, at(NOW));
        let (mut now, mut answers) = (NOW, took.iter());
        let registered = loop {
            command = match command {
                Command::Ask { register, .. } => match answers.next() {
                    Some(took) => {
                        let sent = now;
                        now = now.plus(*took);
                        machine.step(Step::Answered { answer: Ok(BUSY), sent }, at(now))
                    }
                    None => break register,
                },
                Command::Subscribe { .. } => machine.step(Step::Subscribed(true), at(now)),
                Command::Sleep { .. } => machine.step(Step::Woken, at(now)),
                Command::Look => machine.step(Step::Stands(Stand::Ask), at(now)),
                other => panic!("{other:?}"),
            };
        };
        assert_eq!(registered, expected, "{took:?}");
    }
}

#[test]
fn where_the_store_has_a_queue_a_waiter_takes_its_place_behind_its_own_process_too() {
    let mut machine = machine(Patience::Forever, true).queueing(true);
    assert!(matches!(machine.step(Step::Started { may_ask: false }, at(NOW)), Command::Look));
    assert!(matches!(machine.step(Step::Stands(Stand::Wait), at(NOW)), Command::Sleep { .. }), "it is not first");
    assert!(matches!(machine.step(Step::Stands(Stand::Behind), at(NOW)), Command::Ask { .. }));
    let placed = Attempt::Busy(Busy { retry_in: None, ahead: Some(1), placed: true, unseen: false });
    assert!(matches!(machine.step(answer(placed), at(NOW)), Command::Subscribe { .. }));
    assert!(matches!(machine.step(Step::Subscribed(true), at(NOW)), Command::Look));
    assert!(matches!(machine.step(Step::Stands(Stand::Behind), at(NOW)), Command::Ask { .. }), "what was notified in between");
    assert!(matches!(machine.step(answer(placed), at(NOW)), Command::Sleep { listen: true, .. }));
    assert!(machine.leave(None).is_some(), "its place is undone");
}

#[test]
fn during_a_back_off_a_waiter_registers_once_and_is_not_granted() {
    let mut machine = machine(Patience::Forever, true).woken_in_turn(true);
    let until = NOW.plus(Duration::from_millis(20));
    let backs_off = Step::Stands(Stand::BackOff { until });
    assert!(matches!(machine.step(Step::Started { may_ask: false }, at(NOW)), Command::Look));
    assert!(matches!(machine.step(backs_off.clone(), at(NOW)), Command::Subscribe { .. }));
    assert!(matches!(machine.step(Step::Subscribed(true), at(NOW)), Command::Look));
    assert_eq!(registers(&machine.step(backs_off.clone(), at(NOW))), Some(Register::Only));
    let unseen = Attempt::Busy(Busy { retry_in: None, ahead: None, placed: false, unseen: true });
    assert!(matches!(machine.step(answer(unseen), at(NOW)), Command::Look), "the back-off goes on");
    assert!(matches!(machine.step(backs_off, at(NOW)), Command::Sleep { listen: true, .. }));
    let later = machine.step(Step::Stands(Stand::BackOff { until: until.plus(LIMIT) }), at(until));
    assert_eq!(registers(&later), Some(Register::Only), "it may have been woken since");
}

#[test]
fn the_uncontended_way_is_one_request() {
    let mut machine = machine(Patience::Forever, true);
    assert!(matches!(machine.step(Step::Started { may_ask: true }, at(NOW)), Command::Ask { sent: NOW, limit: LIMIT, .. }));
    assert!(matches!(machine.step(answer(GRANTED), at(NOW)), Command::Grant { handed_over: false, .. }));
    assert_eq!(machine.leave(None), None);
}

#[test]
fn a_try_asks_whoever_is_before_it_and_gives_up_when_busy() {
    let mut machine = machine(Patience::Try, true);
    assert!(matches!(machine.step(Step::Started { may_ask: false }, at(NOW)), Command::Ask { .. }));
    assert!(matches!(machine.step(answer(BUSY), at(NOW)), Command::GiveUp));
}

#[test]
fn busy_subscribes_asks_again_and_then_sleeps_for_less_than_a_second() {
    let mut machine = machine(Patience::Forever, false);
    machine.step(Step::Started { may_ask: true }, at(NOW));
    assert!(matches!(machine.step(answer(BUSY), at(NOW)), Command::Subscribe { .. }));
    assert!(matches!(machine.step(Step::Subscribed(true), at(NOW)), Command::Ask { .. }), "a notification may have been missed");
    assert!(matches!(machine.step(answer(BUSY), at(NOW)), Command::Sleep { until, listen: true } if until == NOW.plus(POLL)));
    assert!(matches!(machine.step(Step::Woken, at(NOW)), Command::Ask { .. }));
}

/// Where places do not end by themselves the first waiter of the process may stand behind it at the store.
#[test]
fn a_waiter_that_may_have_a_place_asks_whatever_its_place_in_the_process() {
    for in_session in [false, true] {
        let mut machine = machine(Patience::Forever, true).placed_if_unknown(in_session);
        machine.step(Step::Started { may_ask: true }, at(NOW));
        let error = Error::new(ErrorKind::Indeterminate, "no answer");
        machine.step(Step::Answered { answer: Err(error), sent: NOW }, at(NOW));
        assert!(matches!(machine.step(Step::Woken, at(NOW)), Command::Look));
        let command = machine.step(Step::Stands(Stand::Wait), at(NOW));
        assert_eq!(matches!(command, Command::Ask { .. }), in_session, "{command:?}");
    }
}

#[test]
fn without_a_subscription_it_polls_and_tries_to_subscribe_again() {
    let mut machine = machine(Patience::Forever, false);
    machine.step(Step::Started { may_ask: true }, at(NOW));
    machine.step(answer(BUSY), at(NOW));
    assert!(
        matches!(machine.step(Step::Subscribed(false), at(NOW)), Command::Sleep { until, listen: false } if until == NOW.plus(POLL))
    );
    assert!(matches!(machine.step(Step::Woken, at(NOW)), Command::Ask { .. }));
    assert!(matches!(machine.step(answer(BUSY), at(NOW)), Command::Subscribe { .. }));
}

#[test]
fn a_waiter_behind_a_local_holder_asks_after_a_poll() {
    let mut machine = machine(Patience::Forever, true);
    assert!(matches!(machine.step(Step::Started { may_ask: false }, at(NOW)), Command::Look));
    let behind = Step::Stands(Stand::Behind);
    assert!(matches!(machine.step(behind.clone(), at(NOW)), Command::Sleep { until, .. } if until == NOW.plus(POLL)));
    assert!(matches!(machine.step(behind, at(NOW.plus(POLL))), Command::Ask { .. }));
}

#[test]
fn a_waiter_behind_a_local_holder_subscribes_after_a_while_and_asks_no_sooner_for_it() {
    let mut machine = machine(Patience::Forever, true).listening_behind(true);
    machine.step(Step::Started { may_ask: false }, at(NOW));
    let (behind, later) = (Step::Stands(Stand::Behind), NOW.plus(LISTEN_AFTER));
    assert!(matches!(machine.step(behind.clone(), at(NOW)), Command::Sleep { until, .. } if until == later));
    assert!(matches!(machine.step(behind.clone(), at(later)), Command::Subscribe { .. }));
    assert!(matches!(machine.step(Step::Subscribed(true), at(later)), Command::Look));
    for _ in 0..3 {
        let slept = machine.step(behind.clone(), at(later));
        assert!(matches!(slept, Command::Sleep { until, listen: true } if until == NOW.plus(POLL)));
        assert!(matches!(machine.step(Step::Woken, at(later)), Command::Look), "notified");
    }
    assert!(matches!(machine.step(behind, at(NOW.plus(POLL))), Command::Ask { .. }));
}

#[test]
fn a_back_off_is_a_timer_with_a_subscription_and_no_request() {
    let mut machine = machine(Patience::Forever, true);
    machine.step(Step::Started { may_ask: false }, at(NOW));
    let until = NOW.plus(Duration::from_millis(20));
    assert!(matches!(machine.step(Step::Stands(Stand::BackOff { until }), at(NOW)), Command::Subscribe { .. }));
    assert!(matches!(machine.step(Step::Subscribed(true), at(NOW)), Command::Look));
    let slept = machine.step(Step::Stands(Stand::BackOff { until }), at(NOW));
    assert!(matches!(slept, Command::Sleep { until: end, listen: true } if end == until));
}

#[test]
fn patience_counts_from_the_sending_of_the_first_request_that_failed() {
    let mut machine = machine(Patience::Forever, false);
    let (mut now, mut command) = (NOW, machine.step(Step::Started { may_ask: true }, at(NOW)));
    while let Command::Ask { limit, .. } = command {
        let sent = now;
        now = now.plus(limit);
        let error = Error::new(ErrorKind::Indeterminate, "no answer");
        command = machine.step(Step::Answered { answer: Err(error), sent }, at(now));
        if let Command::Sleep { until, .. } = command {
            now = until;
            command = machine.step(Step::Woken, at(now));
        }
    }
    assert!(matches!(command, Command::Fail(_)));
    let took = now.since(NOW);
    assert!(took >= Duration::from_secs(10) && took < Duration::from_millis(11_500), "gave up after {took:?}");
}

#[test]
fn a_waiter_with_a_place_in_the_store_asks_whatever_its_place_here() {
    let mut machine = machine(Patience::Forever, true);
    machine.step(Step::Started { may_ask: true }, at(NOW));
    machine.step(answer(Attempt::Busy(Busy { placed: true, ..Busy::default() })), at(NOW));
    machine.step(Step::Subscribed(true), at(NOW));
    assert!(matches!(machine.step(Step::Stands(Stand::Wait), at(NOW)), Command::Ask { .. }));
    assert!(matches!(machine.step(answer(BUSY), at(NOW)), Command::Sleep { until, listen: true } if until == NOW.plus(POLL)));
}

/// A hold that another guard of this process has left.
fn hold() -> WireHold {
    let owner = WireOwner { client: crate::owner::ClientId::from_bits(1), number: 99 };
    WireHold::granted(owner, Grant::new(Some(1), Duration::from_secs(30)).with_spare_tokens(7), NOW)
}

/// P1: a hold that passed to a waiter is used soon or not at all: whoever was paused longer asks the store.
#[test]
fn a_hold_that_passed_to_it_is_used_soon_or_not_at_all() {
    for (paused, used) in [(0, true), (49, true), (50, false), (3_600_000, false)] {
        let mut machine = machine(Patience::Forever, true);
        machine.step(Step::Started { may_ask: false }, at(NOW));
        let stands = Step::Stands(Stand::Passed { hold: hold(), since: NOW });
        let command = machine.step(stands, at(NOW.plus(Duration::from_millis(paused))));
        match command {
            Command::Grant { handed_over: true, moved: Some(Moved { owner, .. }), sent: NOW, .. } => {
                assert!(used && owner == hold().owner);
            }
            Command::Look => assert!(!used, "after {paused} ms"),
            other => panic!("{other:?}"),
        }
    }
}

/// A hold that passed to it is another owner's: what its own requests may have left is undone beside it.
#[test]
fn what_its_own_owner_left_is_undone_when_it_holds_under_another() {
    let mut machine = machine(Patience::Forever, true);
    machine.step(Step::Started { may_ask: true }, at(NOW));
    machine.step(Step::Answered { answer: Err(Error::new(ErrorKind::Indeterminate, "?")), sent: NOW }, at(NOW));
    machine.step(Step::Woken, at(NOW));
    assert!(matches!(machine.step(Step::Stands(Stand::Passed { hold: hold(), since: NOW }), at(NOW)), Command::Grant { .. }));
    assert!(machine.has_left_beside().is_some_and(|left| left.unanswered == 1 && left.settled_after == NOW.plus(LIMIT)));
    assert_eq!(machine.leave(None), None);
}

fn answers() -> impl Strategy<Value = Result<Attempt>> {
    let busy = any::<bool>().prop_map(|placed| Ok(Attempt::Busy(Busy { placed, ..Busy::default() })));
    prop_oneof![
        12 => busy,
        1 => Just(Ok(GRANTED)),
        2 => Just(Ok(Attempt::Late)),
        3 => Just(Err(Error::new(ErrorKind::Indeterminate, "?"))),
        1 => Just(Err(Error::new(ErrorKind::WrongKind, "no"))),
    ]
}

fn stands() -> impl Strategy<Value = Stand> {
    let by = |millis: u64| NOW.plus(Duration::from_millis(millis));
    prop_oneof![
        1 => Just(Stand::Wait),
        1 => Just(Stand::Behind),
        4 => Just(Stand::Ask),
        // Few of them, so that one goes on.
        4 => (1_u64..4).prop_map(move |times| Stand::BackOff { until: by(20 * times) }),
        1 => Just(Stand::HandedOver { attempt: None, sent: NOW, not_after: NOW.plus(LIMIT), moved: None }),
        1 => any::<bool>().prop_map(|own| {
            let moved = if own { None } else { Some(Moved { owner: hold().owner, passes: 0 }) };
            Stand::HandedOver { attempt: Some(GRANTED), sent: NOW, not_after: NOW.plus(LIMIT), moved }
        }),
        2 => (0_u64..100_000).prop_map(move |millis| Stand::Passed { hold: hold(), since: by(millis) }),
        1 => Just(Stand::Revoked),
    ]
}

/// The event that follows a command; `None`: it was the last one.
fn next(command: &Command, (answer, subscribed, stand): (Result<Attempt>, bool, Stand)) -> Option<Step> {
    Some(match command {
        Command::Ask { sent, register, .. } => {
            // A request that only registers is not granted.
            let registered = *register == Register::Only && answer.is_ok();
            let unseen = Attempt::Busy(Busy { unseen: true, ..Busy::default() });
            Step::Answered { answer: if registered { Ok(unseen) } else { answer }, sent: *sent }
        }
        Command::Subscribe { .. } => Step::Subscribed(subscribed),
        Command::Sleep { .. } | Command::NewOwner { .. } => Step::Woken,
        Command::Look => Step::Stands(stand),
        _ => return None,
    })
}

proptest! {
    /// Never a lost wake-up, and every way out undoes what it may have left. A notification that is lost is a `Woken` after a poll, a release that is
    /// sent twice is two of them, a receiver is paused before any event, and cancelled after any.
    #[test]
    fn every_order_of_events_sleeps_with_an_end_and_undoes_what_it_left(
        queued: bool,
        in_turn: bool,
        limit in proptest::option::of(0_u64..5_000),
        outage in proptest::option::of(0_u64..5_000),
        steps in proptest::collection::vec((answers(), any::<bool>(), stands(), prop_oneof![0_u64..20, 0_u64..1_500]), 0..120),
    ) {
        let patience = match (limit.map(Duration::from_millis), outage.map(Duration::from_millis)) {
            (None, None) => Patience::Forever,
            (Some(wait), None) => Patience::For(wait),
            (wait, Some(outage)) => Patience::Limited { wait: wait.unwrap_or(Duration::MAX), outage },
        };
        let mut machine = machine(patience, queued).woken_in_turn(in_turn);
        let (mut now, mut unanswered, mut placed, mut held) = (NOW, 0, false, false);
        // Whether it listens, and in which back-off it has registered last.
        let (mut listens, mut registered_in) = (false, None);
        let mut command = machine.step(Step::Started { may_ask: !queued }, at(now));
        for (answer, subscribed, stand, pause) in steps {
            let Some(event) = next(&command, (answer, subscribed, stand)) else { break };
            now = now.plus(Duration::from_millis(pause));
            match &event {
                Step::Answered { answer: Ok(Attempt::Busy(busy)), .. } => placed |= busy.placed,
                Step::Answered { answer: Err(error), .. } if error.may_have_taken() => unanswered += 1,
                Step::Stands(Stand::HandedOver { attempt: None, .. }) => unanswered += 1,
                _ => {}
            }
            let revoked = matches!(event, Step::Stands(Stand::Revoked));
            let waits_locally = matches!(event, Step::Stands(Stand::Wait));
            let unseen = matches!(event, Step::Answered { answer: Ok(Attempt::Busy(Busy { unseen: true, .. })), .. });
            let back_off = if let Step::Stands(Stand::BackOff { until }) = event { Some(until) } else { None };
            match (&command, &event) {
                (Command::Subscribe { .. }, Step::Subscribed(yes)) => (listens, registered_in) = (*yes, None),
                (_, Step::Stands(Stand::Revoked)) => listens = false,
                _ => {}
            }
            let paused = match &event {
                Step::Stands(Stand::Passed { since, .. }) => Some(now.since(*since)),
                _ => None,
            };
            command = machine.step(event, at(now));
            // The back-off may be over before a poll is due.
            prop_assert!(!unseen || matches!(command, Command::Look | Command::GiveUp), "{:?} after it registered", command);
            match &command {
                Command::Sleep { until, .. } => prop_assert!(
                    waits_locally || *until <= now.plus(Duration::from_millis(1_001)),
                    "sleeps until {until:?} at {now:?}, and nobody wakes it"
                ),
                Command::Ask { limit, register, .. } => {
                    prop_assert!(*limit > Duration::ZERO && machine.in_flight.is_some());
                    // Being woken took its place, and a request that left it without one would be woken by nobody.
                    prop_assert_eq!(*register != Register::No, in_turn && listens);
                    if *register == Register::Only {
                        prop_assert!(back_off.is_some() && back_off != registered_in, "once in a back-off, and nowhere else");
                        registered_in = back_off;
                    }
                }
                Command::Subscribe { .. } => prop_assert!(!listens, "it listens already"),
                Command::Grant { moved, .. } => {
                    prop_assert!(paused.is_none_or(|paused| moved.is_some() && paused < Duration::from_millis(50)));
                    held = true;
                    break
                }
                Command::GiveUp | Command::Fail(_) => break,
                Command::NewOwner { left } => {
                    prop_assert!(revoked && left.is_some() == (placed || unanswered > 0), "{:?}", left);
                    (unanswered, placed) = (0, false);
                }
                _ => {}
            }
        }
        let out = u32::from(machine.in_flight.is_some());
        let left = machine.leave(None);
        if held {
            prop_assert_eq!(left, None);
        } else if placed || unanswered + out > 0 {
            prop_assert!(left.is_some_and(|left| left.unanswered >= unanswered + out), "{:?}", left);
        }
        prop_assert_eq!(machine.leave(None), None, "undone once");
    }
}
