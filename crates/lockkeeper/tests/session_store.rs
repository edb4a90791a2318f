//! A store whose holds live in sessions keeps the contract, and the suite notices one that does not.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::Duration;

use lockkeeper::backend::Backend;
use lockkeeper::conformance::{self, Harness, Running, SessionFlaw, SessionStore, Time, World};
use lockkeeper::runtime::Runtime;

/// How long a session lasts without contact: not what a lease lasts by default.
const LASTS: Duration = Duration::from_secs(20);

struct Sessions(SessionFlaw);

impl Harness for Sessions {
    fn time(&self) -> Time {
        Time::Simulated
    }

    async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
        Arc::new(SessionStore::start(runtime, LASTS, self.0))
    }

    fn connect(&self, store: &Arc<dyn Backend>) -> Arc<dyn Backend> {
        let store = store.extension().and_then(|store| store.downcast_ref::<SessionStore>()).expect("the store that was opened");
        Arc::new(store.connect())
    }
}

lockkeeper::conformance!(Sessions(SessionFlaw::None));

/// Whether the case fails on a store with this flaw.
fn fails(flaw: SessionFlaw, case: fn(&World) -> Running<'_>) -> bool {
    // The panics are wanted here.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !std::thread::current().name().is_some_and(|name| name.starts_with("controls::")) {
                hook(panic);
            }
        }));
    });
    catch_unwind(AssertUnwindSafe(|| conformance::run(Sessions(flaw), "a negative control", &[], case))).is_err()
}

/// One test per flaw: the case notices it, and passes on the same store without it.
macro_rules! controls {
    ($($test:ident: $flaw:ident by $group:ident :: $case:ident;)*) => {
        mod controls {
            use super::*;
            $(
                #[test]
                fn $test() {
                    let case = conformance::case(stringify!($group), stringify!($case)).run;
                    let (noticed, wrongly) = (fails(SessionFlaw::$flaw, case), fails(SessionFlaw::None, case));
                    let name = concat!(stringify!($group), "::", stringify!($case));
                    println!("{name} on {:?}: noticed {noticed}, on a sound store: fails {wrongly}", SessionFlaw::$flaw);
                    assert!(noticed && !wrongly);
                }
            )*
        }
    };
}

controls! {
    a_forgotten_place_of_a_mutex: ForgetsPlaces by cancel::a_held_mutex_is_left_wherever_it_is_dropped;
    a_forgotten_place_of_a_fair_mutex: ForgetsPlaces by cancel::a_held_fair_mutex_is_left_wherever_it_is_dropped;
    a_forgotten_place_of_a_reader: ForgetsPlaces by cancel::a_held_read_is_left_wherever_it_is_dropped;
    a_forgotten_place_of_a_writer: ForgetsPlaces by cancel::a_held_write_is_left_wherever_it_is_dropped;
    a_forgotten_place_of_a_permit: ForgetsPlaces by cancel::a_held_permit_is_left_wherever_it_is_dropped;
    a_forgotten_place_of_a_multi_lock: ForgetsPlaces by cancel::a_held_multi_lock_is_left_wherever_it_is_dropped;
    a_forgotten_place_of_any_claim: ForgetsPlaces by cancel::a_waiter_of_any_claim_that_gives_up_leaves_no_place;
    a_grant_in_an_ended_session: AcceptsEndedSessions by session::a_request_of_an_ended_session_is_not_granted;
    a_hold_that_outlives_its_session: KeepsHoldsOfEndedSessions by session::the_holds_of_a_dead_client_end_with_its_session;
    a_place_that_outlives_its_session: KeepsHoldsOfEndedSessions by session::the_places_of_a_dead_client_end_with_its_session;
    a_watch_lost_silently: LosesWatchesSilently by mutex::wakes_a_waiter_when_released;
}

/// What the keeper makes of sessions.
mod keeping {
    use super::*;
    use lockkeeper::backend::Capabilities;
    use lockkeeper::layer::{Chaos, Fault, Faulty, Layer};
    use lockkeeper::session::{Session, Settings};
    use lockkeeper::{ErrorKind, LossReason, Mutex, MutexGuard, Semaphore};

    /// A client on a connection that can be disturbed.
    struct Client {
        session: Session,
        store: SessionStore,
        chaos: Arc<Chaos>,
        runtime: Runtime,
    }

    /// The same connection, as the test and the client both have it.
    fn client() -> Client {
        let runtime = Runtime::simulated();
        let store = SessionStore::start(runtime.clone(), LASTS, SessionFlaw::None);
        on(store, runtime)
    }

    fn on(store: SessionStore, runtime: Runtime) -> Client {
        let chaos = Arc::new(Chaos::new(Arc::new(store.clone())));
        let session = Session::new(Arc::clone(&chaos) as Arc<dyn Backend>, Settings::default(), runtime.clone()).unwrap();
        Client { session, store, chaos, runtime }
    }

    async fn locks(client: &Client, number: usize) -> Vec<MutexGuard> {
        let mut guards = Vec::new();
        for name in 0..number {
            guards.push(Mutex::new(&client.session, format!("m{name}")).lock().await.unwrap());
        }
        guards
    }

    #[tokio::test(start_paused = true)]
    async fn one_keep_alive_renews_every_hold() {
        let client = client();
        let guards = locks(&client, 500).await;
        let (before, began) = (client.chaos.carried_out(Faulty::Renew), client.runtime.now());
        tokio::time::sleep(10 * LASTS).await;
        let asked = client.chaos.carried_out(Faulty::Renew) - before;
        assert!((20..=35).contains(&asked), "{asked} requests in {:?}", client.runtime.now().since(began));
        assert!(guards.iter().all(|guard| guard.is_valid() && guard.remaining() <= LASTS));
        client.session.close().await.unwrap();
        assert!(client.store.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_default_lease_is_the_session() {
        let client = client();
        let guard = Mutex::new(&client.session, "m").lock().await.unwrap();
        assert!(guard.remaining() <= LASTS && guard.remaining() >= LASTS * 9 / 10, "{:?}", guard.remaining());
        guard.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_session_is_told_at_once_to_every_hold_of_the_client() {
        let client = client();
        let other = on(client.store.connect(), client.runtime.clone());
        let guards = locks(&client, 50).await;
        let permit = Semaphore::new(&client.session, "s", 1).acquire().await.unwrap();
        let theirs = Mutex::new(&other.session, "theirs").lock().await.unwrap();
        // In the middle of a period, so that the next keep-alive would come later.
        tokio::time::sleep(LASTS / 2).await;
        let began = client.runtime.now();
        client.store.end_session();
        for guard in &guards {
            assert_eq!(guard.lost().await, LossReason::Gone);
        }
        assert_eq!(permit.lost().await, LossReason::Gone);
        let took = client.runtime.now().since(began);
        assert!(took < Duration::from_millis(10), "told after {took:?}");
        assert!(theirs.is_valid());
        assert_eq!(permit.release().await.unwrap_err().kind(), ErrorKind::Lost);
        let again = Mutex::new(&client.session, "m0").lock().await.unwrap();
        tokio::time::sleep(2 * LASTS).await;
        assert!(again.is_valid() && theirs.is_valid());
        again.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_explicit_lease_is_ended_by_the_keeper_though_the_guard_lives() {
        let client = client();
        let other = on(client.store.connect(), client.runtime.clone());
        for lease in [LASTS / 4, 3 * LASTS] {
            let began = client.runtime.now();
            let guard = Mutex::new(&client.session, "m").lock().lease(lease).await.unwrap();
            let next = Mutex::new(&other.session, "m").lock().await.unwrap();
            let took = client.runtime.now().since(began);
            assert!(took >= lease * 98 / 100 && took <= lease + Duration::from_millis(50), "{lease:?}: free after {took:?}");
            assert!(!guard.is_valid());
            assert_eq!(guard.loss().reason(), Some(LossReason::Expired));
            next.release().await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn validity_counts_from_the_sending_of_the_last_answered_keep_alive() {
        let client = client();
        let guard = Mutex::new(&client.session, "m").lock().await.unwrap();
        tokio::time::sleep(2 * LASTS).await;
        // Carried out, so that the session goes on at the server; but the client does not know.
        client.chaos.always(Faulty::Renew, Fault::LoseReply);
        let deadline = client.runtime.now().plus(guard.remaining());
        assert_eq!(guard.lost().await, LossReason::Expired);
        assert!(client.runtime.now().since(deadline) < Duration::from_millis(10));
        client.chaos.calm();
        // The hold was lost here, so it is not left at the server, whose session goes on.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(client.store.is_empty());
        drop(guard);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_whose_session_ends_asks_again_in_a_new_one() {
        let client = client();
        let other = on(client.store.connect(), client.runtime.clone());
        let guard = Mutex::new(&other.session, "m").lock().await.unwrap();
        let session = client.session.clone();
        let waiter = tokio::spawn(async move { Mutex::new(&session, "m").lock().await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.store.end_session();
        tokio::time::sleep(Duration::from_secs(3)).await;
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap().expect("a session that ended is no reason to give up");
        guard.release().await.unwrap();
        assert!(client.store.is_empty());
    }

    /// The same store, which tells nothing by itself.
    #[derive(Debug)]
    struct Silent(Arc<dyn Backend>);

    impl Layer for Silent {
        fn inner(&self) -> &Arc<dyn Backend> {
            &self.0
        }

        fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
            Arc::new(Self(inner))
        }

        fn capabilities(&self) -> Capabilities {
            let mut capabilities = self.0.capabilities();
            capabilities.events = false;
            capabilities
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_events_the_keeper_asks_about_each_hold() {
        let runtime = Runtime::simulated();
        let store = Arc::new(SessionStore::start(runtime.clone(), LASTS, SessionFlaw::None));
        let session = Session::new(Arc::new(Silent(Arc::clone(&store) as _)), Settings::default(), runtime.clone()).unwrap();
        let kept = Mutex::new(&session, "kept").lock().await.unwrap();
        let guard = Mutex::new(&session, "m").lock().await.unwrap();
        tokio::time::sleep(LASTS * 5 / 2).await;
        assert!(guard.is_valid() && kept.is_valid());
        let began = runtime.now();
        store.force_release(lockkeeper::Name::new("m").unwrap()).await.unwrap();
        assert_eq!(guard.lost().await, LossReason::Gone);
        let took = runtime.now().since(began);
        assert!(took <= LASTS / 3 + Duration::from_millis(20), "told after {took:?}");
        assert!(kept.is_valid());
        kept.release().await.unwrap();
    }
}

/// Requests that a member of the store keeps back, and carries out when nobody expects them any more.
mod late {
    use std::sync::Mutex as Lock;

    use super::*;
    use lockkeeper::backend::{Acquire, Attempt, Release, Released, Reply};
    use lockkeeper::layer::Layer;
    use lockkeeper::session::{Session, Settings};
    use lockkeeper::{Error, ErrorKind, Mutex};

    /// Keeps the first request back, as a member does that hangs. A release that settles makes it void, as a store promises.
    #[derive(Clone, Debug)]
    struct Hung {
        inner: Arc<dyn Backend>,
        kept_back: Arc<Lock<Kept>>,
    }

    #[derive(Debug)]
    enum Kept {
        Nothing,
        Back(Box<Acquire>),
        Void,
    }

    impl Layer for Hung {
        fn inner(&self) -> &Arc<dyn Backend> {
            &self.inner
        }

        fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
            Arc::new(Self { inner, kept_back: Arc::clone(&self.kept_back) })
        }

        fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
            let mut kept = self.kept_back.lock().unwrap();
            if let Kept::Nothing = *kept {
                *kept = Kept::Back(Box::new(request));
                return Box::pin(std::future::pending());
            }
            self.inner.acquire(request)
        }

        fn release(&self, request: Release) -> Reply<'_, Released> {
            let mut kept = self.kept_back.lock().unwrap();
            if request.settle && matches!(&*kept, Kept::Back(back) if back.owner == request.owner) {
                *kept = Kept::Void;
            }
            self.inner.release(request)
        }
    }

    /// The one request without an answer was asked for again, and granted. It can arrive after the release, at any time.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_arrives_after_the_release_of_its_owner_leaves_nothing() {
        for (held, dropped) in [(Duration::ZERO, false), (LASTS * 2, false), (Duration::ZERO, true), (LASTS * 2, true)] {
            let runtime = Runtime::simulated();
            let store = SessionStore::start(runtime.clone(), LASTS, SessionFlaw::None);
            let hung = Hung { inner: Arc::new(store.clone()), kept_back: Arc::new(Lock::new(Kept::Nothing)) };
            let session = Session::new(Arc::new(hung.clone()), Settings::default(), runtime).unwrap();
            let guard = Mutex::new(&session, "m").lock().await.unwrap();
            tokio::time::sleep(held).await;
            if dropped {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }
            while !store.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let kept = std::mem::replace(&mut *hung.kept_back.lock().unwrap(), Kept::Void);
            match kept {
                // The member goes on.
                Kept::Back(request) => drop(store.acquire(*request).await.unwrap()),
                Kept::Nothing => panic!("the first request was not kept back"),
                Kept::Void => {}
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(store.is_empty(), "held {held:?}, dropped {dropped}: held for nobody, for as long as the client lives");
        }
    }

    /// Refuses releases for as long as it is told to.
    #[derive(Clone, Debug)]
    struct Refuses {
        inner: Arc<dyn Backend>,
        by: Arc<Lock<Option<ErrorKind>>>,
    }

    impl Layer for Refuses {
        fn inner(&self) -> &Arc<dyn Backend> {
            &self.inner
        }

        fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
            Arc::new(Self { inner, by: Arc::clone(&self.by) })
        }

        fn release(&self, request: Release) -> Reply<'_, Released> {
            match *self.by.lock().unwrap() {
                Some(kind) => Box::pin(async move { Err(Error::new(kind, "refused on purpose")) }),
                None => self.inner.release(request),
            }
        }
    }

    /// The session keeps a hold alive that nobody has: no lease would end it while the client lives.
    #[tokio::test(start_paused = true)]
    async fn a_release_is_tried_again_for_as_long_as_the_session_lives() {
        for kind in [ErrorKind::Unavailable, ErrorKind::Indeterminate, ErrorKind::Denied] {
            let runtime = Runtime::simulated();
            let store = SessionStore::start(runtime.clone(), LASTS, SessionFlaw::None);
            let refuses = Refuses { inner: Arc::new(store.clone()), by: Arc::new(Lock::new(Some(kind))) };
            let session = Session::new(Arc::new(refuses.clone()), Settings::default(), runtime).unwrap();
            drop(Mutex::new(&session, "m").lock().await.unwrap());
            tokio::time::sleep(5 * LASTS).await;
            assert!(!store.is_empty());
            *refuses.by.lock().unwrap() = None;
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(store.is_empty(), "{kind:?}: held for nobody, for as long as the client lives");
        }
    }

    /// The keeper of a client that was dropped does not try for ever: the session ends without it.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_was_dropped_gives_up_and_its_session_ends() {
        for kind in [ErrorKind::Unavailable, ErrorKind::Denied] {
            let runtime = Runtime::simulated();
            let store = SessionStore::start(runtime.clone(), LASTS, SessionFlaw::None);
            let by = Arc::new(Lock::new(Some(kind)));
            let refuses = Arc::new(Refuses { inner: Arc::new(store.clone()), by });
            let alive = Arc::downgrade(&refuses);
            let session = Session::new(refuses, Settings::default(), runtime).unwrap();
            drop(Mutex::new(&session, "m").lock().await.unwrap());
            tokio::time::sleep(5 * LASTS).await;
            drop(session);
            tokio::time::sleep(3 * LASTS).await;
            assert!(alive.upgrade().is_none(), "{kind:?}: the keeper still runs");
            assert!(store.is_empty(), "{kind:?}: kept alive for nobody");
        }
    }
}
