//! A waiter that leaves a long queue does not look at all the others.

use super::places::steps;
use super::tests::session_with;
use super::*;

const WAITERS: usize = 50_000;

/// What a waiter that leaves may look at, on average: the first one, itself, and the next.
const STEPS_EACH: usize = 6;

/// How many steps it takes all to leave, in an order that `order` makes of that of their arrival.
fn steps_to_leave(passed_over: bool, order: impl FnOnce(&mut Vec<Turn>)) -> usize {
    let session = session_with(|capabilities| capabilities);
    let (queue, core, name) = (Arc::new(LocalQueue::default()), session.core(), Name::new("m").unwrap());
    let mut turns: Vec<_> = (0..WAITERS).map(|_| queue.join(core, &name)).collect();
    for turn in &turns {
        lock(&turn.waiter.slot).passed_over = passed_over;
    }
    order(&mut turns);
    steps::taken();
    turns.into_iter().for_each(drop);
    assert!(lock(&queue.state).waiters.is_empty());
    steps::taken()
}

#[tokio::test(start_paused = true)]
async fn fifty_thousand_waiters_leave_in_bounded_steps() {
    for passed_over in [false, true] {
        let orders: [fn(&mut Vec<Turn>); 3] = [|_| {}, |turns| turns.reverse(), |turns| fastrand::shuffle(turns)];
        for (number, order) in orders.into_iter().enumerate() {
            let steps = steps_to_leave(passed_over, order);
            assert!(steps <= STEPS_EACH * WAITERS, "{steps} steps in order {number}, passed over: {passed_over}");
        }
    }
}

/// Negative control: a queue that is searched from its beginning for each one that leaves.
#[test]
fn a_search_from_the_beginning_is_caught() {
    let mut waiters = Places::default();
    let places: Vec<_> = (0..1_000).map(|number| (number, waiters.push(number))).collect();
    steps::taken();
    for (number, place) in places.into_iter().rev() {
        assert!(waiters.iter().any(|waiter| *waiter == number));
        waiters.remove(place);
    }
    let steps = steps::taken();
    assert!(steps > STEPS_EACH * 1_000, "{steps} steps");
}
