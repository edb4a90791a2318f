//! A wrapper around a backend that writes only the methods it changes.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, ClientCard, Count, CountOutcome, Forced, KeptAlive, Listing, Page,
    Release, Released, Renew, Renewed, Reply, Snapshot, StoreEvents, Subscription, Watch,
};
use crate::error::Result;
use crate::name::Name;

/// A backend over another backend. Every method passes the call on unless it is overridden.
///
/// ```
/// use std::sync::Arc;
/// use lockkeeper::backend::{Backend, Layer, Reply, Subscription, Watch};
///
/// /// A store whose notifications are all lost.
/// #[derive(Debug)]
/// struct Silent(Arc<dyn Backend>);
///
/// impl Layer for Silent {
///     fn inner(&self) -> &Arc<dyn Backend> {
///         &self.0
///     }
///
///     fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
///         Arc::new(Self(inner))
///     }
///
///     fn watch(&self, _watch: Watch) -> Reply<'_, Subscription> {
///         Box::pin(async { Ok(Subscription::silent()) })
///     }
/// }
/// # fn is_a_backend(layer: Silent) -> Arc<dyn Backend> { Arc::new(layer) }
/// ```
#[allow(missing_docs, reason = "each method is documented at the method of Backend that has its name")]
pub trait Layer: fmt::Debug + Send + Sync + 'static {
    /// The backend below.
    fn inner(&self) -> &Arc<dyn Backend>;

    /// The same layer over another connection to the same store: the keeper's.
    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend>;

    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    fn identity(&self) -> Reply<'_, String> {
        self.inner().identity()
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.inner().acquire(request)
    }

    fn atomic_groups(&self, names: &[&Name]) -> Vec<Vec<usize>> {
        self.inner().atomic_groups(names)
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        self.inner().acquire_all(requests)
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.inner().release(request)
    }

    fn release_behind(&self, request: &Release) {
        self.inner().release_behind(request);
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        self.inner().renew(requests)
    }

    fn keep_alive(&self) -> Reply<'_, KeptAlive> {
        self.inner().keep_alive()
    }

    fn events(&self) -> StoreEvents {
        self.inner().events()
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        self.inner().count(request)
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        self.inner().watch(watch)
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        self.inner().inspect(name)
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        self.inner().list(listing)
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        self.inner().force_release(name)
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        self.inner().announce(card, ttl)
    }

    fn extension(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.inner().extension()
    }
}

// A method of `Backend` that has a default must be passed on here too, or every layer would answer with the default.
#[deny(clippy::missing_trait_methods)]
impl<L: Layer> Backend for L {
    fn capabilities(&self) -> Capabilities {
        Layer::capabilities(self)
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        self.over(Arc::clone(self.inner()).keeper_connection())
    }

    fn identity(&self) -> Reply<'_, String> {
        Layer::identity(self)
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Layer::acquire(self, request)
    }

    fn atomic_groups(&self, names: &[&Name]) -> Vec<Vec<usize>> {
        Layer::atomic_groups(self, names)
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        Layer::acquire_all(self, requests)
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        Layer::release(self, request)
    }

    fn release_behind(&self, request: &Release) {
        Layer::release_behind(self, request);
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        Layer::renew(self, requests)
    }

    fn keep_alive(&self) -> Reply<'_, KeptAlive> {
        Layer::keep_alive(self)
    }

    fn events(&self) -> StoreEvents {
        Layer::events(self)
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        Layer::count(self, request)
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        Layer::watch(self, watch)
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        Layer::inspect(self, name)
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        Layer::list(self, listing)
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        Layer::force_release(self, name)
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        Layer::announce(self, card, ttl)
    }

    fn extension(&self) -> Option<&(dyn Any + Send + Sync)> {
        Layer::extension(self)
    }
}
