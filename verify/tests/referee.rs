//! The referee finds every broken promise, and nothing in a history that keeps them.

use lockkeeper_verify::{Event, Limits, Promise, Referee, Side, Verdict, What};

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;
const LEASE: u64 = 3 * SECOND;
/// P3's deadline of a hold that was asked for at 0.
const DEADLINE: u64 = LEASE - LEASE / 100 - 2 * MILLI;

fn owner(client: u32) -> String {
    format!("{client}:1")
}

fn event(at: u64, client: u32, what: What) -> Event {
    Event { at, client, what }
}

fn call(at: u64, client: u32) -> Event {
    event(at, client, What::Call { call: 1, name: "x".into() })
}

fn granted_as(at: u64, client: u32, side: Side, token: Option<u64>) -> Event {
    let sent = at.saturating_sub(MILLI);
    event(at, client, What::Granted { call: 1, name: "x".into(), owner: owner(client), side, token, sent, lease: LEASE })
}

fn granted(at: u64, client: u32, token: u64) -> Event {
    granted_as(at, client, Side::Exclusive, Some(token))
}

fn held(at: u64, client: u32, token: u64) -> Event {
    let (name, side) = ("x".into(), Side::Exclusive);
    event(at, client, What::Held { name, owner: owner(client), side, token: Some(token), lease: LEASE, clock: Some(at / 1_000) })
}

fn freed(at: u64, client: u32) -> Event {
    event(at, client, What::Freed { name: "x".into(), owner: owner(client), forced: false })
}

fn release(at: u64, client: u32) -> Event {
    event(at, client, What::Release { name: "x".into(), owner: owner(client) })
}

fn lost(at: u64, client: u32) -> Event {
    event(at, client, What::Lost { name: "x".into(), owner: owner(client) })
}

fn probed(at: u64, client: u32) -> Event {
    event(at, client, What::Probed { name: "x".into(), owner: owner(client), valid: true })
}

fn wrote(at: u64, token: u64, read: u64, wrote: u64) -> Event {
    event(at, 1, What::Wrote { resource: "r".into(), token, read, wrote })
}

fn judge(events: &[Event], end: u64) -> Verdict {
    let mut referee = Referee::new(Limits { slack: MILLI, ..Limits::default() });
    events.iter().for_each(|event| referee.observe(event));
    referee.finish(end)
}

#[track_caller]
fn keeps(events: &[Event], end: u64) -> Verdict {
    let verdict = judge(events, end);
    assert!(verdict.violations.is_empty(), "{:?}", verdict.violations);
    verdict
}

#[track_caller]
fn breaks(promise: Promise, events: &[Event], end: u64) {
    let verdict = judge(events, end);
    let found: Vec<Promise> = verdict.violations.iter().map(|violation| violation.promise).collect();
    assert_eq!(found, [promise], "{:?}", verdict.violations);
}

#[test]
fn a_history_that_keeps_all_promises_is_passed_and_each_was_checked() {
    let events = [
        call(0, 1),
        held(5 * MILLI, 1, 10),
        granted(10 * MILLI, 1, 10),
        call(11 * MILLI, 2),
        probed(20 * MILLI, 1),
        wrote(21 * MILLI, 10, 0, 1),
        release(30 * MILLI, 1),
        freed(31 * MILLI, 1),
        held(32 * MILLI, 2, 11),
        granted(33 * MILLI, 2, 11),
        wrote(34 * MILLI, 11, 1, 2),
        freed(40 * MILLI, 2),
        lost(50 * MILLI, 2),
        call(60 * MILLI, 3),
        held(61 * MILLI, 3, 12),
        event(62 * MILLI, 3, What::Crashed),
        event(63 * MILLI, 0, What::Asks { name: "latch".into(), change: 1 }),
        event(64 * MILLI, 0, What::Number { name: "latch".into(), value: 1 }),
    ];
    let verdict = keeps(&events, 60 * SECOND);
    for promise in Promise::ALL.into_iter().filter(|promise| *promise != Promise::History) {
        assert!(verdict.checks_of(promise) > 0, "{promise} was not checked");
    }
    assert_eq!(verdict.events, events.len() as u64);
}

#[test]
fn p1_two_holders_are_found_as_the_clients_see_it() {
    breaks(Promise::P1, &[granted(10 * MILLI, 1, 10), granted(20 * MILLI, 2, 11)], SECOND);
    keeps(&[granted(10 * MILLI, 1, 10), release(19 * MILLI, 1), granted(20 * MILLI, 2, 11)], SECOND);
}

#[test]
fn p1_a_hold_ends_for_others_at_its_deadline() {
    let after = DEADLINE + 10 * MILLI;
    keeps(&[granted(10 * MILLI, 1, 10), lost(after, 1), granted(after, 2, 11)], SECOND);
    breaks(Promise::P1, &[granted(10 * MILLI, 1, 10), granted(after - 2 * MILLI, 2, 11)], SECOND);
    // A process that was paused sees its guard when another has the name already.
    let (name, side) = ("x".into(), Side::Exclusive);
    let late = What::Granted { call: 1, name, owner: owner(1), side, token: Some(10), sent: 0, lease: LEASE };
    keeps(&[granted(DEADLINE, 2, 11), event(DEADLINE + MILLI, 1, late), lost(DEADLINE + MILLI, 1)], DEADLINE);
}

#[test]
fn p1_two_holders_are_found_in_the_store() {
    let calls = [call(0, 1), call(0, 2)];
    breaks(Promise::P1, &[&calls[..], &[held(10 * MILLI, 1, 10), held(20 * MILLI, 2, 11)]].concat(), SECOND);
    keeps(&[&calls[..], &[held(10 * MILLI, 1, 10), freed(15 * MILLI, 1), held(20 * MILLI, 2, 11)]].concat(), SECOND);
}

/// A replica that takes over has not got the last renewal: the hold ends sooner there.
#[test]
fn p1_counts_from_what_a_store_holds_that_took_over() {
    let calls = [call(0, 1), call(0, 2), held(MILLI, 1, 10)];
    let less = What::Held { name: "x".into(), owner: owner(1), side: Side::Exclusive, token: None, lease: SECOND, clock: None };
    let takes_over = [event(SECOND, 0, What::Unhealthy { forgot: false, lag: 0 }), event(SECOND, 1, less)];
    let next = [held(2 * SECOND, 2, 2_000_000)];
    breaks(Promise::P1, &[&calls[..], &next].concat(), 2 * SECOND);
    keeps(&[&calls[..], &takes_over, &next].concat(), 2 * SECOND);
    breaks(Promise::P1, &[&calls[..], &takes_over, &[held(2 * SECOND - MILLI, 2, 2_000_000)]].concat(), 2 * SECOND);
}

#[test]
fn p1_a_hold_that_an_operator_took_away_is_no_grant_any_more() {
    let taken = |forced| event(15 * MILLI, 1, What::Freed { name: "x".into(), owner: owner(1), forced });
    let second = [granted(20 * MILLI, 2, 11), lost(25 * MILLI, 1)];
    keeps(&[&[granted(10 * MILLI, 1, 10), taken(true)], &second[..]].concat(), 30 * MILLI);
    breaks(Promise::P1, &[&[granted(10 * MILLI, 1, 10), taken(false)], &second[..]].concat(), 30 * MILLI);
}

#[test]
fn p1_readers_share_and_exclude_writers() {
    let reader = |at, client| granted_as(at, client, Side::Shared, Some(5));
    keeps(&[reader(10 * MILLI, 1), reader(20 * MILLI, 2)], SECOND);
    breaks(Promise::P1, &[reader(10 * MILLI, 1), granted(20 * MILLI, 2, 6)], SECOND);
}

#[test]
fn p1_an_owner_that_enters_twice_holds_until_both_guards_are_gone() {
    let twice = [granted(SECOND, 1, 5), granted(2 * SECOND, 1, 5), release(2 * SECOND + MILLI, 1)];
    let next = granted(2 * SECOND + 4 * MILLI, 2, 6);
    breaks(Promise::P1, &[&twice[..], std::slice::from_ref(&next)].concat(), 3 * SECOND);
    keeps(&[&twice[..], &[release(2 * SECOND + 2 * MILLI, 1), next]].concat(), 3 * SECOND);
}

#[test]
fn p1_too_many_permits_are_found() {
    let permits = |client| granted_as(10 * MILLI, client, Side::Permits { take: 2, of: 4 }, None);
    keeps(&[permits(1), permits(2)], SECOND);
    breaks(Promise::P1, &[permits(1), permits(2), permits(3)], SECOND);
}

#[test]
fn p1_is_not_promised_for_holds_that_a_store_forgot() {
    let forgot = event(15 * MILLI, 0, What::Unhealthy { forgot: true, lag: 0 });
    let told = lost(25 * MILLI, 1);
    keeps(&[granted(10 * MILLI, 1, 10), forgot.clone(), granted(20 * MILLI, 2, 11), told.clone()], SECOND);
    let third = granted(30 * MILLI, 3, 12);
    breaks(Promise::P1, &[granted(10 * MILLI, 1, 10), forgot, granted(20 * MILLI, 2, 11), told, third], SECOND);
}

#[test]
fn p2_a_token_that_goes_back_is_found() {
    let first = [granted(10 * MILLI, 1, 10), release(11 * MILLI, 1)];
    for token in [9, 10] {
        breaks(Promise::P2, &[&first[..], &[granted(20 * MILLI, 2, token)]].concat(), SECOND);
    }
    keeps(&[&first[..], &[granted(20 * MILLI, 2, 11)]].concat(), SECOND);
}

#[test]
fn p2_a_writer_that_becomes_a_reader_may_keep_its_token() {
    let as_reader = |client: u32, token| {
        let mut event = granted_as(20 * MILLI, client, Side::Shared, Some(token));
        if let What::Granted { owner, .. } = &mut event.what {
            *owner = format!("{client}:2");
        }
        event
    };
    let first = [granted(10 * MILLI, 1, 10), release(11 * MILLI, 1)];
    keeps(&[&first[..], &[as_reader(1, 10)]].concat(), SECOND);
    breaks(Promise::P2, &[&first[..], &[as_reader(1, 9)]].concat(), SECOND);
    breaks(Promise::P2, &[&first[..], &[as_reader(2, 10)]].concat(), SECOND);
}

#[test]
fn p2_a_token_that_goes_back_is_found_far_behind() {
    let mut events = Vec::new();
    for round in 0..400 {
        let at = (10 + 10 * u64::from(round)) * MILLI;
        events.extend([granted(at, round, 1_000 + u64::from(round)), release(at + MILLI, round)]);
    }
    keeps(&events, 5 * SECOND);
    events.push(granted(4_500 * MILLI, 999, 1_001));
    breaks(Promise::P2, &events, 5 * SECOND);
}

#[test]
fn p2_orders_only_grants_that_do_not_overlap() {
    // Asked for before the other was answered: the store may have granted it first.
    let late_answer = event(
        40 * MILLI,
        2,
        What::Granted {
            call: 1,
            name: "x".into(),
            owner: owner(2),
            side: Side::Exclusive,
            token: Some(9),
            sent: 5 * MILLI,
            lease: LEASE,
        },
    );
    keeps(&[granted(10 * MILLI, 1, 10), release(11 * MILLI, 1), late_answer], SECOND);
}

#[test]
fn p2_a_server_whose_clock_lags_is_excused_for_that_long() {
    let first = [granted(10 * MILLI, 1, 10_000), release(11 * MILLI, 1)];
    let over = |lag| event(12 * MILLI, 0, What::Unhealthy { forgot: true, lag });
    keeps(&[&first[..], &[over(20 * MILLI), granted(20 * MILLI, 2, 9_000)]].concat(), SECOND);
    breaks(Promise::P2, &[&first[..], &[over(5 * MILLI), granted(20 * MILLI, 2, 9_000)]].concat(), SECOND);
}

#[test]
fn a_token_far_ahead_of_the_clock_of_the_store_is_found() {
    let ahead = |by: u64| [call(0, 1), held(10 * MILLI, 1, 10_000 + by)];
    keeps(&ahead(999_999), SECOND);
    breaks(Promise::TokenClock, &ahead(1_000_000), SECOND);
    let by_majority = |by: u64| [event(MILLI, 1, What::Token { name: "x".into(), token: 10_000 + by, clock: 10_000 })];
    keeps(&by_majority(999_999), SECOND);
    breaks(Promise::TokenClock, &by_majority(1_000_000), SECOND);
}

#[test]
fn p3_a_hold_that_looks_valid_after_its_deadline_is_found() {
    let first = granted(MILLI, 1, 10);
    keeps(&[first.clone(), probed(DEADLINE, 1), lost(DEADLINE, 1)], SECOND);
    breaks(Promise::P3, &[first, probed(DEADLINE + 1, 1), lost(DEADLINE + 1, 1)], SECOND);
}

#[test]
fn p3_a_renewal_counts_from_its_sending_and_revives_nothing() {
    let kept = |at, sent| event(at, 1, What::Kept { name: "x".into(), owner: owner(1), sent, lease: LEASE });
    let (first, end) = (granted(MILLI, 1, 10), SECOND + DEADLINE);
    keeps(&[first.clone(), kept(2 * SECOND, SECOND), probed(end, 1), lost(end, 1)], SECOND);
    breaks(Promise::P3, &[first.clone(), kept(2 * SECOND, SECOND), probed(end + 1, 1), lost(end + 1, 1)], SECOND);
    breaks(Promise::P3, &[first, kept(DEADLINE + 1, SECOND), probed(DEADLINE + 1, 1), lost(DEADLINE + 1, 1)], SECOND);
}

#[test]
fn p3_a_hold_that_was_lost_does_not_look_valid_again() {
    breaks(Promise::P3, &[granted(MILLI, 1, 10), lost(10 * MILLI, 1), probed(11 * MILLI, 1)], SECOND);
}

#[test]
fn p4_a_loss_that_is_not_told_is_found() {
    let first = [call(0, 1), held(MILLI, 1, 10), granted(MILLI, 1, 10), freed(10 * MILLI, 1)];
    let limit = 10 * MILLI + LEASE / 3 + MILLI;
    keeps(&[&first[..], &[lost(limit, 1)]].concat(), 2 * SECOND);
    breaks(Promise::P4, &[&first[..], &[lost(limit + 1, 1)]].concat(), 2 * SECOND);
    breaks(Promise::P4, &first, 2 * SECOND);
}

#[test]
fn p4_without_the_store_a_loss_is_told_at_the_deadline() {
    let first = [granted(MILLI, 1, 10), event(5 * MILLI, 1, What::Cut), freed(10 * MILLI, 1)];
    keeps(&[&first[..], &[lost(DEADLINE + MILLI, 1)]].concat(), 10 * SECOND);
    breaks(Promise::P4, &first, 10 * SECOND);
}

#[test]
fn p4_after_a_pause_a_loss_is_told_within_a_second() {
    let paused = [granted(MILLI, 1, 10), event(5 * MILLI, 1, What::Paused), event(20 * SECOND, 1, What::Resumed)];
    keeps(&[&paused[..], &[lost(21 * SECOND, 1)]].concat(), 30 * SECOND);
    breaks(Promise::P4, &paused, 30 * SECOND);
    keeps(&[granted(MILLI, 1, 10), event(5 * MILLI, 1, What::Crashed)], 30 * SECOND);
}

#[test]
fn p4_a_guard_that_comes_after_its_deadline_is_told_of_at_once() {
    let grant = |at| What::Granted {
        call: 1,
        name: "x".into(),
        owner: "1:1".into(),
        side: Side::Exclusive,
        token: Some(10),
        sent: at,
        lease: LEASE,
    };
    let late = event(20 * SECOND, 1, grant(MILLI));
    keeps(&[late.clone(), lost(20 * SECOND, 1)], 30 * SECOND);
    breaks(Promise::P4, &[late.clone(), lost(21 * SECOND, 1)], 30 * SECOND);
    breaks(Promise::P4, &[late], 30 * SECOND);
}

#[test]
fn p5_a_hold_that_outlives_its_client_by_more_than_the_lease_is_found() {
    let first = [call(0, 1), held(MILLI, 1, 10), event(2 * MILLI, 1, What::Crashed)];
    keeps(&first, 10 * SECOND);
    breaks(Promise::P5, &[&first[..], &[held(SECOND, 1, 10)]].concat(), 10 * SECOND);
}

#[test]
fn p5_a_hold_that_a_dropped_call_left_is_found() {
    let first = [call(0, 1), event(MILLI, 1, What::Ended { call: 1 }), held(2 * MILLI, 1, 10)];
    keeps(&first, 10 * SECOND);
    breaks(Promise::P5, &[&first[..], &[held(SECOND, 1, 10)]].concat(), 10 * SECOND);
    keeps(&[&first[..], &[held(SECOND, 1, 10), freed(2 * SECOND, 1)]].concat(), 10 * SECOND);
}

#[test]
fn p6_a_free_name_that_a_waiter_does_not_get_is_found() {
    let first = [call(0, 1), held(MILLI, 1, 10), granted(MILLI, 1, 10), call(2 * MILLI, 2)];
    let free = [&first[..], &[release(10 * MILLI, 1), freed(10 * MILLI, 1)]].concat();
    let got = |at| [held(at, 2, 11 + at / 1_000), event(at, 2, What::Ended { call: 1 }), freed(at, 2)];
    keeps(&[&free[..], &got(SECOND + 11 * MILLI)].concat(), 2 * SECOND);
    breaks(Promise::P6, &[&free[..], &got(SECOND + 12 * MILLI)].concat(), 2 * SECOND);
    breaks(Promise::P6, &free, 2 * SECOND);
}

#[test]
fn p6_counts_from_when_the_lease_ended_and_the_waiter_is_well() {
    let first = [call(0, 1), held(MILLI, 1, 10), event(MILLI, 1, What::Ended { call: 1 }), call(2 * MILLI, 2)];
    keeps(&first, LEASE + SECOND);
    breaks(Promise::P6, &first, LEASE + SECOND + 3 * MILLI);
    keeps(&[&first[..], &[event(SECOND, 2, What::Paused)]].concat(), 60 * SECOND);
    keeps(&[&first[..], &[event(LEASE, 2, What::Disturbed { lasts: 5 * SECOND })]].concat(), LEASE + 6 * SECOND);
    breaks(Promise::P6, &[&first[..], &[event(LEASE, 2, What::Disturbed { lasts: 5 * SECOND })]].concat(), LEASE + 7 * SECOND);
}

#[test]
fn p6_a_waiter_that_died_first_in_the_queue_delays_by_its_place() {
    let first = [call(0, 9), freed(0, 9), call(0, 1), event(MILLI, 1, What::Crashed)];
    keeps(&first, 6 * SECOND);
    breaks(Promise::P6, &first, 6 * SECOND + 3 * MILLI);
}

/// It gave up, and stopped before its undo could arrive: its place stands. Long after, the undo has arrived.
#[test]
fn p6_a_waiter_that_gave_up_right_before_it_stopped_delays_by_its_place() {
    let ended = event(MILLI, 1, What::Ended { call: 1 });
    let stops = |at| [call(0, 9), freed(0, 9), call(0, 1), ended.clone(), event(at, 1, What::Paused)];
    keeps(&stops(2 * MILLI), 6 * SECOND);
    breaks(Promise::P6, &stops(2 * MILLI), 6 * SECOND + 4 * MILLI);
    breaks(Promise::P6, &stops(3 * MILLI), 6 * SECOND);
}

#[test]
fn p7_a_lost_update_is_found() {
    keeps(&[wrote(MILLI, 10, 0, 1), wrote(2 * MILLI, 11, 1, 2)], SECOND);
    breaks(Promise::P7, &[wrote(MILLI, 10, 0, 1), wrote(2 * MILLI, 11, 0, 1)], SECOND);
}

#[test]
fn a_history_out_of_order_is_told() {
    breaks(Promise::History, &[call(10, 1), call(9, 2)], SECOND);
}

/// A hand-over inside a process: the same owner at the store, the next token, after the guard before it was released.
#[test]
fn a_hold_that_passes_on_has_one_guard_at_a_time() {
    let passed = granted_as(30 * MILLI, 1, Side::Exclusive, Some(6));
    let history =
        [call(0, 1), held(MILLI, 1, 5), granted(2 * MILLI, 1, 5), release(20 * MILLI, 1), call(25 * MILLI, 1), passed.clone()];
    keeps(&history[..4], 21 * MILLI);
    keeps(&history, 31 * MILLI);
    let early = [call(0, 1), held(MILLI, 1, 5), granted(2 * MILLI, 1, 5), call(25 * MILLI, 1), passed];
    breaks(Promise::P1, &early, 31 * MILLI);
}
