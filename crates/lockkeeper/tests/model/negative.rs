//! Negative controls: a model broken on purpose must be caught by the same checkers, for the law that it breaks.

use lockkeeper::Result;
use lockkeeper::backend::{Attempt, CountOutcome, Kind};
use lockkeeper::model::{self, Now, Outcome, Record, Request, Step, Wake};
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Instant;

use super::common::{Subject, attempt_in, refute};
use super::counter::{self, conserves};
use super::fair::{self, fair_script, serves_in_order};
use super::laws::{self, late_changes_nothing, twice_is_once};
use super::ledger;
use super::mutex::excludes;
use super::owners::{self, touches_only_its_own};
use super::rwlock::{self, nobody_starves};
use super::script::{any_script, script_and_kind, script_on};
use super::semaphore::{self, deeds, keeps_its_permits};
use super::tokens::{self, fenced_script, tokens_grow};
use super::waiting::{self, wakes_whom_it_frees};

/// The model behind a fault that changes what reaches it or what comes back.
macro_rules! broken {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* } |$me:ident, $request:ident, $now:ident| $body:expr) => {
        $(#[$doc])*
        #[derive(Clone, Default)]
        struct $name {
            record: Record,
            $($field: $type),*
        }

        impl Subject for $name {
            fn step(&mut self, request: &Request, now: Now) -> Result<Step<Outcome>> {
                let ($me, mut $request, mut $now) = (self, request.clone(), now);
                let _ = (&mut $request, &mut $now);
                $body
            }

            fn record(&self) -> &Record {
                &self.record
            }
        }
    };
}

broken! {
    /// Whoever releases, the last one granted loses its hold.
    ReleasesForAnybody { granted: Option<WireOwner> } |me, request, now| {
        if let (Request::Release(asked), Some(holder)) = (&mut request, me.granted) {
            asked.owner = holder;
            asked.then = None;
        }
        let answer = model::step(&mut me.record, &request, now);
        if let (Request::Acquire(asked), Ok(step)) = (&request, &answer)
            && matches!(step.answer, Outcome::Acquire(Attempt::Granted(_)))
        {
            me.granted = Some(asked.owner);
        }
        // It tells a lie that the account would believe: only a second grant gives it away.
        answer.map(|mut step| {
            if let Outcome::Release(released) = &mut step.answer {
                released.held = false;
            }
            step
        })
    }
}

broken! {
    /// A lease ends a little too early.
    ShortensLeases {} |me, request, now| {
        if let Request::Acquire(asked) = &mut request {
            asked.lease /= 2;
        }
        model::step(&mut me.record, &request, now)
    }
}

broken! {
    /// Waiters are told to wait and then forgotten.
    ForgetsPlaces {} |me, request, now| {
        match &mut request {
            Request::Acquire(asked) => asked.place = None,
            Request::Release(asked) => {
                if let Some(then) = &mut asked.then {
                    then.place = None;
                }
            }
            _ => {}
        }
        let mut answer = model::step(&mut me.record, &request, now);
        // As if the place were there, so that only the order of grants gives it away.
        if let Ok(Step { answer: Outcome::Acquire(Attempt::Busy(busy)), .. }) = &mut answer {
            busy.ahead = busy.ahead.or(Some(0));
        }
        answer
    }
}

broken! {
    /// A repetition is not recognised: each sending has an owner or id of its own.
    NewIdEachTime { sent: u64 } |me, request, now| {
        me.sent += 1;
        match &mut request {
            Request::Acquire(asked) => asked.owner.number += 1_000 * me.sent,
            Request::Count(asked) => asked.id.number += 10_000 * me.sent,
            _ => {}
        }
        model::step(&mut me.record, &request, now)
    }
}

broken! {
    /// Nothing is ever too late.
    NeverLate {} |me, request, now| {
        match &mut request {
            Request::Acquire(asked) => asked.not_after = Instant::NEVER,
            Request::Count(asked) => asked.not_after = Instant::NEVER,
            _ => {}
        }
        model::step(&mut me.record, &request, now)
    }
}

broken! {
    /// Says that it is late, and does it all the same.
    LateButDone {} |me, request, now| {
        let mut done = request.clone();
        if let Request::Acquire(asked) = &mut done {
            asked.not_after = Instant::NEVER;
        }
        let told = model::step(&mut me.record.clone(), &request, now);
        let answer = model::step(&mut me.record, &done, now);
        match told {
            Ok(Step { answer: Outcome::Acquire(Attempt::Late) | Outcome::Count(CountOutcome::Late), .. }) => told,
            _ => answer,
        }
    }
}

broken! {
    /// Every grant has the same token.
    ConstantToken {} |me, request, now| {
        now.token = 7;
        model::step(&mut me.record, &request, now)
    }
}

broken! {
    /// Every other acquire of permits is entered under an owner that nobody knows.
    LeaksPermits { sent: u64 } |me, request, now| {
        me.sent += 1;
        if let Request::Acquire(asked) = &mut request {
            asked.owner.number += 1_000 * (me.sent % 2);
        }
        model::step(&mut me.record, &request, now)
    }
}

broken! {
    /// Grants permits that are not there.
    GrantsTooMany {} |me, request, now| {
        let mut answer = model::step(&mut me.record, &request, now);
        if let Ok(step) = &mut answer
            && matches!(attempt_in(&step.answer), Some(Attempt::Busy(_)))
        {
            step.answer = Outcome::Acquire(Attempt::Granted(lockkeeper::backend::Grant::new(None, std::time::Duration::from_secs(1))));
        }
        answer
    }
}

broken! {
    /// Every reader has waited since the beginning of time, so that it passes all writers.
    ReadersFirst {} |me, request, now| {
        if let Request::Acquire(asked) = &mut request
            && asked.claim == lockkeeper::backend::Claim::Read
        {
            asked.since = Instant::default();
        }
        model::step(&mut me.record, &request, now)
    }
}

broken! {
    /// Does everything, and tells nobody.
    WakesNobody {} |me, request, now| {
        model::step(&mut me.record, &request, now).map(|step| Step { wake: Wake::default(), ..step })
    }
}

#[test]
fn a_release_by_anybody_is_caught_by_exclusion() {
    refute(script_on(Kind::Mutex), ledger::TWO_HOLD, |script| excludes::<ReleasesForAnybody>(script));
    refute(script_on(Kind::RwLock), ledger::TWO_HOLD, |script| excludes::<ReleasesForAnybody>(script));
}

#[test]
fn a_shortened_lease_is_caught_by_exclusion() {
    refute(script_on(Kind::Mutex), ledger::TWO_HOLD, |script| excludes::<ShortensLeases>(script));
    refute(script_on(Kind::RwLock), ledger::LOST, |script| excludes::<ShortensLeases>(script));
}

#[test]
fn a_release_by_anybody_is_caught_by_what_others_have() {
    refute(script_on(Kind::Mutex), owners::OTHERS, |script| touches_only_its_own::<ReleasesForAnybody>(script));
}

#[test]
fn forgotten_places_are_caught_by_the_order_of_grants() {
    refute(fair_script(), fair::IN_ORDER, |script| serves_in_order::<ForgetsPlaces>(script));
    refute(script_on(Kind::RwLock), rwlock::WRITERS_FIRST, |script| nobody_starves::<ForgetsPlaces>(script));
}

#[test]
fn readers_that_pass_writers_are_caught() {
    refute(script_on(Kind::RwLock), rwlock::WRITERS_FIRST, |script| nobody_starves::<ReadersFirst>(script));
}

#[test]
fn a_new_owner_for_each_sending_is_caught_by_idempotence() {
    refute(any_script(), laws::TWICE_IS_ONCE, |script| twice_is_once::<NewIdEachTime>(script));
}

#[test]
fn a_request_counted_twice_is_caught() {
    refute(counter::deeds(counter::ops()), counter::ONCE, |deeds| conserves::<NewIdEachTime>(deeds));
}

#[test]
fn a_late_request_that_is_done_is_caught() {
    refute(any_script(), laws::NEVER_LATE, |script| late_changes_nothing::<NeverLate>(script));
    refute(any_script(), laws::NEVER_LATE, |script| late_changes_nothing::<LateButDone>(script));
}

#[test]
fn a_token_that_does_not_grow_is_caught() {
    refute(fenced_script(), tokens::GROWING, |script| tokens_grow::<ConstantToken>(script));
}

#[test]
fn permits_too_many_or_lost_are_caught() {
    refute(deeds(), semaphore::NOT_TOO_MANY, |deeds| keeps_its_permits::<GrantsTooMany>(deeds));
    refute(deeds(), semaphore::NONE_LOST, |deeds| keeps_its_permits::<LeaksPermits>(deeds));
}

#[test]
fn a_missing_wake_is_caught() {
    refute(script_and_kind(), waiting::WOKEN, |(kind, script)| wakes_whom_it_frees::<WakesNobody>(*kind, script));
}
