//! Notifications: one watch stream per client, with a watcher for each name that somebody waits for, and a mirror of what lies there.
//!
//! A watcher begins before the list is read, so nothing is missed between the two. The mirror decides: a waiter whose key is the first holds the
//! name, and is notified without a further request. After a lost stream everything is watched and read again, and everybody is notified.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::keys;
use super::mirror::{Mirror, Watched};
use super::proto::{KeyValue, WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse, watch_request};
use super::view::{Stands, View};
use crate::backend::{Notifier, Subscription, Watch};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::{Instant, Runtime};

/// A name that nobody waits for any more is watched for so much longer: somebody may wait again soon.
const LINGER: Duration = Duration::from_secs(10);

/// A mirror says "wait" for so long without being compared with the server: a watcher at a member that is cut off hears nothing.
const TRUSTED: Duration = Duration::from_millis(700);

/// The number of the watcher of the session's own key.
const SESSION: i64 = 1;

/// What the task of the stream is asked to do.
#[derive(Debug)]
pub(super) enum Command {
    Send(WatchRequest),
    /// The stream is doubted: open another one.
    Reopen,
}

/// What is watched, and by whom.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    state: Arc<Mutex<State>>,
    commands: mpsc::UnboundedSender<Command>,
    runtime: Runtime,
}

#[derive(Debug, Default)]
struct State {
    names: HashMap<Name, Watched>,
    numbers: HashMap<i64, Name>,
    last_number: i64,
    session: Option<i64>,
    /// Counts streams: what was read for an old one is not used.
    epoch: u64,
}

/// What the stream's task has to do after a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Todo {
    Nothing,
    /// Read what lies under this name, for this stream.
    List(Name, u64),
    /// The key of this session was deleted, or written to.
    SessionGone(i64),
    SessionTouched,
}

impl Hub {
    pub(super) fn new(runtime: Runtime) -> (Self, mpsc::UnboundedReceiver<Command>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        let state = Arc::new(Mutex::new(State { last_number: SESSION, ..State::default() }));
        (Self { state, commands, runtime }, receiver)
    }

    /// The part that the stream's task has. It does not keep the stream open.
    pub(super) fn mirror(&self) -> Mirrors {
        Mirrors(Arc::clone(&self.state))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn send(&self, request: WatchRequest) {
        // Without a task there is nobody to watch for.
        let _ = self.commands.send(Command::Send(request));
    }

    /// Watches the key of a new session instead of the last one's.
    pub(super) fn watch_session(&self, lease: i64) {
        let before = self.state().session.replace(lease);
        if before.is_some() {
            self.send(cancel(SESSION));
        }
        self.send(create_session(lease));
    }

    pub(super) fn notify_all(&self) {
        self.state().names.values().for_each(Watched::notify_all);
    }

    /// Subscribes; the answer comes when the mirror is there.
    pub(super) async fn subscribe(&self, watch: Watch) -> Result<Subscription> {
        let notifier = Notifier::default();
        let (id, ready) = self.register(&watch, &notifier);
        let registration = Registration { hub: self.clone(), name: watch.name.clone(), owner: watch.owner, id };
        if let Some(ready) = ready {
            let ended = |_| Error::new(ErrorKind::Unavailable, "the watch at etcd ended before it began");
            ready.await.map_err(ended)??;
        }
        // Each waiter has a key of its own, and another one before it.
        Ok(Subscription::new(&notifier, registration).only_for_owner())
    }

    fn register(&self, watch: &Watch, notifier: &Notifier) -> (u64, Option<oneshot::Receiver<Result<()>>>) {
        let mut state = self.state();
        if !state.names.contains_key(&watch.name) {
            state.last_number += 1;
            let number = state.last_number;
            state.numbers.insert(number, watch.name.clone());
            state.names.insert(watch.name.clone(), Watched::new(number));
            self.send(create(number, &watch.name));
        }
        if let Some(request) = state.watch_again(&watch.name) {
            self.send(request);
        }
        let Some(watched) = state.names.get_mut(&watch.name) else { return (0, None) };
        let id = watched.add(watch.claim.map(|_| watch.owner), notifier.clone());
        (id, watched.wait_until_ready())
    }

    fn leave(&self, name: &Name, owner: WireOwner, id: u64, now: Instant) {
        if let Some(watched) = self.state().names.get_mut(name) {
            watched.remove(owner, id, now);
        }
    }

    /// How the owner of this key stands, if the mirror knows: it holds the name, or waits and was compared with the server not long ago. Of those
    /// who ask in that time, one gets no answer: it asks the server for all.
    pub(super) fn stands(&self, name: &Name, key: &[u8], now: Instant) -> Option<Stands> {
        let mut state = self.state();
        let (stands, compared) = state.names.get_mut(name)?.stands(name, key)?;
        match stands {
            Stands::Holds(_) => Some(stands),
            Stands::Waits(_) if now.since(*compared) < TRUSTED => Some(stands),
            _ => {
                *compared = now;
                None
            }
        }
    }

    /// The oldest key of the name that the server has. A mirror with an older one has missed its end: if that stays so, the stream is at a member
    /// that is cut off.
    pub(super) fn compare(&self, name: &Name, oldest: i64) {
        let now = self.runtime.now();
        let is_stale = self.state().names.get_mut(name).is_some_and(|watched| watched.is_behind(oldest, now, TRUSTED));
        if is_stale {
            self.reopen();
        }
    }

    /// The server said something else than the mirror.
    fn reopen(&self) {
        let _ = self.commands.send(Command::Reopen);
    }
}

impl State {
    /// The request for another watcher, if the server ended that of this name. The server knows the old number for as long as the stream lives.
    fn watch_again(&mut self, name: &Name) -> Option<WatchRequest> {
        let watched = self.names.get_mut(name).filter(|watched| watched.cancelled)?;
        self.last_number += 1;
        self.numbers.remove(&watched.number);
        self.numbers.insert(self.last_number, name.clone());
        (watched.number, watched.cancelled) = (self.last_number, false);
        Some(create(watched.number, name))
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mirrors, for the task that keeps them.
#[derive(Debug)]
pub(super) struct Mirrors(Arc<Mutex<State>>);

impl Mirrors {
    /// A stream begins: everything has to be watched and read again.
    pub(super) fn begin(&self) -> Vec<WatchRequest> {
        let mut state = lock(&self.0);
        state.epoch += 1;
        let mut requests: Vec<_> = state.session.map(create_session).into_iter().collect();
        for (name, watched) in &mut state.names {
            (watched.mirror, watched.cancelled) = (Mirror::Opening, false);
            requests.push(create(watched.number, name));
        }
        requests
    }

    /// Takes in what the server sent.
    pub(super) fn take(&self, answer: WatchResponse) -> Todo {
        let mut state = lock(&self.0);
        let epoch = state.epoch;
        if answer.watch_id == SESSION {
            let deleted = answer.events.iter().any(|event| event.r#type == 1);
            let touched = answer.events.iter().any(|event| event.kv.as_ref().is_some_and(|kv| kv.version > 1));
            let about = |kv: &KeyValue, lease: i64| kv.key == keys::session_key(lease);
            let current = state
                .session
                .filter(|lease| answer.events.iter().filter_map(|event| event.kv.as_ref()).any(|kv| about(kv, *lease)));
            return match current {
                Some(lease) if deleted => Todo::SessionGone(lease),
                Some(_) if touched => Todo::SessionTouched,
                _ => Todo::Nothing,
            };
        }
        let Some(name) = state.numbers.get(&answer.watch_id).cloned() else { return Todo::Nothing };
        let Some(watched) = state.names.get_mut(&name) else { return Todo::Nothing };
        if answer.canceled {
            let message = format!("etcd does not let {name:?} be watched: {}", answer.cancel_reason);
            watched.cancel(&Error::new(ErrorKind::Unavailable, message));
            return Todo::Nothing;
        }
        if answer.created {
            watched.mirror = Mirror::Listing(Vec::new());
            return Todo::List(name, epoch);
        }
        watched.changed(&name, answer.events);
        Todo::Nothing
    }

    /// The list of a name was read, at this revision. `None`: it was not; the stream is no use without it.
    pub(super) fn listed(&self, name: &Name, epoch: u64, list: Option<(Vec<KeyValue>, i64)>, now: Instant) -> bool {
        let mut state = lock(&self.0);
        if state.epoch != epoch {
            return true;
        }
        let Some(watched) = state.names.get_mut(name) else { return true };
        let Some((kvs, revision)) = list else { return false };
        match View::of(name, kvs) {
            Ok(view) => watched.begin(name, view, revision, now),
            Err(error) => watched.fail(&error),
        }
        true
    }

    /// Ends the watchers of names that nobody has waited for in a while, and begins those again that the server ended.
    pub(super) fn sweep(&self, now: Instant) -> Vec<WatchRequest> {
        let mut state = lock(&self.0);
        let idle = |watched: &Watched| watched.idle_since.is_some_and(|since| now.since(since) >= LINGER);
        let old: Vec<(Name, i64)> = state
            .names
            .iter()
            .filter(|(_, watched)| idle(watched))
            .map(|(name, watched)| (name.clone(), watched.number))
            .collect();
        for (name, number) in &old {
            state.names.remove(name);
            state.numbers.remove(number);
        }
        let cancelled = state.names.iter().filter(|(_, watched)| watched.cancelled).map(|(name, _)| name.clone());
        let again: Vec<Name> = cancelled.collect();
        let again = again.iter().filter_map(|name| state.watch_again(name));
        again.chain(old.into_iter().map(|(_, number)| cancel(number))).collect()
    }
}

fn request(request: watch_request::RequestUnion) -> WatchRequest {
    WatchRequest { request_union: Some(request) }
}

fn create(number: i64, name: &Name) -> WatchRequest {
    let key = keys::prefix(name);
    let range_end = keys::end_of(&key);
    request(watch_request::RequestUnion::CreateRequest(WatchCreateRequest {
        key,
        range_end,
        start_revision: 0,
        watch_id: number,
    }))
}

fn create_session(lease: i64) -> WatchRequest {
    let key = keys::session_key(lease);
    let create = WatchCreateRequest { key, range_end: Vec::new(), start_revision: 0, watch_id: SESSION };
    request(watch_request::RequestUnion::CreateRequest(create))
}

fn cancel(number: i64) -> WatchRequest {
    request(watch_request::RequestUnion::CancelRequest(WatchCancelRequest { watch_id: number }))
}

/// Ends a subscription when dropped.
struct Registration {
    hub: Hub,
    name: Name,
    owner: WireOwner,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.hub.leave(&self.name, self.owner, self.id, self.hub.runtime.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Claim;
    use crate::owner::ClientId;

    fn created(request: &WatchRequest) -> Option<i64> {
        match &request.request_union {
            Some(watch_request::RequestUnion::CreateRequest(create)) => Some(create.watch_id),
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watcher_that_the_server_ends_is_begun_again_for_those_who_wait() {
        let (hub, _commands) = Hub::new(Runtime::simulated());
        let (mirrors, name, owner) =
            (hub.mirror(), Name::new("a").unwrap(), WireOwner { client: ClientId::from_bits(1), number: 1 });
        let watch = Watch::new(name.clone(), Claim::Mutex, owner);
        let (_, ready) = hub.register(&watch, &Notifier::default());
        let number = hub.state().names[&name].number;
        let answer = |watch_id: i64| WatchResponse { watch_id, created: true, ..WatchResponse::default() };
        let Todo::List(listed, epoch) = mirrors.take(answer(number)) else { panic!("not listed") };
        assert!(mirrors.listed(&listed, epoch, Some((Vec::new(), 1)), Instant::from_nanos(1)));
        assert!(ready.is_some_and(|mut ready| ready.try_recv().is_ok_and(|ready| ready.is_ok())));
        assert!(mirrors.sweep(Instant::from_nanos(2)).is_empty());
        mirrors.take(WatchResponse { canceled: true, cancel_reason: "compacted".into(), ..answer(number) });
        let again = mirrors.sweep(Instant::from_nanos(3));
        let [Some(next)] = again.iter().map(created).collect::<Vec<_>>()[..] else { panic!("{again:?}") };
        assert_ne!(next, number, "the server still knows the old number");
        assert!(mirrors.sweep(Instant::from_nanos(4)).is_empty());
        assert!(matches!(mirrors.take(answer(next)), Todo::List(..)));
        assert_eq!(mirrors.take(answer(number)), Todo::Nothing);
    }
}
