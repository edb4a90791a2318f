//! How a waiter learns that something may have changed: the store notifies its subscription.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, PoisonError};

use super::Grant;
use crate::runtime::sync::{
    Mutex, Notify,
    atomic::{AtomicU64, Ordering},
};
use crate::runtime::{caught, log};

/// The waiter's end: resolves after a notification, also if that came before the waiter began to wait.
pub struct Subscription {
    shared: Arc<Shared>,
    shareable: bool,
    /// Ends the subscription when dropped; the store keeps in it whatever it needs.
    registration: Option<Box<dyn Send + Sync>>,
}

/// The store's end.
#[derive(Clone, Default)]
pub struct Notifier(Arc<Shared>);

#[derive(Default)]
struct Shared {
    notified: Notify,
    count: AtomicU64,
    /// The grant that came with a notification. In a box: nearly all subscriptions never get one.
    granted: Mutex<Option<Box<Grant>>>,
}

impl Subscription {
    /// Subscribes to `notifier`. `registration` is kept until the subscription is dropped.
    pub fn new(notifier: &Notifier, registration: impl Send + Sync + 'static) -> Self {
        Self { shared: Arc::clone(&notifier.0), shareable: true, registration: Some(Box::new(registration)) }
    }

    /// A subscription that is never notified, for stores that cannot push.
    #[must_use]
    pub fn silent() -> Self {
        Self::new(&Notifier::default(), ())
    }

    /// Marks it as good for this owner alone: the next waiter of the client needs its own.
    #[must_use]
    pub fn only_for_owner(self) -> Self {
        let mut own = self;
        own.shareable = false;
        own
    }

    /// Whether the next waiter of this client for the name may use it too.
    #[must_use]
    pub const fn is_shareable(&self) -> bool {
        self.shareable
    }

    /// Waits for a notification since the last call; several count as one.
    pub fn notified(&self) -> impl Future<Output = ()> + Send {
        self.shared.notified.notified()
    }

    /// Takes the grant that a notification brought, if the [watch](super::Watch::grant) asked for one.
    ///
    /// [`Grant::good_for`] counts from when the owner's last request was sent that was answered before the grant: the watch, or an acquire
    /// that was answered `Busy`. If too little of it is left, the waiter asks again with the same owner, which renews the grant.
    #[must_use]
    pub fn take_grant(&self) -> Option<Grant> {
        self.shared.granted.lock().unwrap_or_else(PoisonError::into_inner).take().map(|grant| *grant)
    }

    /// How many notifications have come.
    #[must_use]
    pub(crate) fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Acquire)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // The registration is the store's own. It may be dropped by the keeper, which must not end by a panic in it.
        if caught(|| drop(self.registration.take())).is_none() {
            log!(error, "the store panicked when a subscription ended");
        }
    }
}

impl Notifier {
    /// Notifies the subscription. Never blocks.
    pub fn notify(&self) {
        self.notify_for(1);
    }

    /// Notifies the subscription once for so many releases of others. Never blocks.
    pub(crate) fn notify_for(&self, releases: u64) {
        self.0.count.fetch_add(releases, Ordering::AcqRel);
        self.0.notified.notify_one();
    }

    /// Notifies the subscription, and gives it the grant that its watch asked for. Never blocks for long.
    pub fn notify_granted(&self, grant: Grant) {
        *self.0.granted.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(grant));
        self.notify();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notifier")
    }
}
