//! That the fault tests bite: clients broken on purpose, each in one of twelve ways, and the very assertion of a test that must notice.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::flaw::Flaw;
use crate::process::By;
use crate::server::Flavour;
use crate::site::Site;
use crate::{cancelled, faults, in_turn, outage, process, set_back, standing};

/// Gives a panic of the future instead of passing it on.
struct Caught<F>(Pin<Box<F>>);

impl<F: Future<Output = ()>> Future for Caught<F> {
    type Output = Result<(), String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match std::panic::catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                Poll::Ready(Err(text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()))
            }
        }
    }
}

/// Asserts that the assertion fails, and for this reason.
async fn notices(assertion: impl Future<Output = ()>, reason: &str) {
    match Caught(Box::pin(assertion)).await {
        Ok(()) => panic!("not noticed"),
        Err(why) => assert!(why.contains(reason), "noticed for another reason: {why}"),
    }
}

/// One test per flaw.
macro_rules! controls {
    ($($control:ident: $flaw:ident, noticed by $file:ident :: $assertion:ident as $reason:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $control() {
                let Some(site) = Site::broken(Flaw::$flaw).await else { return };
                notices($file::$assertion(&site), $reason).await;
            }
        )*
    };
}

controls! {
    no_owner_check_on_release: NoOwnerCheckOnRelease,
        noticed by faults::a_release_by_one_who_lost_it_frees_nobody as "freed what somebody else holds";
    non_idempotent_acquire: AcquireIsNotIdempotent,
        noticed by faults::a_lost_grant_is_asked_for_again_and_held_once as "it was ours all the time";
    plain_counter_token: PlainCounterToken,
        noticed by outage::tokens_grow_although_the_server_forgot as "a token went back";
    ignored_renewal_refusal: RenewalRefusalIgnored,
        noticed by outage::what_the_server_forgot_is_told_to_its_holders as "nobody was told";
    no_poll_fallback: NoPollFallback,
        noticed by standing::a_release_that_nobody_hears_of_reaches_a_waiter as "still waits";
    no_not_after: NoNotAfter,
        noticed by faults::a_request_that_comes_after_its_time_takes_nothing as "holds the lock";
    one_wire_owner_for_several_acquisitions: OneWireOwner,
        noticed by faults::a_stale_release_frees_nothing_newer as "freed a newer hold";
    no_release_behind_a_cancelled_request: NoReleaseBehind,
        noticed by cancelled::a_release_follows_the_request_of_a_cancelled_call as "held by a call that was cancelled";
    first_waiter_with_unlimited_precedence: KeepsForFirst,
        noticed by in_turn::a_try_beside_a_woken_client as "nobody holds it";
    registration_without_an_end: RegistersForEver,
        noticed by in_turn::in_the_order_in_which_they_came as "the set of those that wait ends by itself";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_that_never_shorten() {
    let Some((site, clock)) = set_back::under_a_clock("a negative control", Flavour::Redis, Some(Flaw::NoReach)).await else {
        return;
    };
    notices(set_back::a_crash_after_a_clock_step_blocks_for_a_lease(&site, &clock), "still kept for long").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wall_clock_deadline() {
    let Some(site) = Site::sound("a negative control").await else { return };
    if crate::clock::WallClock::new("a negative control").is_none() {
        return;
    }
    let by_the_wall_clock = process::a_holder_whose_wall_clock_is_set_back_does_not_outlive_its_lease(&site, By::WallClock);
    notices(by_the_wall_clock, "a hold outlived its lease").await;
}
