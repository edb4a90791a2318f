//! Requests of a client that is not there: what tests send to a store without a session.

use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Claim, Release};
use lockkeeper::name::Name;
use lockkeeper::owner::{ClientId, WireOwner};
use lockkeeper::runtime::{Instant, Runtime};

/// A request that is good for a minute, and holds for as long.
pub(crate) fn ask(runtime: &Runtime, name: &str, number: u64) -> Acquire {
    let now = runtime.now();
    let minute = Duration::from_secs(60);
    Acquire::new(Name::new(name).expect("a good name"), Claim::Mutex, owner(number), minute).with_times(now, now.plus(minute))
}

pub(crate) fn owner(number: u64) -> WireOwner {
    WireOwner::new(ClientId::from_bits(0xbeef), number)
}

pub(crate) fn release(name: &str, number: u64) -> Release {
    let name = Name::new(name).expect("a good name");
    Release::new(name, Claim::Mutex, owner(number))
}

pub(crate) fn is_granted(attempt: Attempt) -> bool {
    matches!(attempt, Attempt::Granted(_))
}

/// How long after `then` it is.
pub(crate) fn since(runtime: &Runtime, then: Instant) -> Duration {
    runtime.now().since(then)
}
