//! What a handle points at: a name at a store, and for whom.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::Kind;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::session::{LocalQueue, Owner, Session};

/// Cheap to clone: every call owns one.
#[derive(Clone)]
pub(super) struct Target(Arc<Inner>);

#[derive(Clone)]
pub(super) struct Inner {
    pub(super) session: Session,
    /// A bad name is told when the handle is used, so that making a handle needs no `?`.
    name: Result<Name>,
    pub(super) owner: Option<Owner>,
    /// The local queue, where one of this process's waiters asks for all.
    pub(super) queue: Option<Arc<LocalQueue>>,
    /// Of a semaphore: whether the store has agreed to the size of this handle or of one that it was cloned from.
    size_checked: Option<Arc<AtomicBool>>,
}

impl Target {
    pub(super) fn new(session: &Session, name: impl AsRef<str>) -> Self {
        Self::of(session, Name::new(name))
    }

    pub(super) fn of(session: &Session, name: Result<Name>) -> Self {
        Self(Arc::new(Inner { session: session.clone(), name, owner: None, queue: None, size_checked: None }))
    }

    /// The same, with the local queue for its name.
    pub(super) fn queued(mut self, kind: Kind) -> Self {
        let queue = self.name.as_ref().ok().map(|name| self.session.queue(name, kind));
        Arc::make_mut(&mut self.0).queue = queue;
        self
    }

    pub(super) fn owned_by(&self, owner: &Owner) -> Self {
        Self(Arc::new(Inner { owner: Some(owner.clone()), ..(*self.0).clone() }))
    }

    /// Of a semaphore: its size is checked by the first request that the store answers, and by no later one.
    pub(super) fn sized(mut self) -> Self {
        Arc::make_mut(&mut self.0).size_checked = Some(Arc::default());
        self
    }

    /// Whether the size of the semaphore was checked.
    pub(super) fn is_size_checked(&self) -> bool {
        self.size_checked.as_ref().is_some_and(|checked| checked.load(Ordering::Relaxed))
    }

    /// The store has agreed to the size.
    pub(super) fn size_is_checked(&self) {
        if let Some(checked) = &self.size_checked {
            checked.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn name(&self) -> Result<&Name> {
        self.name.as_ref().map_err(Clone::clone)
    }

    /// The error for a wait that others outlasted.
    pub(super) fn timeout(&self) -> Error {
        let name = self.name.as_ref().map_or("", Name::as_str);
        Error::new(ErrorKind::Timeout, format!("{name:?} was held by others for as long as the call was allowed to wait"))
    }
}

impl Deref for Target {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Ok(name) => name.fmt(f),
            Err(error) => write!(f, "<{error}>"),
        }
    }
}
