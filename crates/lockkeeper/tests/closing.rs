//! Closing a client: when `close` says Ok, nothing of the client is left in the store, whatever its calls were doing.
#![allow(clippy::disallowed_methods, reason = "tests use tokio's clock")]

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use lockkeeper::backend::Backend;
use lockkeeper::layer::{Chaos, Fault, Faulty};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, ErrorKind, MultiLock, Result};
use tokio::time::{Instant, sleep};

const NAMES: [&str; 5] = ["mutex", "fair", "rwlock", "semaphore", "read"];

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A client that closes, one that stays, and the faults between the first one and their store.
fn clients() -> (Client, Client, Arc<Chaos>, Arc<MemoryStore>) {
    let runtime = Runtime::simulated();
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    let below: Arc<dyn Backend> = Arc::<MemoryStore>::clone(&store);
    let chaos = Arc::new(Chaos::new(Arc::clone(&below)));
    let client = |backend| Client::builder().runtime(runtime.clone()).with_backend(backend).unwrap();
    (client(Arc::<Chaos>::clone(&chaos)), client(below), chaos, store)
}

/// Everything in the store that is of this client.
async fn left_by(client: &Client, eyes: &Client) -> Vec<String> {
    let id = client.id().to_string();
    let mut left = Vec::new();
    for snapshot in eyes.list("*").await.unwrap() {
        let holders = snapshot.holders.iter().map(|holder| &holder.owner);
        let owners = holders.chain(snapshot.queue.iter().map(|waiter| &waiter.owner));
        left.extend(owners.filter(|owner| owner.starts_with(&id)).map(|owner| format!("{}: {owner}", snapshot.name)));
    }
    left
}

type Call = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// One call of each kind that waits while another client holds everything.
fn calls(client: &Client) -> Vec<Call> {
    macro_rules! call {
        ($asking:expr) => {{
            let asking = $asking.into_future();
            Box::pin(async move { asking.await.map(drop) }) as Call
        }};
    }
    let (mutex, rwlock) = (client.mutex("mutex"), client.rwlock("rwlock"));
    vec![
        call!(mutex.lock()),
        call!(client.fair_mutex("fair").lock()),
        call!(rwlock.write()),
        call!(client.rwlock("read").read()),
        call!(client.semaphore("semaphore", 2).acquire()),
        call!(MultiLock::new().and(&mutex).and(rwlock.write()).and(client.fair_mutex("fair").lock()).lock()),
    ]
}

/// Holds all names, in a way that each call has to wait for.
async fn hold_all(client: &Client) -> Vec<Box<dyn std::any::Any>> {
    vec![
        Box::new(client.mutex(NAMES[0]).lock().await.unwrap()),
        Box::new(client.fair_mutex(NAMES[1]).lock().await.unwrap()),
        Box::new(client.rwlock(NAMES[2]).write().await.unwrap()),
        Box::new(client.semaphore(NAMES[3], 2).acquire_many(2).await.unwrap()),
        Box::new(client.rwlock(NAMES[4]).write().await.unwrap()),
    ]
}

fn poll_once(call: &mut Call) {
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "it ended at once");
}

/// Waiters that sleep have places in queues; some run, and some belong to callers that do something else.
#[tokio::test(start_paused = true)]
async fn no_place_is_left_by_waiters_that_sleep() {
    for runs in [true, false] {
        let (client, eyes, _chaos, _store) = clients();
        let held = hold_all(&eyes).await;
        let mut waiting = Vec::new();
        let mut calls = calls(&client);
        for call in &mut calls {
            poll_once(call);
        }
        if runs {
            waiting.extend(calls.drain(..).map(tokio::spawn));
            sleep(ms(100)).await;
        }
        assert!(!left_by(&client, &eyes).await.is_empty(), "nobody waits in a queue: nothing was tested");
        let began = Instant::now();
        client.close().await.unwrap();
        assert_eq!(left_by(&client, &eyes).await, Vec::<String>::new(), "running: {runs}");
        assert!(began.elapsed() < ms(100), "running: {runs}: {:?}", began.elapsed());
        for waiting in waiting {
            let error = waiting.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        }
        assert!(began.elapsed() < ms(100), "waiters were told after {:?}", began.elapsed());
        drop((calls, held));
        sleep(ms(10)).await;
        assert_eq!(left_by(&client, &eyes).await, Vec::<String>::new(), "asked again after the end");
    }
}

/// The answer to a request was lost, and the call sleeps before it asks again.
#[tokio::test(start_paused = true)]
async fn no_hold_is_left_by_a_request_whose_answer_was_lost() {
    for call in 0..calls(&clients().0).len() {
        for broken in 1..4 {
            let (client, eyes, chaos, _store) = clients();
            let mut call = calls(&client).swap_remove(call);
            for _ in 0..broken {
                chaos.next(Faulty::Acquire, Fault::BreakReply);
            }
            let mut polls = 0;
            while chaos.carried_out(Faulty::Acquire) < broken {
                poll_once(&mut call);
                sleep(ms(1)).await;
                polls += 1;
                assert!(polls < 10_000, "the call does not ask again");
            }
            client.close().await.unwrap();
            assert_eq!(left_by(&client, &eyes).await, Vec::<String>::new());
            drop(call);
            sleep(ms(10)).await;
            assert_eq!(left_by(&client, &eyes).await, Vec::<String>::new());
        }
    }
}

/// The mutex is not handed over to a waiter of the client that closes, and a hand-over that is on its way is undone.
#[tokio::test(start_paused = true)]
async fn no_hold_is_left_by_a_hand_over() {
    for runs in [true, false] {
        for steps in 0..45 {
            let (client, eyes, chaos, _store) = clients();
            let guard = client.mutex("m").lock().await.unwrap();
            let mutex = client.mutex("m");
            let mut left = pin!(mutex.lock().into_future());
            let waiting = runs.then(|| tokio::spawn(client.mutex("m").lock().into_future()));
            if !runs {
                assert!(left.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            sleep(ms(10)).await;
            // Twenty steps there and twenty back: `close` comes before, between and after.
            chaos.yielding(20);
            let releasing = tokio::spawn(guard.release());
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            client.close().await.unwrap();
            assert_eq!(left_by(&client, &eyes).await, Vec::<String>::new(), "after {steps} steps, running: {runs}");
            let _ = releasing.await.unwrap();
            if let Some(waiting) = waiting {
                match waiting.await.unwrap() {
                    Ok(guard) => {
                        assert!(!guard.is_valid(), "after {steps} steps: it got it before, and does not know that it was lost");
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
                }
            }
            assert_eq!(left_by(&client, &eyes).await, Vec::<String>::new(), "after {steps} steps, running: {runs}");
        }
    }
}

/// A release that is under way when the client closes is waited for; one whose caller goes away meanwhile, too.
#[tokio::test(start_paused = true)]
async fn no_hold_is_left_by_a_release_that_is_under_way() {
    for abort in [false, true] {
        for steps in 0..45 {
            let (client, eyes, chaos, store) = clients();
            let guard = client.mutex("m").lock().await.unwrap();
            chaos.yielding(20);
            let releasing = tokio::spawn(guard.release());
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            if abort {
                releasing.abort();
            }
            client.close().await.unwrap();
            assert_eq!(left_by(&client, &eyes).await, Vec::<String>::new(), "after {steps} steps, aborted: {abort}");
            assert!(store.is_empty());
            drop(releasing.await);
        }
    }
}

/// What cannot be released is said: the store does not answer.
#[tokio::test(start_paused = true)]
async fn close_says_so_when_something_may_be_left() {
    let (client, _eyes, chaos, _store) = clients();
    let _guard = client.mutex("m").lock().await.unwrap();
    chaos.always(Faulty::Release, Fault::LoseRequest);
    let error = client.close().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
