//! A lock that is held, of any kind: our own, or that of a command around this one.

use std::cell::Cell;
use std::ops::Deref;
use std::time::Duration;

use lockkeeper::runtime::{Instant, Runtime};
use lockkeeper::{Client, Error, ErrorKind, Held, MutexGuard, Permit, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::timeout;

use crate::nested::Outer;

/// A guard of any kind.
#[derive(Debug)]
pub(crate) enum AnyGuard {
    Mutex(MutexGuard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permit(Permit),
}

impl Deref for AnyGuard {
    type Target = Held;

    fn deref(&self) -> &Held {
        match self {
            Self::Mutex(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permit(permit) => permit,
        }
    }
}

impl AnyGuard {
    /// The number of its fencing token; permits have none.
    pub(crate) fn token(&self) -> Option<u64> {
        match self {
            Self::Mutex(guard) => guard.token().map(u64::from),
            Self::Read(guard) => guard.token().map(u64::from),
            Self::Write(guard) => guard.token().map(u64::from),
            Self::Permit(_) => None,
        }
    }

    /// The time until which it is held if no renewal succeeds.
    pub(crate) fn deadline(&self) -> Instant {
        CLOCK.now().plus(self.remaining())
    }

    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}

/// The longest time between two checks of the hold of a command around this one.
const CHECK: Duration = Duration::from_secs(1);

/// The clock of the leases, which runs while the machine sleeps.
const CLOCK: Runtime = Runtime::system();

/// Waits until the hold of a command around this one is gone, or the store has not answered for as long as the hold was known to last.
pub(crate) async fn outer_lost(client: &Client, name: &str, outer: &Outer, known_until: &Cell<Instant>) -> String {
    loop {
        let now = CLOCK.now();
        let pause = (known_until.get().since(now) / 3).clamp(Duration::from_millis(20), CHECK);
        CLOCK.sleep_until(now.plus(pause).min(known_until.get())).await;
        let left = known_until.get().since(CLOCK.now());
        match timeout(left, outer_lasts(client, name, outer)).await {
            Ok(Ok(until)) => known_until.set(until),
            Ok(Err(error)) if error.kind() == ErrorKind::Lost => return error.to_string(),
            // Unknown is not lost, and does not extend the deadline.
            Ok(Err(_)) | Err(_) if CLOCK.now() < known_until.get() => {}
            Ok(Err(_)) | Err(_) => return "the store did not answer for as long as the hold was known to last".to_owned(),
        }
    }
}

/// The time until which the hold of a command around this one is known to last; `Lost` if it is gone.
pub(crate) async fn outer_lasts(client: &Client, name: &str, outer: &Outer) -> Result<Instant, Error> {
    let asked = CLOCK.now();
    let found = client.inspect(name).await?;
    let holder = found.and_then(|found| found.holders.into_iter().find(|holder| holder.owner == outer.owner));
    let gone = || Error::new(ErrorKind::Lost, format!("the command around this one no longer holds {name:?}"));
    let left = holder.ok_or_else(gone)?.lease_left.ok_or_else(gone)?;
    // The same margin as in the library, for clocks that run at different speeds.
    Ok(asked.plus(left.saturating_sub(left / 100 + Duration::from_millis(2))))
}
