//! A process's side of the pipes: events are written when they happen, and questions to the parent wait for their answers.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper::layer::Answered;
use lockkeeper::referee::{Event, Grants, What};
use lockkeeper::runtime::Runtime;
use lockkeeper::{ClientId, Held, WireOwner};
use tokio::sync::{oneshot, watch};

use super::message::{Ask, Lock, Said, Told};

/// So many owners are remembered: many more than have holds at a time.
const REMEMBERED: usize = 10_000;

/// Nanoseconds on the clock that all processes of the machine share.
pub(super) fn now() -> u64 {
    Runtime::system().now().as_nanos()
}

#[derive(Debug)]
pub(super) struct Desk {
    client: u32,
    grants: Mutex<Grants<(ClientId, u64)>>,
    /// What the store answered first when it granted. A renewal may come before the guard does: when a writer becomes a reader, its old side is
    /// released in between.
    first: Mutex<Firsts>,
    /// `None` if nobody answers any more.
    asked: Mutex<Option<HashMap<u64, oneshot::Sender<Option<u64>>>>>,
    next: AtomicU64,
    stop: watch::Sender<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    pub(super) fn new(client: u32) -> Arc<Self> {
        let grants = Mutex::new(Grants::of_the_last(REMEMBERED));
        let (first, asked) = (Mutex::default(), Mutex::new(Some(HashMap::new())));
        Arc::new(Self { client, grants, first, asked, next: AtomicU64::new(1), stop: watch::Sender::new(false) })
    }

    /// Writes a line at once: a process that is killed must not take with it what it has done.
    pub(super) fn say(&self, said: &Said) {
        let Ok(mut line) = serde_json::to_vec(said) else { return };
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            // The parent is gone, and the kernel ends this process.
            self.stop.send_replace(true);
        }
    }

    /// It happened at `at`, which was read before.
    pub(super) fn event_at(&self, at: u64, what: What) {
        self.say(&Said::Event(Event { at, client: self.client, what }));
    }

    pub(super) fn event(&self, what: What) {
        self.event_at(now(), what);
    }

    /// The store answered that an owner holds a name.
    pub(super) fn answered(&self, answer: &Answered) {
        let Answered { name, owner, token, sent, good_for, .. } = answer;
        let lease = u64::try_from(good_for.as_nanos()).unwrap_or(u64::MAX);
        let sent = sent.as_nanos();
        lock(&self.grants).answered(key(*owner), *token, sent, lease);
        if let Some(token) = token {
            lock(&self.first).granted(key(*owner), *token, sent, lease);
        } else {
            self.event(What::Kept { name: name.to_string(), owner: owner.to_string(), sent, lease });
        }
    }

    /// When the request was sent by which a guard was granted, and its lease; and the same of the last request that kept it.
    pub(super) fn grant_of(&self, held: &Held) -> [(u64, u64); 2] {
        let (owner, token) = (key(held.owner()), held.token().map(u64::from));
        let last = lock(&self.grants).of(&owner, token).unwrap_or_else(|| (now(), 0));
        let first = token.and_then(|token| lock(&self.first).of(owner, token));
        [first.unwrap_or(last), last]
    }

    /// A new number.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks the parent; `None` if it says no.
    pub(super) async fn ask(&self, ask: Ask) -> Option<u64> {
        let id = self.number();
        let (tell, told) = oneshot::channel();
        lock(&self.asked).as_mut()?.insert(id, tell);
        self.say(&Said::Ask { id, ask });
        told.await.ok().flatten()
    }

    /// Runs a change of a number, whose outcome is known if it ends with `Ok`: by how much it was changed.
    pub(super) async fn count<E>(&self, lock: Lock, by: i64, change: impl Future<Output = Result<i64, E>>) -> Result<(), E> {
        let id = self.number();
        self.say(&Said::Counting { lock, id, by });
        let by = change.await?;
        self.say(&Said::Counted { id, by });
        Ok(())
    }

    /// Ends when the process is to stop.
    pub(super) async fn stopped(&self) {
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Reads what the parent says, until it says nothing any more.
    pub(super) fn listen(self: &Arc<Self>) {
        let desk = Arc::clone(self);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(Told::Answer { id, value }) => {
                        if let Some(tell) = lock(&desk.asked).as_mut().and_then(|asked| asked.remove(&id)) {
                            let _ = tell.send(value);
                        }
                    }
                    Ok(Told::Stop) => {
                        desk.stop.send_replace(true);
                    }
                    Err(_) => break,
                }
            }
            // Nobody answers any more.
            desk.stop.send_replace(true);
            *lock(&desk.asked) = None;
        });
    }
}

/// The grants of each owner.
#[derive(Debug, Default)]
struct Firsts(BTreeMap<(ClientId, u64), Vec<Granted>>);

/// Token, when it was asked for, lease.
type Granted = (u64, u64, u64);

impl Firsts {
    fn granted(&mut self, owner: (ClientId, u64), token: u64, sent: u64, lease: u64) {
        let grants = self.0.entry(owner).or_default();
        if grants.iter().all(|(known, ..)| *known != token) {
            grants.push((token, sent, lease));
        }
        if self.0.len() > REMEMBERED {
            self.0.pop_first();
        }
    }

    /// Guards to which a hold passes have larger tokens than the grant.
    fn of(&self, owner: (ClientId, u64), token: u64) -> Option<(u64, u64)> {
        let grants = self.0.get(&owner)?;
        grants.iter().rev().find(|(granted, ..)| *granted <= token).map(|(_, sent, lease)| (*sent, *lease))
    }
}

const fn key(owner: WireOwner) -> (ClientId, u64) {
    (owner.client, owner.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_was_asked_for_when_its_grant_was() {
        let (owner, mut firsts) = ((ClientId::from_bits(1), 7), Firsts::default());
        firsts.granted(owner, 10, 100, 5);
        firsts.granted(owner, 10, 200, 6);
        firsts.granted(owner, 20, 300, 7);
        assert_eq!([9, 10, 12, 20].map(|token| firsts.of(owner, token)), [None, Some((100, 5)), Some((100, 5)), Some((300, 7))]);
        assert_eq!(firsts.of((ClientId::from_bits(2), 7), 10), None);
    }
}
