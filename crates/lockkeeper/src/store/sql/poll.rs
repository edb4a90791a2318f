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

use super::hint::{self, Hint};
use super::store::Wakeups;
use super::{Dial, Failed, Link, Put, Statements as _};
use crate::backend::{Kind, Subscription, Watch};
use crate::error::Result;
use crate::model::Wake;
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::{self, BoxFuture, Instant, Runtime, log};
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

/// The number of looks in a row that report nothing while the client waits for the named lock and other clients take turns.
const UNTOLD: u32 = 4;

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
    /// The change that the last look found and did not report, and the number of looks in a row that reported nothing.
    untold: Option<(Option<Seen>, u32)>,
    /// It is a mutex: one of those that wait gets it, so their order may come by the hint. Readers and permits are for several.
    mutex: bool,
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
    /// One look at a time: an older answer must not come after a newer one.
    looking: tokio::sync::Mutex<()>,
    pub(super) hint: Hint,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
}

impl<D: Dial> Poll<D> {
    pub(crate) fn new(link: Link<D>) -> Arc<Self> {
        let (listeners, known, marks, state, wanted, looking, hint) = Default::default();
        Arc::new(Self { link, listeners, known, marks, state, wanted, looking, hint })
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
            if dial.has_hints() {
                dial.worker().spawn(hint::queue(Arc::downgrade(self), self.link.another(), dial.runtime().clone()));
            }
        }
    }

    async fn versions(link: &Link<D>, names: &[Name]) -> std::result::Result<HashMap<Name, Seen>, Failed> {
        let live = link.live().await.map_err(Failed::Error)?;
        live.versions(names).await
    }

    /// A mutex with a local waiter that has no place in a queue. The order in which clients get a named lock serves such waiters.
    pub(super) fn waited_for(&self) -> Option<Name> {
        self.listeners.keys().into_iter().find(|name| self.is_waited_for(name))
    }

    pub(super) fn is_waited_for(&self, name: &Name) -> bool {
        let mutex = self.known().names.get(name).is_some_and(|known| known.mutex);
        mutex && self.listeners.has_unfiltered(name)
    }

    /// Ends a long pause between looks.
    pub(super) fn look_soon(&self) {
        self.wanted.notify_one();
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
        self.known().names.retain(|name, _| self.listeners.has_any(name));
        self.marks().retain(|name, _| self.listeners.has_any(name));
        self.mark(&names).await?;
        self.look_at(&self.link, &names).await
    }

    /// Looks at some names; gives how many changed.
    pub(super) async fn look_at(&self, link: &Link<D>, names: &[Name]) -> std::result::Result<usize, Failed> {
        let _one = self.looking.lock().await;
        let look = {
            let mut known = self.known();
            known.look += 1;
            known.look
        };
        let mut changed = 0;
        for names in names.chunks(NAMES) {
            let found = Self::versions(link, names).await?;
            let mut known = self.known();
            for name in names {
                let now = found.get(name).copied();
                let before = known.names.get(name).copied();
                if before.is_some_and(|before| before.written_in == look) {
                    // The next look tells.
                    changed += 1;
                    continue;
                }
                if let Some(before) = known.names.get_mut(name)
                    && before.seen != now
                    && self.hint.is_queued_for(name)
                {
                    // Others take turns, and ours comes by the hint. If nobody took what was free at the last look, the hint is of no use.
                    let (last, count) = before.untold.unwrap_or((before.seen, 0));
                    if last != now && count < UNTOLD {
                        before.untold = Some((now, count + 1));
                        continue;
                    }
                }
                let mutex = before.is_some_and(|before| before.mutex);
                known.names.insert(name.clone(), KnownName { seen: now, written_in: 0, untold: None, mutex });
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
        self.hint.wrote(put);
        {
            let mut known = self.known();
            let look = known.look;
            // A name that had no row before is reported once more by the next look.
            if let Some(name) = known.names.get_mut(&put.name)
                && let Some(seen) = &mut name.seen
                // Where a look compares versions alone, a step of another store between the two would never be told. The next look tells it.
                && (seen.wake.is_some() || put.version == Some(seen.version))
            {
                (*seen, name.written_in) = (seen.after(put), look);
            }
        }
        self.listeners.notify(&put.name, Wake { all: false, head: put.wake.head });
        self.listeners.notify(&put.name, Wake { head: None, ..put.wake })
    }

    fn subscribe(self: Arc<Self>, watch: Watch) -> BoxFuture<'static, Result<Subscription>> {
        Box::pin(async move {
            let (name, mutex) = (watch.name.clone(), watch.kind == Kind::Mutex);
            let subscription = self.listeners.subscribe(watch);
            // The waiter asks once more after this. What changes later differs from what is seen here.
            if !self.known().names.contains_key(&name) {
                let found = Self::versions(&self.link, std::slice::from_ref(&name)).await.map_err(Failed::into_error)?;
                let seen = found.get(&name).copied();
                let known = KnownName { seen, written_in: 0, untold: None, mutex };
                self.known().names.entry(name.clone()).or_insert(known);
            }
            if let Some(known) = self.known().names.get_mut(&name) {
                known.mutex = mutex;
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
            self.look_soon();
            self.hint.wanted();
            Ok(subscription)
        })
    }
}

/// Looks until the store is gone.
async fn looks<D: Dial>(poll: Weak<Poll<D>>, runtime: Runtime, wanted: Arc<Notify>) {
    let mut pause = PAUSES.0;
    loop {
        let Some(there) = poll.upgrade() else { return };
        let (idle, names) = (there.listeners.is_empty(), there.listeners.keys().len());
        let (shortest, longest) = there.hint.pauses(PAUSES, names);
        drop(there);
        if idle {
            // Ends with the store: a store that is gone has nobody who waits, and is looked for now and then.
            let _ = runtime::within(LIMIT, Box::pin(wanted.notified())).await;
            pause = PAUSES.0;
            continue;
        }
        pause = pause.clamp(shortest, longest);
        let soon = runtime.now().plus(runtime::jitter(pause / 2, pause));
        let begun = tokio::select! {
            biased;
            () = runtime.sleep_until(soon) => false,
            () = wanted.notified(), if pause > shortest => true,
        };
        if begun {
            pause = Duration::ZERO;
            continue;
        }
        let Some(there) = poll.upgrade() else { return };
        let looked = runtime::within(LIMIT, Box::pin(there.look())).await;
        pause = match looked {
            Some(Ok(0)) => pause * 2,
            Some(Ok(_)) => Duration::ZERO,
            failed => {
                if let Some(Err(failed)) = failed {
                    log!(debug, error = %failed.into_error(), "could not look for changes; waiters ask by themselves");
                }
                PAUSES.1
            }
        };
    }
}
