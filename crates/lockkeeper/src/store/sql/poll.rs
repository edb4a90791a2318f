//! Wake-ups by polling, for databases and poolers that push nothing: one statement for all names that are waited for.
//!
//! Each step that changes a name draws a new version. So one look at the versions of all names that somebody here waits for tells which of
//! them changed, however many wait.
//!
//! What a step of this store changes is told to those who wait here at once, and a look does not tell it again. So a waiter that is notified after
//! that knows that somebody else had the name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::store::Wakeups;
use super::{Dial, Failed, Link, Put, Statements as _};
use crate::backend::{Subscription, Watch};
use crate::error::Result;
use crate::model::Wake;
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::{self, BoxFuture, Instant, Runtime};
use crate::store::kit::listeners::Listeners;

/// The pause between two looks: after a change, and what it grows to while nothing changes.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// A look that takes longer is given up.
const LIMIT: Duration = Duration::from_secs(3);

/// How long a mark at a row counts, and when it is renewed.
const MARKED: Duration = Duration::from_secs(6);
const RENEWED: Duration = Duration::from_secs(3);

/// How often a waiter that begins tries to mark a row that others have locked. The next look goes on.
const MARKINGS: u32 = 10;

/// Names in one statement.
const NAMES: usize = 1_000;

/// What a look tells of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) version: i64,
    /// Whom the last steps made grantable, where rows keep it; otherwise each change is told to everybody.
    pub(crate) wake: Option<SeenWake>,
}

/// The versions of the last steps that made everybody, or the head of the queue, grantable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenWake {
    pub(crate) all_version: i64,
    pub(crate) head_version: i64,
    pub(crate) head: Option<WireOwner>,
}

impl Seen {
    /// What a look would tell after this step.
    fn after(self, put: &Put) -> Self {
        let wake = self.wake.map(|before| SeenWake {
            all_version: if put.wake.all { put.next } else { before.all_version },
            head_version: if put.wake.head.is_some() { put.next } else { before.head_version },
            head: put.wake.head.or(before.head),
        });
        Self { version: put.next, wake }
    }
}

/// The names that are waited for, as those who wait know them.
#[derive(Debug, Default)]
struct Known {
    names: HashMap<Name, KnownName>,
    /// The number of the last look that began.
    look: u64,
}

#[derive(Clone, Copy, Debug)]
struct KnownName {
    /// `None`: it had no row.
    seen: Option<Seen>,
    /// The look that had begun when a step of this store was written. What that look tells may be older than the step.
    written_in: u64,
}

/// The names that are waited for, and their versions as of the last look.
#[derive(Debug)]
pub(crate) struct Poll<D: Dial> {
    link: Link<D>,
    listeners: Arc<Listeners>,
    known: Mutex<Known>,
    /// Until when rows are marked as waited for, on our clock.
    marks: Mutex<HashMap<Name, Instant>>,
    state: Mutex<State>,
    /// Somebody began to wait.
    wanted: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
}

impl<D: Dial> Poll<D> {
    pub(crate) fn new(link: Link<D>) -> Arc<Self> {
        let (listeners, known, marks, state, wanted) = Default::default();
        Arc::new(Self { link, listeners, known, marks, state, wanted })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the task that looks, once.
    fn start(self: &Arc<Self>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.running {
            state.running = true;
            let dial = self.link.dial();
            dial.worker().spawn(looks(Arc::downgrade(self), dial.runtime().clone(), Arc::clone(&self.wanted)));
        }
    }

    async fn versions(&self, names: &[Name]) -> std::result::Result<HashMap<Name, Seen>, Failed> {
        let live = self.link.live().await.map_err(Failed::Error)?;
        live.versions(names).await
    }

    fn marks(&self) -> MutexGuard<'_, HashMap<Name, Instant>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks those of the names that are not marked for long enough, and that somebody waits for outside of a queue. A mark that is not
    /// made costs fairness, not a wake-up.
    async fn mark(&self, names: &[Name]) -> std::result::Result<(), Failed> {
        let now = self.link.dial().runtime().now();
        let due: Vec<Name> = {
            let marks = self.marks();
            let due = |name: &&Name| marks.get(*name).is_none_or(|until| *until <= now.plus(RENEWED));
            names.iter().filter(due).filter(|name| self.listeners.has_unfiltered(name)).cloned().collect()
        };
        if due.is_empty() {
            return Ok(());
        }
        let window = i64::try_from(MARKED.as_micros()).unwrap_or(i64::MAX);
        let live = self.link.live().await.map_err(Failed::Error)?;
        match live.mark(&due, window).await {
            Ok(()) => self.marks().extend(due.into_iter().map(|name| (name, now.plus(MARKED)))),
            Err(Failed::Blocked(_)) => {}
            Err(failed) => return Err(failed),
        }
        Ok(())
    }

    /// Looks once at all names that are waited for; gives how many changed.
    async fn look(&self) -> std::result::Result<usize, Failed> {
        let names = self.listeners.keys();
        let look = {
            let mut known = self.known();
            known.names.retain(|name, _| self.listeners.has_any(name));
            known.look += 1;
            known.look
        };
        self.marks().retain(|name, _| self.listeners.has_any(name));
        self.mark(&names).await?;
        let mut changed = 0;
        for names in names.chunks(NAMES) {
            let found = self.versions(names).await?;
            let mut known = self.known();
            for name in names {
                let now = found.get(name).copied();
                let before = known.names.get(name).copied();
                if before.is_some_and(|before| before.written_in == look) {
                    // The next look tells.
                    changed += 1;
                    continue;
                }
                known.names.insert(name.clone(), KnownName { seen: now, written_in: 0 });
                let before = before.map(|before| before.seen);
                changed += usize::from(before != Some(now));
                match (before.flatten(), now) {
                    (Some(Seen { wake: Some(before), .. }), Some(Seen { wake: Some(now), .. })) => {
                        let head = now.head.filter(|_| now.head != before.head || now.head_version != before.head_version);
                        self.listeners.notify(name, Wake { all: now.all_version != before.all_version, head });
                    }
                    (before, now) if before != now => self.listeners.notify_key(name),
                    _ => {}
                }
            }
        }
        Ok(changed)
    }
}

impl<D: Dial> Wakeups for Poll<D> {
    /// The longest pause, and the look itself.
    fn notifies_within(&self) -> Duration {
        PAUSES.1 + PAUSES.1 / 4
    }

    fn wrote(&self, put: &Put) -> u32 {
        {
            let mut known = self.known();
            let look = known.look;
            // One that had no row before is told of once more by the next look.
            if let Some(name) = known.names.get_mut(&put.name)
                && let Some(seen) = &mut name.seen
            {
                (*seen, name.written_in) = (seen.after(put), look);
            }
        }
        self.listeners.notify(&put.name, Wake { all: false, head: put.wake.head });
        self.listeners.notify(&put.name, Wake { head: None, ..put.wake })
    }

    fn subscribe(self: Arc<Self>, watch: Watch) -> BoxFuture<'static, Result<Subscription>> {
        Box::pin(async move {
            let name = watch.name.clone();
            let subscription = self.listeners.subscribe(watch);
            // The waiter asks once more after this. What changes later differs from what is seen here.
            if !self.known().names.contains_key(&name) {
                let found = self.versions(std::slice::from_ref(&name)).await.map_err(Failed::into_error)?;
                let seen = found.get(&name).copied();
                self.known().names.entry(name.clone()).or_insert(KnownName { seen, written_in: 0 });
            }
            // A release before the mark is seen by the request that follows; one after it sees the mark. The row may be locked by a step.
            for _ in 0..MARKINGS {
                self.mark(std::slice::from_ref(&name)).await.map_err(Failed::into_error)?;
                if self.marks().contains_key(&name) || !self.listeners.has_unfiltered(&name) {
                    break;
                }
                let runtime = self.link.dial().runtime();
                runtime.sleep_until(runtime.now().plus(runtime::jitter(PAUSES.0 / 5, PAUSES.0))).await;
            }
            self.start();
            self.wanted.notify_one();
            Ok(subscription)
        })
    }
}

/// Looks until the store is gone.
async fn looks<D: Dial>(poll: Weak<Poll<D>>, runtime: Runtime, wanted: Arc<Notify>) {
    let mut pause = PAUSES.0;
    loop {
        let Some(there) = poll.upgrade() else { return };
        let idle = there.listeners.is_empty();
        drop(there);
        if idle {
            // Ends with the store: a store that is gone has nobody who waits, and is looked for now and then.
            let _ = runtime::within(LIMIT, Box::pin(wanted.notified())).await;
            pause = PAUSES.0;
            continue;
        }
        let soon = runtime.now().plus(runtime::jitter(pause / 2, pause));
        let begun = tokio::select! {
            () = runtime.sleep_until(soon) => false,
            () = wanted.notified(), if pause > PAUSES.0 => true,
        };
        if begun {
            pause = PAUSES.0;
            continue;
        }
        let Some(there) = poll.upgrade() else { return };
        let looked = runtime::within(LIMIT, Box::pin(there.look())).await;
        pause = match looked {
            Some(Ok(0)) => (pause * 2).min(PAUSES.1),
            Some(Ok(_)) => PAUSES.0,
            failed => {
                if let Some(Err(failed)) = failed {
                    tracing::debug!(error = %failed.into_error(), "could not look for changes; waiters ask by themselves");
                }
                PAUSES.1
            }
        };
    }
}
