//! The server of the models: one name, and the counter of tokens.

use std::fmt::{self, Debug, Write as _};
use std::hash::Hasher;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Claim, Release, Released, Renew, Renewed};
use lockkeeper::model::{self, Now, Outcome, Record, Request};
use lockkeeper::runtime::Instant;
use lockkeeper::{ClientId, Name, WireOwner};

/// A tick in microseconds.
pub(super) const TICK: u64 = 1_000_000;

pub(super) const fn at(tick: u8) -> Instant {
    Instant::from_nanos(tick as u64 * TICK * 1_000)
}

pub(super) const fn ticks(count: u8) -> Duration {
    Duration::from_micros(count as u64 * TICK)
}

pub(super) const fn owner(client: usize, number: u8) -> WireOwner {
    WireOwner::new(ClientId::from_bits(client as u128 + 1), number as u64)
}

fn name() -> Name {
    Name::try_from("x".to_owned()).expect("a valid name")
}

pub(super) fn acquire(claim: Claim, owner: WireOwner, lease: u8, not_after: Instant, place: Option<u8>) -> Acquire {
    let place = place.map(ticks);
    Acquire::new(name(), claim, owner, ticks(lease)).with_times(Instant::default(), not_after).with_place(place)
}

pub(super) fn release(claim: Claim, owner: WireOwner) -> Request {
    Request::Release(Release::new(name(), claim, owner))
}

/// Releases, and grants to `then` unless others have a place.
pub(super) fn keep(owner: WireOwner, then: Option<Acquire>) -> Request {
    Request::Release(Release::new(name(), Claim::Mutex, owner).with_then(then).with_if_alone())
}

pub(super) fn renewal(claim: Claim, owner: WireOwner, lease: Option<u8>) -> Renew {
    Renew::new(name(), claim, owner, lease.map(ticks))
}

/// What a server keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    pub(super) record: Record,
    pub(super) last_token: u64,
}

impl Server {
    /// Carries out a request; `clock` is the wall clock in microseconds, from which tokens are made.
    pub(super) fn step(&mut self, request: &Request, tick: u8, clock: u64) -> Outcome {
        let now = Now { at: at(tick), token: clock.max(self.last_token + 1) };
        let outcome = model::step(&mut self.record, request, now).expect("the models ask for mutexes only").answer;
        let granted = match outcome {
            Outcome::Acquire(Attempt::Granted(grant)) => Some(grant),
            Outcome::Release(Released { next: Some(Attempt::Granted(grant)), .. }) => Some(grant),
            _ => None,
        };
        self.last_token = self.last_token.max(granted.and_then(|grant| grant.last_token()).unwrap_or(0));
        outcome
    }

    pub(super) fn acquire(&mut self, request: Acquire, tick: u8, clock: u64) -> Attempt {
        match self.step(&Request::Acquire(request), tick, clock) {
            Outcome::Acquire(attempt) => attempt,
            other => unreachable!("an acquire was answered {other:?}"),
        }
    }

    pub(super) fn renew(&mut self, request: Renew, tick: u8) -> bool {
        matches!(self.step(&Request::Renew(request), tick, 0), Outcome::Renew(Renewed::Kept { .. }))
    }

    /// Whether somebody holds it, or waits first, at this tick.
    pub(super) fn is_held(&self, tick: u8) -> bool {
        self.record.snapshot(&name(), at(tick)).is_some_and(|found| !found.holders.is_empty())
    }
}

/// Feeds what a value prints into a digest, for types of the library that cannot be hashed.
pub(super) fn digest_debug(value: &impl Debug, hasher: &mut impl Hasher) {
    struct Feed<'a, H>(&'a mut H);
    impl<H: Hasher> fmt::Write for Feed<'_, H> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    // Writing into a digest cannot fail.
    let _ = write!(Feed(hasher), "{value:?}");
}
