//! A part of a store: all names under a prefix. For cases that share a store without databases.

use std::fmt;
use std::sync::Arc;

use lockkeeper::Result;
use lockkeeper::backend::{
    Acquire, Attempt, AttemptAll, Backend, Count, CountOutcome, Forced, Listing, Page, Release, Released, Renew, Renewed, Reply,
    Snapshot, Subscription, Watch,
};
use lockkeeper::layer::Layer;
use lockkeeper::name::Name;

pub(crate) struct Scoped {
    store: Arc<dyn Backend>,
    prefix: String,
}

impl Scoped {
    pub(crate) fn new(store: Arc<dyn Backend>, prefix: String) -> Self {
        Self { store, prefix }
    }

    fn inside(&self, name: &Name) -> Name {
        Name::new(format!("{}{name}", self.prefix)).expect("short enough")
    }

    fn outside(&self, mut found: Snapshot) -> Snapshot {
        found.name = Name::new(found.name.as_str().strip_prefix(&self.prefix).expect("a name of ours")).expect("a name");
        found
    }

    fn acquire_inside(&self, request: Acquire) -> Acquire {
        let name = self.inside(&request.name);
        request.with_name(name)
    }
}

impl Layer for Scoped {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.store
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { store: inner, prefix: self.prefix.clone() })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.store.acquire(self.acquire_inside(request))
    }

    fn atomic_groups(&self, names: &[&Name]) -> Vec<Vec<usize>> {
        let names: Vec<Name> = names.iter().map(|name| self.inside(name)).collect();
        self.store.atomic_groups(&names.iter().collect::<Vec<_>>())
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        self.store.acquire_all(requests.into_iter().map(|request| self.acquire_inside(request)).collect())
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        let name = self.inside(&request.name);
        self.store.release(request.with_name(name))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        let inside = |request: Renew| {
            let name = self.inside(&request.name);
            request.with_name(name)
        };
        self.store.renew(requests.into_iter().map(inside).collect())
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        let name = self.inside(&request.name);
        self.store.count(request.with_name(name))
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        let name = self.inside(&watch.name);
        self.store.watch(watch.with_name(name))
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        let name = self.inside(&name);
        Box::pin(async move { Ok(self.store.inspect(name).await?.map(|found| self.outside(found))) })
    }

    fn list(&self, mut listing: Listing) -> Reply<'_, Page> {
        listing.pattern = format!("{}{}", self.prefix, listing.pattern);
        Box::pin(async move {
            let mut page = self.store.list(listing).await?;
            page.found = page.found.into_iter().map(|found| self.outside(found)).collect();
            Ok(page)
        })
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        self.store.force_release(self.inside(&name))
    }
}

impl fmt::Debug for Scoped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scoped({})", self.prefix)
    }
}
