//! The contract between the synchronizers and a store: requests and answers as plain data, one trait, no I/O.
//!
//! Everything above (wait loop, keeper, guards) is written once against this trait; everything below (memory, Redis, …)
//! only has to carry out single atomic steps. For authors of stores: **unstable**, it may change in any version. What each step must do is specified by [`model`](crate::model) and
//! tested by the `conformance` suite.

mod capability;
mod count;
mod event;
mod finding;
mod layer;
mod notify;
mod outcome;
mod request;
mod session;
mod snapshot;
mod vote;
mod watch;

pub use capability::{Capabilities, Liveness};
pub use count::{Count, CountOp, CounterOp, LatchOp, SemaphoreOp};
pub use event::{Event, GaveUp, LossReason, Observer};
pub use finding::{Finding, Verdict};
pub use layer::Layer;
pub use notify::{Notifier, Subscription};
pub use outcome::{Attempt, AttemptAll, Busy, CountOutcome, Counted, Grant, Released, Renewed};
pub use request::{Acquire, Claim, Kind, Reach, Register, Release, Renew};
pub use session::{EventSender, KeptAlive, StoreEvent, StoreEvents};
pub use snapshot::{ClientCard, Forced, Holder, Listing, Page, Snapshot, Waiter};
pub use vote::{Decision, KeepVotes, Standing, Vote, VoteRequest, Voter};
pub use watch::Watch;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::name::Name;
use crate::runtime::BoxFuture;
pub use crate::runtime::Instant;

/// The answer to a request, when it comes.
pub type Reply<'a, T> = BoxFuture<'a, Result<T>>;

/// What is taken off a lease for clocks that run at different speeds.
pub(crate) fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// A store of locks.
///
/// # What every method must keep
///
/// * **Atomic.** A request is carried out in one indivisible step at one moment of the store's clock, or not at all.
/// * **Twice is once.** A request sent again with the same owner (or id) leaves the same state and gives the same answer;
///   only a repeated grant may carry a larger token, and a repeated release says that nothing was held any more.
/// * **Never late.** A request whose `not_after` has passed on the store's clock changes nothing and answers `Late`; a repetition of a
///   counting request that was carried out still gets its first answer.
/// * **Cancel.** A dropped future may or may not have taken effect; the caller follows it up with a [`Release`].
/// * **No retries.** An error is reported at once. [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) promises that nothing was done; when that is
///   not known the kind is [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate).
/// * **One kind per name**, else [`ErrorKind::WrongKind`](crate::ErrorKind::WrongKind), with nothing changed.
///
/// A wrapper around a store implements [`Layer`] instead, and writes only the methods that it changes.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// A second way to the same store that shares no connection with this one, for the keeper: what is slow here must not delay
    /// renewals there. A store without connections gives itself. Connections open when first used, on the executor that uses them.
    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend>;

    /// An id kept in the store: the same for every client, however it reached the store, and different from every other store's. A store that forgot
    /// everything may get a new one.
    fn identity(&self) -> Reply<'_, String>;

    /// Asks for the state "held by this owner until now + lease".
    ///
    /// *Atomic over:* the name's holders and queue, and the store's token counter. If the owner holds it already the lease is
    /// renewed and the grant given again. If others hold it and the request has a `place`, the owner stands in the queue
    /// afterwards (where the claim has one), at the place it had before, if any.
    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt>;

    /// Which of these names can be taken [at once](Self::acquire_all): groups of places in `names`, each place in one. Those who ask for the same
    /// names get the groups in the same order. Needs [`Capabilities::acquire_all`].
    fn atomic_groups(&self, names: &[&Name]) -> Vec<Vec<usize>> {
        vec![(0..names.len()).collect()]
    }

    /// Asks for several names of this store at once: all granted, or nothing changed and the first busy one named.
    ///
    /// *Atomic over:* all of the names together. Needs [`Capabilities::acquire_all`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for none, or for names that do not go [together](Self::atomic_groups).
    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        drop(requests);
        let error = self.capabilities().unsupported("several locks in one step");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Leaves nothing of this owner's claim at the name: neither hold nor place in the queue. (A writer that also reads keeps
    /// reading.) Then, if asked, grants the name to the successor in the same step.
    ///
    /// *Atomic over:* the name's holders and queue. Whoever may now be granted is woken. What others hold is never touched.
    fn release(&self, request: Release) -> Reply<'_, Released>;

    /// Sends this release behind the requests of its owner that got no answer, on the connection that carries them, so that it cannot overtake
    /// them. It waits for nothing, tells nothing, and may do nothing: the caller sends the same [release](Self::release) in any case.
    ///
    /// Called where a future of [`acquire`](Self::acquire) was dropped, when its owner will ask for nothing any more. Stores that carry out requests in the order in
    /// which they are made need not do anything.
    fn release_behind(&self, request: &Release) {
        let _ = request;
    }

    /// Keeps holds alive, or only looks whether they are still there; one answer per request, in their order.
    ///
    /// *Atomic per element:* one that fails does not touch the others. A lease is never shortened.
    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>>;

    /// Keeps this client's session alive, with all that lives in it. Opens a session if there is none.
    ///
    /// Needs [`Liveness::Session`]; the keeper sends it every third of the session, once for all holds of the client. A session that ended is not
    /// continued: the answer is then about a new one, with a larger number.
    fn keep_alive(&self) -> Reply<'_, KeptAlive> {
        let error = self.capabilities().unsupported("session");
        Box::pin(std::future::ready(Err(error)))
    }

    /// What the store tells by itself about the holds of this client, from now on. Needs [`Capabilities::events`]; events of other clients may be
    /// among them.
    fn events(&self) -> StoreEvents {
        StoreEvents::none()
    }

    /// Changes or reads a number: a counting semaphore, a latch, the size of a semaphore.
    ///
    /// *Atomic over:* the name's number and the memory of the request's id, which lasts for `remember`.
    fn count(&self, request: Count) -> Reply<'_, CountOutcome>;

    /// Subscribes to what may end a wait. The answer comes when the store is watching: what happens afterwards notifies the subscription.
    ///
    /// Notifications are hints. One may come for nothing, and a lost connection may lose one: a store that reconnects notifies all
    /// subscriptions. A store that cannot push ([`Capabilities::push`] is false) gives a subscription that is never notified.
    fn watch(&self, watch: Watch) -> Reply<'_, Subscription>;

    /// What is known about one name; `None` if nothing lies there.
    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>>;

    /// A page of what lies under names that match `listing.pattern`.
    fn list(&self, listing: Listing) -> Reply<'_, Page>;

    /// Removes all holders of the name, whoever they are, and tells whom; queues stay and are woken.
    ///
    /// *Atomic over:* the name's holders.
    fn force_release(&self, name: Name) -> Reply<'_, Forced>;

    /// Stores the card of this client, for `list` and `show`. It expires after `ttl` unless it is stored again.
    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()>;

    /// What this store offers beyond the contract, as a type that its module makes public; `None` if it offers nothing more.
    fn extension(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
}
