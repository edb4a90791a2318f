//! A store whose holds live in sessions keeps the contract, and the suite notices one that does not.

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
    ($($flaw:ident in $test:ident by $group:ident :: $case:ident;)*) => {
        mod controls {
            use super::*;
            $(
                #[test]
                fn $test() {
                    let case: fn(&World) -> Running<'_> = |world| Box::pin(conformance::$group::$case(world));
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
    ForgetsPlaces in a_forgotten_place_of_a_mutex by cancel::a_held_mutex_is_left_wherever_it_is_dropped;
    ForgetsPlaces in a_forgotten_place_of_a_fair_mutex by cancel::a_held_fair_mutex_is_left_wherever_it_is_dropped;
    ForgetsPlaces in a_forgotten_place_of_a_reader by cancel::a_held_read_is_left_wherever_it_is_dropped;
    ForgetsPlaces in a_forgotten_place_of_a_writer by cancel::a_held_write_is_left_wherever_it_is_dropped;
    ForgetsPlaces in a_forgotten_place_of_a_permit by cancel::a_held_permit_is_left_wherever_it_is_dropped;
    ForgetsPlaces in a_forgotten_place_of_a_multi_lock by cancel::a_held_multi_lock_is_left_wherever_it_is_dropped;
    ForgetsPlaces in a_forgotten_place_of_any_claim by cancel::a_waiter_of_any_claim_that_gives_up_leaves_no_place;
    AcceptsEndedSessions in a_grant_in_an_ended_session by session::a_request_of_an_ended_session_is_not_granted;
    KeepsHoldsOfEndedSessions in a_hold_that_outlives_its_session by session::the_holds_of_a_dead_client_end_with_its_session;
    KeepsHoldsOfEndedSessions in a_place_that_outlives_its_session by session::the_places_of_a_dead_client_end_with_its_session;
    LosesWatchesSilently in a_watch_lost_silently by mutex::wakes_a_waiter_when_released;
}
