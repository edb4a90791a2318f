//! That the suite bites: stores broken on purpose, each in one way, and the case that must notice.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use lockkeeper::Result;
use lockkeeper::backend::{
    Acquire, Attempt, Backend, Busy, Count, CountOutcome, Grant, Notifier, Release, Released, Renew, Renewed, Reply,
    Subscription, Watch,
};
use lockkeeper::conformance::{self, Harness, Need, Running, Time, World};
use lockkeeper::layer::Layer;
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::{Instant, Runtime};
use lockkeeper::store::memory::MemoryStore;

/// What is wrong with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// Nothing: the control of the controls.
    None,
    /// Whoever releases, it is free.
    ReleaseIgnoresTheOwner,
    /// An acquire sent again by its holder is busy.
    AcquireIsNotRepeatable,
    /// All grants have the same token.
    TokensAreConstant,
    /// A request is never too late.
    LateIsIgnored,
    /// Every renewal succeeds.
    RenewIsAlwaysKept,
    /// Nobody is woken.
    NobodyIsWoken,
    /// Everybody gets the lock.
    EverybodyIsGranted,
    /// A count sent again counts again.
    CountIsNotRepeatable,
    /// A hand-over releases, and forgets the successor.
    HandOverForgetsTheSuccessor,
    /// A place in the queue is kept for nobody.
    NobodyQueues,
    /// An acquire gives a lease twice as long.
    LeasesAreTooLong,
    /// A release does not tell that it woke others.
    WakingIsNotTold,
    /// A grant names tokens that it did not reserve.
    TokenRangesOverlap,
    /// A hold is kept although another client waits.
    HoldsAreKeptThoughOthersWait,
    /// A notification has no grant.
    GrantsAreNotPushed,
    /// A waiter is granted the name after it left.
    GrantsGoToThoseWhoLeft,
}

struct Broken {
    store: Arc<dyn Backend>,
    flaw: Flaw,
    /// Who holds what, for the flaws that need to know.
    granted: Arc<Mutex<Vec<(Name, WireOwner)>>>,
}

impl Broken {
    async fn acquire_wrongly(&self, mut request: Acquire) -> Result<Attempt> {
        let key = (request.name.clone(), request.owner);
        match self.flaw {
            Flaw::AcquireIsNotRepeatable if self.granted.lock().unwrap().contains(&key) => {
                return Ok(Attempt::Busy(Busy::default()));
            }
            Flaw::LateIsIgnored => request.not_after = Instant::NEVER,
            Flaw::NobodyQueues => request.place = None,
            Flaw::LeasesAreTooLong => request.lease *= 2,
            Flaw::TokenRangesOverlap => request.spare_tokens = 0,
            _ => {}
        }
        let attempt = self.store.acquire(request).await?;
        match (self.flaw, attempt) {
            (Flaw::TokensAreConstant, Attempt::Granted(grant)) => {
                return Ok(Attempt::Granted(Grant::new(grant.token.map(|_| 7), grant.good_for)));
            }
            (Flaw::EverybodyIsGranted, Attempt::Busy(_)) => {
                return Ok(Attempt::Granted(Grant::new(Some(7), Duration::from_secs(30))));
            }
            (Flaw::TokenRangesOverlap, Attempt::Granted(grant)) => {
                // Sixty seconds of tokens, so that the clock does not hide it.
                return Ok(Attempt::Granted(grant.with_spare_tokens(60_000_000)));
            }
            (_, Attempt::Granted(_)) => self.granted.lock().unwrap().push(key),
            _ => {}
        }
        Ok(attempt)
    }

    async fn release_wrongly(&self, mut request: Release) -> Result<Released> {
        self.granted.lock().unwrap().retain(|(name, owner)| (name, owner) != (&request.name, &request.owner));
        if self.flaw == Flaw::ReleaseIgnoresTheOwner {
            let forced = self.store.force_release(request.name.clone()).await?;
            self.store.release(request).await?;
            return Ok(Released::new(!forced.from.is_empty()).with_woke(0));
        }
        request.if_alone &= self.flaw != Flaw::HoldsAreKeptThoughOthersWait;
        let mut successor = None;
        if self.flaw == Flaw::HandOverForgetsTheSuccessor {
            successor = request.then.take();
        }
        let mut released = self.store.release(request).await?;
        if successor.is_some() {
            released.next = Some(Attempt::Granted(Grant::new(Some(7), Duration::from_secs(30))));
        }
        if self.flaw == Flaw::WakingIsNotTold {
            released.woke = None;
        }
        Ok(released)
    }
}

impl Layer for Broken {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.store
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { store: inner, flaw: self.flaw, granted: Arc::clone(&self.granted) })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Box::pin(self.acquire_wrongly(request))
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        Box::pin(self.release_wrongly(request))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        if self.flaw == Flaw::RenewIsAlwaysKept {
            return Box::pin(async move { Ok(requests.iter().map(|request| Ok(Renewed::kept(request.lease))).collect()) });
        }
        self.store.renew(requests)
    }

    fn count(&self, mut request: Count) -> Reply<'_, CountOutcome> {
        if self.flaw == Flaw::CountIsNotRepeatable {
            request.remember = Duration::ZERO;
        }
        self.store.count(request)
    }

    fn watch(&self, mut watch: Watch) -> Reply<'_, Subscription> {
        match self.flaw {
            Flaw::NobodyIsWoken => return Box::pin(async { Ok(Subscription::silent()) }),
            Flaw::GrantsAreNotPushed => watch.grant = None,
            Flaw::GrantsGoToThoseWhoLeft => {
                return Box::pin(async move {
                    let registered = self.store.watch(watch).await?;
                    // Never dropped: it stays registered.
                    Ok(Subscription::new(&Notifier::default(), Box::leak(Box::new(registered)) as &Subscription))
                });
            }
            _ => {}
        }
        self.store.watch(watch)
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broken({:?})", self.flaw)
    }
}

impl Harness for Flaw {
    fn time(&self) -> Time {
        Time::Simulated
    }

    async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
        Arc::new(Broken { store: Arc::new(MemoryStore::new(runtime)), flaw: *self, granted: Arc::default() })
    }
}

/// Whether the case fails on a store with this flaw. It must need nothing that the store does not have, or it would be skipped.
fn fails(flaw: Flaw, case: fn(&World) -> Running<'_>) -> bool {
    // The panics are what is wanted here: not a word about them.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let needs: &[Need] = &[];
    catch_unwind(AssertUnwindSafe(|| conformance::run(flaw, "a negative control", needs, case))).is_err()
}

/// One test per flaw: the case notices it, and does not complain about the same store without it.
macro_rules! notices {
    ($($flaw:ident in $test:ident by $group:ident :: $case:ident;)*) => {
        $(
            #[test]
            fn $test() {
                let case = conformance::case(stringify!($group), stringify!($case)).run;
                let noticed = fails(Flaw::$flaw, case);
                let wrongly = fails(Flaw::None, case);
                // Plain exits of the test would be silent under the hook.
                let name = concat!(stringify!($group), "::", stringify!($case));
                if !noticed {
                    println!("{name} does not notice that {:?}", Flaw::$flaw);
                }
                if wrongly {
                    println!("{name} complains about a sound store");
                }
                assert!(noticed && !wrongly, "{name} on {:?}", Flaw::$flaw);
            }
        )*
    };
}

notices! {
    ReleaseIgnoresTheOwner in a_release_by_another by contract::a_release_by_another_changes_nothing;
    ReleaseIgnoresTheOwner in a_late_release by mutex::a_late_release_is_refused_and_frees_nobody;
    AcquireIsNotRepeatable in a_repeated_acquire by contract::acquiring_twice_is_once;
    AcquireIsNotRepeatable in a_lost_grant by faults::a_grant_with_a_broken_answer_is_asked_for_again;
    TokensAreConstant in constant_tokens by fencing::tokens_grow_across_releases_and_clients;
    LateIsIgnored in a_late_acquire by contract::a_late_acquire_changes_nothing;
    RenewIsAlwaysKept in a_loss_untold by lease::a_loss_is_told_within_a_third_of_the_lease;
    RenewIsAlwaysKept in a_renewal_by_another by contract::a_renewal_by_another_is_gone;
    NobodyIsWoken in a_missing_wake_up by mutex::wakes_a_waiter_when_released;
    NobodyIsWoken in a_missing_notification by contract::a_subscriber_is_notified_of_what_happens_afterwards;
    EverybodyIsGranted in a_second_owner by mutex::excludes_a_second_owner;
    EverybodyIsGranted in a_lost_update by mutex::loses_no_update_of_what_it_protects;
    CountIsNotRepeatable in a_repeated_count by latch::a_lost_answer_counts_once;
    HandOverForgetsTheSuccessor in a_forgotten_successor by contract::a_hand_over_is_one_step;
    NobodyQueues in a_missing_queue by fairness::serves_in_order_across_clients;
    WakingIsNotTold in waking_untold by back_off::a_release_tells_whether_it_woke_somebody;
    WakingIsNotTold in a_starved_mutex by back_off::a_client_that_locks_again_lets_another_in;
    WakingIsNotTold in a_starved_writer by back_off::a_client_that_writes_again_lets_another_in;
    WakingIsNotTold in a_starved_permit by back_off::a_client_that_takes_a_permit_again_lets_another_in;
    TokenRangesOverlap in an_unreserved_token by contention::a_range_of_tokens_is_given_out_once;
    HoldsAreKeptThoughOthersWait in a_hold_kept_for_too_long by contention::a_hold_is_not_kept_when_another_client_waits;
    HoldsAreKeptThoughOthersWait in a_late_copy_that_grants by contention::a_hold_is_kept_while_no_other_client_waits;
    GrantsAreNotPushed in a_grant_not_pushed by contention::a_notification_brings_the_grant;
    GrantsGoToThoseWhoLeft in a_grant_for_nobody by contention::a_waiter_that_left_is_granted_nothing;
    LeasesAreTooLong in a_lease_too_long by mutex::a_dead_holder_is_gone_with_its_lease;
}
