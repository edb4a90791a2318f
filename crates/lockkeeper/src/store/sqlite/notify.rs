//! Subscriptions between processes: a datagram to those who listen, after the commit, and an eye on those who are in the way.
//!
//! The mail is read on the executor of whoever waits, so that nothing lies between a letter and the one it wakes. A thread, started when there is
//! somebody to watch, polls the signs of life of the holders that our waiters wait for; it reads the mail instead once that executor
//! has ended, or somebody waits on another one. All of it is a hint: a full mailbox or a stopped thread costs a poll, never a lock.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::letters::{Call, Pens};
use super::life::{Instance, LifeId, Lives, Sign};
use super::place::Place;
use crate::backend::Notifier;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::{self, Runtime};

/// So many letters at once may mean that a mailbox was full and some were lost: the shortest that the kernel has by default.
const FULL: usize = 10;

/// How many of those in the way of one waiter are watched; the rest is left to polling.
const EYES: usize = 16;

/// What is told of a mailbox that nobody reads any more.
const GONE: [io::ErrorKind; 3] = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused, io::ErrorKind::BrokenPipe];

/// Our mailbox and our subscriptions; whoever reads and watches for it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Post(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    place: Arc<Place>,
    lives: Arc<Lives>,
    runtime: Runtime,
    /// Wakes the thread.
    nudge: OwnedFd,
    /// Bound for the first who waits, with the executor on which it is read; `None`: no mail can come, only polling is left.
    mailbox: OnceLock<Option<(UnixDatagram, Option<runtime::Executor>)>>,
    pens: Pens,
    /// The thread has been started.
    watching: AtomicBool,
    /// The thread reads the mail, and nobody else does.
    forsaken: AtomicBool,
    stopped: AtomicBool,
    desk: Mutex<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    subscriptions: HashMap<Name, Vec<Entry>>,
    last_id: u64,
    watched: HashMap<Name, Vec<(LifeId, Arc<OwnedFd>)>>,
    /// What the thread polls at present.
    polled: HashMap<LifeId, Arc<OwnedFd>>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    owner: Option<WireOwner>,
    notifier: Notifier,
}

/// How a call came to those who should hear it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// They are in this process.
    Here,
    Away,
    /// There is no mailbox, nor will there be.
    Nowhere,
}

impl Post {
    pub(super) fn new(place: Arc<Place>, lives: Arc<Lives>, runtime: Runtime) -> Result<Self> {
        let nudge = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|cause| Error::new(ErrorKind::Unavailable, "the machine gives no descriptor").with_source(cause))?;
        let (mailbox, pens, watching, forsaken, stopped, desk) = Default::default();
        Ok(Self(Arc::new(Shared { place, lives, runtime, nudge, mailbox, pens, watching, forsaken, stopped, desk })))
    }

    /// Hangs up a subscription. Somebody else has to be told that mail is wanted.
    pub(super) fn hang(&self, name: &Name, owner: Option<WireOwner>, notifier: Notifier) -> Result<u64> {
        // With a sign of life, so that nobody sweeps the mailbox away.
        self.0.lives.current()?;
        let here = runtime::executor();
        let mut bound = false;
        let there = self.0.mailbox.get_or_init(|| {
            bound = true;
            let mailbox = self.0.bind().inspect_err(|error| tracing::debug!(%error, "no mailbox; asking by ourselves")).ok()?;
            Some((mailbox, here))
        });
        match there {
            Some((mailbox, _)) if bound => {
                let reader = Reader(Arc::downgrade(&self.0));
                // Without a copy of its own it is dropped, and the thread goes on.
                if let Ok(mailbox) = mailbox.try_clone() {
                    runtime::spawn_if_possible(reader.attend(mailbox));
                }
            }
            // The executor that reads may rest while this one waits.
            Some((_, reading)) if *reading != here => self.0.forsake(),
            _ => {}
        }
        let mut desk = self.0.desk();
        desk.last_id += 1;
        let id = desk.last_id;
        desk.subscriptions.entry(name.clone()).or_default().push(Entry { id, owner, notifier });
        Ok(id)
    }

    /// Takes a subscription down.
    pub(super) fn take_down(&self, name: &Name, id: u64) {
        let mut desk = self.0.desk();
        let Some(subscriptions) = desk.subscriptions.get_mut(name) else { return };
        subscriptions.retain(|subscription| subscription.id != id);
        if subscriptions.is_empty() {
            desk.subscriptions.remove(name);
            // The thread still looks at them until it wakes, which does no harm: the next waiter need not wake it.
            desk.watched.remove(name);
        }
    }

    /// Whether somebody here wants all mail for the name.
    pub(super) fn wants_all(&self, name: &Name) -> bool {
        self.0
            .desk()
            .subscriptions
            .get(name)
            .is_some_and(|subscriptions| subscriptions.iter().any(|subscription| subscription.owner.is_none()))
    }

    /// Rings here.
    pub(super) fn notify(&self, name: &Name, call: Call) {
        self.0.desk().notify(name, call);
    }

    /// Sends a letter.
    pub(super) fn send(&self, to: Instance, name: &Name, call: Call) -> Sent {
        if to == self.0.lives.instance() {
            self.notify(name, call);
            return Sent::Here;
        }
        match self.0.pens.write(&self.0.place, to, &call.letter(name)) {
            Err(error) if GONE.contains(&error.kind()) => Sent::Nowhere,
            _ => Sent::Away,
        }
    }

    /// Watches those who are in the way of our waiters for the name, if we have any: their death rings.
    pub(super) fn mind(&self, name: &Name, lives: &[LifeId]) {
        let mut desk = self.0.desk();
        if !desk.subscriptions.contains_key(name) {
            return;
        }
        let mut before = desk.watched.remove(name).unwrap_or_default();
        let mut now = Vec::new();
        let mut fresh = false;
        for life in lives.iter().take(EYES) {
            if now.iter().any(|(known, _)| known == life) {
                continue;
            }
            if let Some(at) = before.iter().position(|(known, _)| known == life) {
                now.push(before.swap_remove(at));
            } else {
                match self.0.lives.sign(*life) {
                    Sign::Alive(Some(pipe)) => {
                        fresh |= !desk.polled.contains_key(life);
                        now.push((*life, pipe));
                    }
                    Sign::Alive(None) => {}
                    Sign::Dead => desk.ring_everybody(name),
                }
            }
        }
        desk.watched.insert(name.clone(), now);
        drop(desk);
        if fresh {
            self.0.watch();
        }
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        self.0.nudge();
        if let Some(mailbox) = self.0.mailbox() {
            // Whoever reads it wakes.
            let _ = mailbox.shutdown(std::net::Shutdown::Both);
            let _ = std::fs::remove_file(self.0.place.socket(&self.0.lives.instance().to_string()));
        }
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mailbox(&self) -> Option<&UnixDatagram> {
        self.mailbox.get()?.as_ref().map(|(mailbox, _)| mailbox)
    }

    fn nudge(&self) {
        let _ = rustix::io::write(&self.nudge, &1_u64.to_ne_bytes());
    }

    fn bind(&self) -> io::Result<UnixDatagram> {
        let path = self.place.socket(&self.lives.instance().to_string());
        let mailbox = UnixDatagram::bind(&path)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(self.place.mode()))?;
        mailbox.set_nonblocking(true)?;
        Ok(mailbox)
    }

    /// Whoever reads the mail may not do it any more: the thread does from now on.
    fn forsake(self: &Arc<Self>) {
        if !self.forsaken.swap(true, Ordering::SeqCst) {
            self.watch();
        }
    }

    /// Has the thread look at what is to be looked at now.
    fn watch(self: &Arc<Self>) {
        if self.watching.swap(true, Ordering::SeqCst) {
            return self.nudge();
        }
        let shared = Arc::clone(self);
        if let Err(error) = self.runtime.thread("lockkeeper-post", move || shared.attend()) {
            self.watching.store(false, Ordering::SeqCst);
            tracing::debug!(%error, "nobody is watched; asking by ourselves");
        }
    }

    /// The thread: waits for deaths, and for mail that nobody else reads.
    fn attend(&self) {
        while !self.stopped.load(Ordering::SeqCst) {
            let forsaken = self.forsaken.load(Ordering::SeqCst);
            let mailbox = self.mailbox().filter(|_| forsaken);
            let eyes = self.desk().eyes();
            let mut fds = vec![PollFd::new(&self.nudge, PollFlags::IN)];
            fds.extend(mailbox.map(|mailbox| PollFd::new(mailbox, PollFlags::IN)));
            let first_eye = fds.len();
            fds.extend(eyes.iter().map(|(_, pipe)| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::empty())));
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let woken: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if woken[0] {
                let _ = rustix::io::read(&self.nudge, &mut [0; 8]);
            }
            if let Some(mailbox) = mailbox {
                self.open_mail(|letter| mailbox.recv(letter));
            }
            for ((life, _), _) in eyes.iter().zip(&woken[first_eye..]).filter(|(_, dead)| **dead) {
                self.desk().toll(*life);
            }
        }
    }

    fn open_mail(&self, next: impl Fn(&mut [u8]) -> io::Result<usize>) {
        let mut letter = [0; 1_024];
        let mut letters = 0;
        while let Ok(length) = next(&mut letter) {
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            letters += 1;
            let text = std::str::from_utf8(&letter[..length]).unwrap_or_default();
            if let Some((call, name)) = Call::read(text) {
                self.desk().notify(&name, call);
            }
        }
        if letters >= FULL {
            let desk = self.desk();
            desk.subscriptions.values().flatten().for_each(|subscription| subscription.notifier.notify());
        }
    }
}

/// Reads the mail on the executor of the first who waits. If that executor ends, or has no driver for I/O, the thread goes on.
///
/// It keeps nothing alive: a task of an executor that does not run would also keep the sign of life of a client that is gone.
struct Reader(Weak<Shared>);

impl Reader {
    async fn attend(self, mailbox: UnixDatagram) {
        let Ok(mailbox) = tokio::net::UnixDatagram::from_std(mailbox) else { return };
        while mailbox.readable().await.is_ok() {
            // Not beside the thread: each of two would see half of a mailbox that was full, and neither that it was.
            let Some(shared) = self.shared().filter(|shared| !shared.forsaken.load(Ordering::SeqCst)) else { return };
            shared.open_mail(|letter| mailbox.try_recv(letter));
        }
    }

    /// As long as there are subscriptions to ring.
    fn shared(&self) -> Option<Arc<Shared>> {
        self.0.upgrade().filter(|shared| !shared.stopped.load(Ordering::SeqCst))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(shared) = self.shared() {
            shared.forsake();
        }
    }
}

impl Desk {
    /// All lives that are watched, each once, which are polled from now on.
    fn eyes(&mut self) -> Vec<(LifeId, Arc<OwnedFd>)> {
        self.polled = self.watched.values().flatten().cloned().collect();
        self.polled.iter().map(|(life, pipe)| (*life, Arc::clone(pipe))).collect()
    }

    /// Somebody died: whoever waited for that one is woken.
    fn toll(&mut self, life: LifeId) {
        self.polled.remove(&life);
        let mut concerned = Vec::new();
        for (name, lives) in &mut self.watched {
            let before = lives.len();
            lives.retain(|(known, _)| *known != life);
            if lives.len() < before {
                concerned.push(name.clone());
            }
        }
        concerned.iter().for_each(|name| self.ring_everybody(name));
    }

    fn notify(&self, name: &Name, call: Call) {
        for subscription in self.subscriptions.get(name).into_iter().flatten() {
            let called = match call {
                Call::All => subscription.owner.is_none(),
                Call::Head(head) => subscription.owner == Some(head),
            };
            if called {
                subscription.notifier.notify();
            }
        }
    }

    fn ring_everybody(&self, name: &Name) {
        self.subscriptions.get(name).into_iter().flatten().for_each(|subscription| subscription.notifier.notify());
    }
}
