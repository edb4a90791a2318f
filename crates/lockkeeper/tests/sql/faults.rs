//! Networks that lose, delay, double and cut: what was answered stays true, and nothing waits for ever.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper::backend::{Attempt, Backend};
use lockkeeper::name::Name;
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::proxy::{Fault, Proxy};

use super::bench::{Bench, MORE_FAULTS, connect, is_granted, on_the_wire, release};

/// A store of the bench's tables behind a proxy.
pub(crate) async fn behind(bench: &Bench) -> (Proxy, Arc<dyn Backend>) {
    let proxy = Proxy::start(bench.server.port).await;
    let url = bench.url.replace(&format!(":{}/", bench.server.port), &format!(":{}/", proxy.port));
    let store = connect(&url, &bench.runtime).await;
    (proxy, store)
}

async fn is_held(bench: &Bench, name: &str) -> bool {
    bench.store.inspect(Name::new(name).unwrap()).await.unwrap().is_some()
}

/// Each fault at an acquire and at its release. An answer is true; an error leaves nothing that a release does not remove.
#[tokio::test]
async fn whatever_is_lost_or_cut_answers_stay_true() {
    let Some(bench) = Bench::open("lost and cut").await else { return };
    let (proxy, store) = behind(&bench).await;
    let mut faults = vec![Fault::LoseReply];
    faults.extend(MORE_FAULTS);
    faults.extend([0, 1, 4, 5, 60, 400].map(Fault::CutRequest));
    faults.extend([0, 1, 3, 4, 7, 12, 30, 60, 90].map(Fault::CutReply));
    for (number, fault) in (0_u64..).zip(faults) {
        // A fresh name, and one that the client knows.
        for known in [false, true] {
            let name = format!("f{number}{known}");
            let owner = number * 10 + 1;
            if known {
                assert!(is_granted(store.acquire(bench.ask(&name, owner)).await.unwrap()));
                store.release(release(&name, owner)).await.unwrap();
            }
            proxy.next(on_the_wire(&name), fault);
            let attempt = store.acquire(bench.ask(&name, owner + 1)).await;
            match attempt {
                Ok(Attempt::Granted(_)) => assert!(is_held(&bench, &name).await, "{fault:?}"),
                Ok(other) => panic!("{fault:?}: {other:?}"),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable), "{fault:?}: {error:?}");
                }
            }
            // Sent again it is granted, once.
            let again = async || matches!(store.acquire(bench.ask(&name, owner + 1)).await, Ok(Attempt::Granted(_)));
            async_until_within(Duration::from_secs(20), "granted again", again).await;
            proxy.next(on_the_wire(&name), fault);
            let _ = store.release(release(&name, owner + 1)).await;
            let gone = async || store.release(release(&name, owner + 1)).await.is_ok();
            async_until_within(Duration::from_secs(20), "released", gone).await;
            assert!(!is_held(&bench, &name).await, "{fault:?}");
        }
    }
}

/// A request that the network keeps, and lets go after its time: it is not carried out. The control was sent with more time.
#[tokio::test]
async fn a_request_that_arrives_late_is_not_carried_out() {
    let Some(bench) = Bench::open("a late request").await else { return };
    for (limit, carried_out) in [(500, false), (60_000, true)] {
        let (proxy, store) = behind(&bench).await;
        let name = format!("late{limit}");
        assert!(is_granted(store.acquire(bench.ask(&name, 1)).await.unwrap()));
        store.release(release(&name, 1)).await.unwrap();
        proxy.next(on_the_wire(&name), Fault::Hold);
        let now = bench.runtime.now();
        let asked = bench.ask(&name, 2).with_times(now, now.plus(Duration::from_millis(limit)));
        let asking = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.acquire(asked).await }
        });
        async_until_within(Duration::from_secs(20), "the request is held", || async { proxy.met() }).await;
        // In time for the second one, and for the slack of a step.
        tokio::time::sleep(Duration::from_millis(700)).await;
        proxy.let_go();
        let told = asking.await.unwrap();
        assert_eq!(matches!(told, Ok(Attempt::Granted(_))), carried_out, "{told:?}");
        assert_eq!(is_held(&bench, &name).await, carried_out, "{told:?}");
    }
}

/// A caller that went away in the middle of an answer leaves nothing unread: the next request gets its own answer.
#[tokio::test]
async fn a_caller_that_goes_away_disturbs_no_other() {
    let Some(bench) = Bench::open("callers that go away").await else { return };
    let (proxy, store) = behind(&bench).await;
    proxy.delay_answers_of_present_connections(Duration::from_millis(20));
    for number in 0..30_u64 {
        let name = format!("gone{number}");
        let dropped = store.acquire(bench.ask(&name, number));
        let _ = tokio::time::timeout(Duration::from_millis(number % 25), dropped).await;
        let other = format!("stays{number}");
        assert!(is_granted(store.acquire(bench.ask(&other, number)).await.unwrap()), "{number}");
        assert!(is_held(&bench, &other).await);
        assert!(store.release(release(&other, number)).await.unwrap().held, "{number}");
    }
}

/// A connection that died without a word is given up, and nobody waits for ever.
#[tokio::test]
async fn a_connection_that_died_silently_is_made_anew() {
    let Some(bench) = Bench::open("a dead connection").await else { return };
    let (proxy, store) = behind(&bench).await;
    assert!(is_granted(store.acquire(bench.ask("m", 1)).await.unwrap()));
    proxy.kill_present_connections_silently();
    let error = tokio::time::timeout(Duration::from_secs(15), store.release(release("m", 1))).await.expect("it ends");
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Indeterminate);
    store.release(release("m", 1)).await.expect("a new connection");
    assert!(!is_held(&bench, "m").await);
}
