//! Five hundred owners who all stand in the queue of the server itself: asked for one by one at the store, so that no local queue of a client keeps any of
//! them back. Each is served in its turn, and nothing is left.

use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Busy, Claim, Release};
use lockkeeper::name::Name;
use lockkeeper::owner::{ClientId, WireOwner};
use lockkeeper::runtime::Runtime;

const WAITERS: u64 = 500;

/// Longer than the test: places are asked for again here only when their turn has come.
const LEASE: Duration = Duration::from_secs(600);

fn owner(number: u64) -> WireOwner {
    WireOwner::new(ClientId::from_bits(0xbeef), number)
}

fn ask(name: &Name, number: u64, place: Option<Duration>) -> Acquire {
    let now = Runtime::system().now();
    Acquire::new(name.clone(), Claim::Fair, owner(number), LEASE).with_times(now, now.plus(LEASE)).with_place(place)
}

fn busy(attempt: Attempt) -> Busy {
    match attempt {
        Attempt::Busy(busy) => busy,
        other => panic!("{other:?} instead of having to wait"),
    }
}

/// Whether so many stand before a waiter, as far as the store says: etcd does not count them for each answer.
fn is_ahead(busy: &Busy, expected: u64) -> bool {
    busy.ahead.is_none_or(|ahead| u64::from(ahead) == expected)
}

async fn release(store: &dyn Backend, name: &Name, number: u64) {
    let released = store.release(Release::new(name.clone(), Claim::Fair, owner(number))).await.unwrap();
    assert!(released.held, "owner {number}");
}

/// `first` and `second` are two clients of one server: the waiters are theirs in turn. `nodes` counts what the server has in the queue of the name.
pub(crate) async fn five_hundred_waiters_are_served_in_order(
    first: &dyn Backend,
    second: &dyn Backend,
    name: &Name,
    nodes: impl AsyncFn() -> usize,
) {
    let of = |number: u64| if number.is_multiple_of(2) { first } else { second };
    // Sessions are kept by a keeper, which a store alone has not.
    let keep = async |number: u64| {
        if number.is_multiple_of(50) {
            first.keep_alive().await.unwrap();
            second.keep_alive().await.unwrap();
        }
    };
    assert!(matches!(of(0).acquire(ask(name, 0, None)).await.unwrap(), Attempt::Granted(_)));
    for number in 1..=WAITERS {
        keep(number).await;
        let busy = busy(of(number).acquire(ask(name, number, Some(LEASE))).await.unwrap());
        assert!(busy.placed && is_ahead(&busy, number - 1), "waiter {number}: {busy:?}");
    }
    assert_eq!(nodes().await, WAITERS as usize + 1, "all of them stand in the queue of the server");
    let mut last = None;
    for number in 0..WAITERS {
        keep(number).await;
        let next = number + 1;
        // Whoever is behind the next one still waits.
        if next < WAITERS && number.is_multiple_of(100) {
            let behind = busy(of(next + 1).acquire(ask(name, next + 1, Some(LEASE))).await.unwrap());
            assert!(is_ahead(&behind, 1), "waiter {}: {behind:?}", next + 1);
        }
        release(of(number), name, number).await;
        let mut granted = None;
        // A mirror or a watch may be late by a moment; nobody else is served meanwhile.
        for _ in 0..2_000 {
            match of(next).acquire(ask(name, next, Some(LEASE))).await.unwrap() {
                Attempt::Granted(grant) => {
                    granted = Some(grant);
                    break;
                }
                attempt => assert!(is_ahead(&busy(attempt), 0), "waiter {next}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let token = granted.unwrap_or_else(|| panic!("waiter {next} was not served")).token;
        assert!(token > last, "waiter {next}: {token:?} after {last:?}");
        last = token;
    }
    release(of(WAITERS), name, WAITERS).await;
    assert_eq!(nodes().await, 0, "nothing is left in the queue");
}
