//! A named lock of the server as a hint when to look at a mutex. Only rows decide who holds a mutex.
//!
//! Clients that wait for a mutex queue for one named lock, each on a connection of its own. The client that gets the named lock looks at the row at
//! once, then often, and keeps the named lock while it holds the mutex. Its release wakes the next client in the server's queue, and no other.
//! Clients in the queue poll less often. A connection that dies, a server that forgets and a proxy that mixes connections delay a look; they cannot
//! grant a mutex.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::poll::Poll;
use super::{Dial, Link, Put, Statements as _};
use crate::name::Name;
use crate::runtime::{self, Runtime, log};

/// How long a connection queues for a named lock before it looks which one it needs now. Less than the limit of a request.
const QUEUED: Duration = Duration::from_secs(3);

/// A named lock is kept no longer than this, however long the lock of ours is held. The next one in the queue looks often then.
const KEPT: Duration = Duration::from_secs(3);

/// How soon it is noticed that nobody here waits any more.
const CHECKED: Duration = Duration::from_millis(100);

/// A connection that nobody needs is closed after this time.
const IDLE: Duration = Duration::from_secs(5);

/// After a failure, such as a server that refuses named locks, clients only poll for this time.
const REFUSED: Duration = Duration::from_secs(30);

/// What the client does with the named lock.
#[derive(Debug, Default)]
pub(super) struct Hint {
    state: Mutex<State>,
    /// Somebody began to wait, or a step of ours was written at the name.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    None,
    /// Its connection waits for the one of this name.
    Queued { name: Name },
    /// It has the one of this name.
    Has { name: Name, ours: Ours },
}

/// What is known of our own lock of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ours {
    Waiting,
    Held,
    /// The named lock is no longer needed.
    Over,
}

impl Hint {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.state() = state;
    }

    /// Somebody waits.
    pub(super) fn wanted(&self) {
        self.changed.notify_one();
    }

    /// How much sooner or later than usual the next look at so many names is to be: shorter if nobody else looks often, longer if the server tells.
    pub(super) fn pauses(&self, (short, long): (Duration, Duration), names: usize) -> (Duration, Duration) {
        match *self.state() {
            // It tells of one name, and the others are looked at together with it.
            State::Queued { .. } if names == 1 => (long, long),
            State::None | State::Queued { .. } => (short, long),
            State::Has { .. } => (short / 2, short * 2),
        }
    }

    /// Whether the turn of a name's waiters comes by the hint.
    pub(super) fn is_queued_for(&self, name: &Name) -> bool {
        matches!(&*self.state(), State::Queued { name: queued } if queued == name)
    }

    /// A step of ours was written.
    pub(super) fn wrote(&self, put: &Put) {
        let mut state = self.state();
        let State::Has { name, ours } = &mut *state else { return };
        if *name != put.name {
            return;
        }
        let frees = put.wake.all || put.wake.head.is_some();
        *ours = match *ours {
            _ if put.grants => Ours::Held,
            // A renewal frees nothing.
            Ours::Held if !frees => return,
            // Freed, or shared with others, who are to come next.
            _ => Ours::Over,
        };
        if *ours == Ours::Over {
            self.changed.notify_one();
        }
    }

    fn ours(&self) -> Ours {
        match *self.state() {
            State::Has { ours, .. } => ours,
            _ => Ours::Over,
        }
    }
}

/// Queues for named locks for as long as the store is there. `link` is a way to the database that nobody else uses.
pub(super) async fn queue<D: Dial>(poll: Weak<Poll<D>>, mut link: Link<D>, runtime: Runtime) {
    let Some(changed) = poll.upgrade().map(|poll| Arc::clone(&poll.hint.changed)) else { return };
    loop {
        let Some(there) = poll.upgrade() else { return };
        let Some(name) = there.waited_for() else {
            drop(there);
            if runtime::within(IDLE, Box::pin(changed.notified())).await.is_none() {
                // Closes the connection.
                link = link.another();
            }
            continue;
        };
        there.hint.set(State::Queued { name: name.clone() });
        drop(there);
        let queued = queue_once(&poll, &link, &runtime, &changed, &name).await;
        let Some(there) = poll.upgrade() else { return };
        there.hint.set(State::None);
        drop(there);
        if let Err(why) = queued {
            log!(debug, error = %why, "the server gives no named locks; waiters only poll");
            runtime.sleep_until(runtime.now().plus(REFUSED)).await;
        }
    }
}

/// Queues for one named lock; has it for as long as it is of use.
async fn queue_once<D: Dial>(
    poll: &Weak<Poll<D>>,
    link: &Link<D>,
    runtime: &Runtime,
    changed: &Notify,
    name: &Name,
) -> crate::error::Result<()> {
    let live = link.live().await?;
    if !live.hint(name, QUEUED).await.map_err(super::Failed::into_error)? {
        return Ok(());
    }
    let until = runtime.now().plus(KEPT);
    if let Some(there) = poll.upgrade() {
        there.hint.set(State::Has { name: name.clone(), ours: Ours::Waiting });
        // A look that fails is made again by the task that looks.
        let _ = there.look_at(link, std::slice::from_ref(name)).await;
        there.look_soon();
    }
    while runtime.now() < until {
        let Some(there) = poll.upgrade() else { break };
        let needed = match there.hint.ours() {
            Ours::Waiting => there.is_waited_for(name),
            Ours::Held => true,
            Ours::Over => false,
        };
        drop(there);
        if !needed {
            break;
        }
        let _ = runtime::within(CHECKED, Box::pin(changed.notified())).await;
    }
    live.unhint(name).await.map_err(super::Failed::into_error)
}
