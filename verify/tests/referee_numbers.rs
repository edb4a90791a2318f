//! The referee's rules for latches and counting semaphores, for writers that become readers, and for holds that live in sessions.

use lockkeeper_verify::{Event, Limits, Promise, Referee, Side, What};

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;
/// How long a session lasts.
const LASTS: u64 = 3 * SECOND;

fn event(at: u64, client: u32, what: What) -> Event {
    Event { at: at * MILLI, client, what }
}

fn asks(at: u64, client: u32, change: i64) -> Event {
    event(at, client, What::Asks { name: "n".into(), change })
}

fn number(at: u64, value: i64) -> Event {
    event(at, 0, What::Number { name: "n".into(), value })
}

fn took(at: u64, client: u32, permits: u32) -> Event {
    event(at, client, What::Took { name: "n".into(), permits })
}

fn call(at: u64, client: u32) -> Event {
    event(at, client, What::Call { call: 1, name: "n".into() })
}

fn opened(at: u64, client: u32) -> Event {
    event(at, client, What::Opened { call: 1, name: "n".into() })
}

fn held(at: u64, client: u32, owner: &str, side: Side) -> Event {
    event(at, client, What::Held { name: "n".into(), owner: owner.into(), side, token: None, lease: LASTS, clock: None })
}

fn freed(at: u64, client: u32, owner: &str, forced: bool) -> Event {
    event(at, client, What::Freed { name: "n".into(), owner: owner.into(), forced })
}

fn granted(at: u64, client: u32, owner: &str, side: Side) -> Event {
    let (name, owner, sent) = ("n".into(), owner.into(), at * MILLI);
    event(at, client, What::Granted { call: 1, name, owner, side, token: None, sent, lease: LASTS })
}

fn broken(limits: Limits, events: &[Event], end: u64) -> Vec<Promise> {
    let mut referee = Referee::new(limits);
    events.iter().for_each(|event| referee.observe(event));
    referee.finish(end * MILLI).violations.into_iter().map(|violation| violation.promise).collect()
}

#[track_caller]
fn keeps(events: &[Event], end: u64) {
    assert_eq!(broken(Limits::default(), events, end), []);
}

#[track_caller]
fn breaks(promise: Promise, events: &[Event], end: u64) {
    assert_eq!(broken(Limits::default(), events, end), [promise]);
}

#[test]
fn numbers_each_request_counts_once() {
    let raised = [asks(1, 1, 3), number(2, 3), asks(3, 2, -1), number(4, 2)];
    keeps(&raised, 100);
    breaks(Promise::Numbers, &[&raised[..], &[number(5, 1)]].concat(), 100);
    breaks(Promise::Numbers, &[&raised[..], &[number(5, 3)]].concat(), 100);
    breaks(Promise::Numbers, &[asks(1, 1, -1), number(2, -1)], 100);
}

#[test]
fn numbers_what_a_store_lost_may_be_done_again() {
    let raised = [asks(1, 1, 3), number(2, 3)];
    let lost = |forgot| event(3, 0, What::Unhealthy { forgot, lag: 0 });
    keeps(&[&raised[..], &[lost(true), number(4, 3)]].concat(), 100);
    // The one that took over has an older number.
    keeps(&[&raised[..], &[lost(false), number(4, 0), number(5, 3)]].concat(), 100);
    breaks(Promise::Numbers, &[&raised[..], &[lost(false), number(4, 0), number(5, 4)]].concat(), 100);
}

#[test]
fn numbers_no_permit_is_taken_that_is_not_there() {
    let first = [asks(1, 1, 2), number(2, 2), asks(3, 1, -2), number(4, 0), took(5, 1, 2)];
    keeps(&first, 100);
    breaks(Promise::Numbers, &[&first[..], &[asks(6, 2, -1), took(7, 2, 1)]].concat(), 100);
}

#[test]
fn numbers_a_latch_lets_nobody_pass_while_it_is_closed() {
    let closed = [asks(1, 1, 1), number(2, 1), call(3, 2)];
    breaks(Promise::Numbers, &[&closed[..], &[opened(4, 2)]].concat(), 100);
    let open = [asks(4, 1, -1), number(5, 0)];
    keeps(&[&closed[..], &open, &[opened(6, 2)]].concat(), 100);
    // It was open for a moment while the call waited.
    let again = [asks(6, 1, 1), number(7, 1)];
    keeps(&[&closed[..], &open, &again, &[opened(8, 2)]].concat(), 100);
    let late = [call(8, 3), opened(9, 3)];
    breaks(Promise::Numbers, &[&closed[..], &open, &again, &[opened(8, 2)], &late].concat(), 100);
}

#[test]
fn p6_a_latch_that_is_open_lets_everybody_pass() {
    let open = [asks(1, 1, 1), number(2, 1), call(3, 2), asks(4, 1, -1), number(5, 0)];
    keeps(&[&open[..], &[opened(900, 2)]].concat(), 5_000);
    keeps(&[&open[..], &[event(900, 2, What::Ended { call: 1 })]].concat(), 5_000);
    breaks(Promise::P6, &open, 2_000);
}

#[test]
fn p1_a_writer_that_becomes_a_reader_lets_no_writer_in_between() {
    let beside = event(2, 1, What::Beside { name: "n".into(), owner: "1:2".into(), writer: "1:1".into() });
    let downgraded = event(9, 1, What::Downgraded { name: "n".into(), from: "1:1".into(), to: "1:2".into() });
    let writes = [call(0, 1), held(1, 1, "1:1", Side::Exclusive), granted(1, 1, "1:1", Side::Exclusive)];
    let gives_up = [call(2, 1), event(2, 1, What::Release { name: "n".into(), owner: "1:1".into() })];
    let begins = [&writes[..], &gives_up, &[beside]].concat();
    let reads = [held(6, 1, "1:2", Side::Shared)];
    let ends = [downgraded, granted(9, 1, "1:2", Side::Shared)];
    let frees = |forced| freed(4, 1, "1:1", forced);
    keeps(&[&begins[..], &reads, &[freed(7, 1, "1:1", false)], &ends].concat(), 100);
    // The store may renew the writer's hold while the reader is there.
    keeps(&[&begins[..], &reads, &[held(7, 1, "1:1", Side::Exclusive), freed(8, 1, "1:1", false)], &ends].concat(), 100);
    let other = [call(4, 2), held(4, 2, "2:1", Side::Exclusive), freed(5, 2, "2:1", false)];
    breaks(Promise::P1, &[&begins[..], &[frees(false)], &other, &reads, &ends].concat(), 100);
    keeps(&[&begins[..], &[frees(true)], &other, &reads, &ends].concat(), 100);
    // A store took over that has lost the reader, and knows the writer again.
    let takes_over = [event(7, 0, What::Unhealthy { forgot: false, lag: 0 }), freed(7, 1, "1:2", false)];
    let knows_again = [held(7, 1, "1:1", Side::Exclusive), freed(8, 1, "1:1", false)];
    let later = [call(8, 2), held(8, 2, "2:1", Side::Exclusive), freed(9, 2, "2:1", false)];
    keeps(&[&begins[..], &reads, &takes_over, &knows_again, &later, &ends].concat(), 100);
}

#[test]
fn p1_only_the_own_writer_lets_a_reader_in() {
    let writes = [call(0, 1), held(1, 1, "1:1", Side::Exclusive)];
    let beside = event(2, 2, What::Beside { name: "n".into(), owner: "2:1".into(), writer: "2:9".into() });
    breaks(Promise::P1, &[&writes[..], &[beside, call(2, 2), held(3, 2, "2:1", Side::Shared)]].concat(), 100);
}

const IN_SESSION: Limits = Limits {
    round_trip: 0,
    slack: MILLI,
    longest_delay: 0,
    free_while_waited_for: SECOND,
    dead_waiter: 5 * SECOND,
    asked_from: 0,
    picked_up: SECOND / 5,
    told_after_pause: SECOND,
    token_ahead: 1_000_000,
    clock_error: 0,
    copies: false,
    session: Some(LASTS),
};

#[test]
fn p1_a_hold_in_a_session_ends_when_the_store_says_so() {
    let long = [call(0, 1), held(1, 1, "1:1", Side::Exclusive), granted(1, 1, "1:1", Side::Exclusive)];
    let told = event(3_500, 1, What::Lost { name: "n".into(), owner: "1:1".into() });
    let next = [call(4_000, 2), held(4_001, 2, "2:1", Side::Exclusive), granted(4_001, 2, "2:1", Side::Exclusive)];
    assert_eq!(broken(IN_SESSION, &[&long[..], std::slice::from_ref(&told), &next].concat(), 4_002), [Promise::P4, Promise::P1]);
    let told = event(2_960, 1, What::Lost { name: "n".into(), owner: "1:1".into() });
    assert_eq!(broken(IN_SESSION, &[&long[..], &[told, freed(3_000, 1, "1:1", false)], &next].concat(), 4_002), []);
}

#[test]
fn p5_a_session_that_outlives_its_client_is_found() {
    let dies = [call(0, 1), held(1, 1, "1:1", Side::Exclusive), event(2, 1, What::Crashed)];
    assert_eq!(broken(IN_SESSION, &[&dies[..], &[freed(3_002, 1, "1:1", false)]].concat(), 9_000), []);
    assert_eq!(broken(IN_SESSION, &dies, 9_000), [Promise::P5]);
    // A call that nobody polls leaves a hold; the session lasts as long as its client is heard of.
    let left =
        [call(0, 1), held(1, 1, "1:1", Side::Exclusive), event(2, 1, What::Left { call: 1 }), event(2_000, 1, What::Paused)];
    assert_eq!(broken(IN_SESSION, &[&left[..], &[freed(5_000, 1, "1:1", false)]].concat(), 9_000), []);
    assert_eq!(broken(IN_SESSION, &left, 9_000), [Promise::P5]);
    // The store stood still: sessions count anew.
    let still = [event(100, 0, What::StoreStopped), event(5_000, 0, What::StoreResumed), freed(7_900, 1, "1:1", false)];
    assert_eq!(broken(IN_SESSION, &[&dies[..], &still].concat(), 9_000), []);
}

#[test]
fn p6_a_waiter_that_holds_a_name_in_its_session_notices() {
    let waits = [call(0, 1), held(1, 1, "1:1", Side::Exclusive)];
    let notices =
        [granted(900, 1, "1:1", Side::Exclusive), event(901, 1, What::Release { name: "n".into(), owner: "1:1".into() })];
    let ends = [freed(902, 1, "1:1", false)];
    assert_eq!(broken(IN_SESSION, &[&waits[..], &notices, &ends].concat(), 9_000), []);
    assert_eq!(broken(IN_SESSION, &waits, 2_000), [Promise::P6]);
}
