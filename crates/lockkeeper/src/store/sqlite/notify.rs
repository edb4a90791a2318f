//! Bells between processes: a datagram to those who listen, after the commit, and an eye on those who are in the way.
//!
//! One thread per store, started by the first who waits, reads the mail and polls the signs of life of the holders that its waiters wait
//! for. All of it is a hint: a full mailbox or a stopped thread costs a poll, never a lock.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::life::{Instance, LifeId, Lives, Sign};
use super::place::Place;
use crate::backend::Ringer;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Runtime;

/// So many letters at once may mean that a mailbox was full and some were lost: the shortest that the kernel has by default.
const FULL: usize = 10;

/// How many of those in the way of one waiter are watched; the rest is left to polling.
const EYES: usize = 16;

/// To how many mailboxes the way is kept.
const PENS: usize = 16;

/// Our mailbox and our bells; its thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Post(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    place: Arc<Place>,
    lives: Arc<Lives>,
    /// Wakes the thread.
    nudge: OwnedFd,
    /// Bound when the thread starts; `None`: no mail can come, only polling is left.
    mailbox: OnceLock<Option<UnixDatagram>>,
    /// The way to those whom we wrote to, last ones last: finding a mailbox costs more than writing to it.
    pens: Mutex<Vec<(Instance, UnixDatagram)>>,
    stopped: AtomicBool,
    desk: Mutex<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    bells: HashMap<Name, Vec<Entry>>,
    last_id: u64,
    watched: HashMap<Name, Vec<(LifeId, Arc<OwnedFd>)>>,
    /// What the thread polls at present.
    polled: HashMap<LifeId, Arc<OwnedFd>>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    owner: Option<WireOwner>,
    ringer: Ringer,
}

/// For whom a letter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    All,
    Head(WireOwner),
}

impl Post {
    pub(super) fn new(place: Arc<Place>, lives: Arc<Lives>) -> Result<Self> {
        let nudge = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|cause| Error::new(ErrorKind::Unavailable, "the machine gives no descriptor").with_source(cause))?;
        let (mailbox, pens, stopped, desk) = Default::default();
        Ok(Self(Arc::new(Shared { place, lives, nudge, mailbox, pens, stopped, desk })))
    }

    /// Hangs up a bell. Somebody else has to be told that mail is wanted.
    pub(super) fn hang(&self, runtime: &Runtime, name: &Name, owner: Option<WireOwner>, ringer: Ringer) -> Result<u64> {
        // With a sign of life, so that nobody sweeps the mailbox away.
        self.0.lives.current()?;
        let mut bound = false;
        self.0.mailbox.get_or_init(|| {
            bound = true;
            self.0.bind().inspect_err(|error| tracing::debug!(%error, "no mailbox; asking by ourselves")).ok()
        });
        if bound {
            let shared = Arc::clone(&self.0);
            runtime.thread("lockkeeper-post", move || shared.attend())?;
        }
        let mut desk = self.0.desk();
        desk.last_id += 1;
        let id = desk.last_id;
        desk.bells.entry(name.clone()).or_default().push(Entry { id, owner, ringer });
        Ok(id)
    }

    /// Takes a bell down.
    pub(super) fn take_down(&self, name: &Name, id: u64) {
        let mut desk = self.0.desk();
        let Some(bells) = desk.bells.get_mut(name) else { return };
        bells.retain(|bell| bell.id != id);
        if bells.is_empty() {
            desk.bells.remove(name);
            // The thread still looks at them until it wakes, which does no harm: the next waiter need not wake it.
            desk.watched.remove(name);
        }
    }

    /// Whether somebody here wants all mail for the name.
    pub(super) fn wants_all(&self, name: &Name) -> bool {
        self.0.desk().bells.get(name).is_some_and(|bells| bells.iter().any(|bell| bell.owner.is_none()))
    }

    /// Rings here.
    pub(super) fn ring(&self, name: &Name, call: Call) {
        self.0.desk().ring(name, call);
    }

    /// Sends a letter; whether there is a mailbox.
    pub(super) fn send(&self, to: Instance, name: &Name, call: Call) -> bool {
        if to == self.0.lives.instance() {
            self.ring(name, call);
            return true;
        }
        match self.0.write(to, call.letter(name).as_bytes()) {
            Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused),
            Ok(()) => true,
        }
    }

    /// Watches those who are in the way of our waiters for the name, if we have any: their death rings.
    pub(super) fn mind(&self, name: &Name, lives: &[LifeId]) {
        let mut desk = self.0.desk();
        if !desk.bells.contains_key(name) {
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
            self.0.nudge();
        }
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        self.0.nudge();
        if self.0.mailbox.get().is_some_and(Option::is_some) {
            let _ = std::fs::remove_file(self.0.place.socket(&self.0.lives.instance().to_string()));
        }
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn write(&self, to: Instance, letter: &[u8]) -> io::Result<()> {
        let mut pens = self.pens.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pens.iter().position(|(instance, _)| *instance == to).map(|at| pens.remove(at).1);
        let pen = match known {
            Some(pen) => pen,
            None => {
                let pen = UnixDatagram::unbound()?;
                pen.set_nonblocking(true)?;
                pen.connect(self.place.socket(&to.to_string()))?;
                pen
            }
        };
        let sent = pen.send(letter).map(drop);
        // Full is not gone.
        if sent.as_ref().map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |()| true) {
            if pens.len() >= PENS {
                pens.remove(0);
            }
            pens.push((to, pen));
        }
        sent
    }

    /// The thread: waits for mail and for deaths.
    fn attend(&self) {
        while !self.stopped.load(Ordering::SeqCst) {
            let mailbox = self.mailbox.get().and_then(Option::as_ref);
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
                self.open_mail(mailbox);
            }
            for ((life, _), _) in eyes.iter().zip(&woken[first_eye..]).filter(|(_, dead)| **dead) {
                self.desk().toll(*life);
            }
        }
    }

    fn open_mail(&self, mailbox: &UnixDatagram) {
        let mut letter = [0; 1_024];
        let mut letters = 0;
        while let Ok(length) = mailbox.recv(&mut letter) {
            letters += 1;
            let text = std::str::from_utf8(&letter[..length]).unwrap_or_default();
            if let Some((call, name)) = Call::read(text) {
                self.desk().ring(&name, call);
            }
        }
        if letters >= FULL {
            let desk = self.desk();
            desk.bells.values().flatten().for_each(|bell| bell.ringer.ring());
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

    fn ring(&self, name: &Name, call: Call) {
        for bell in self.bells.get(name).into_iter().flatten() {
            let called = match call {
                Call::All => bell.owner.is_none(),
                Call::Head(head) => bell.owner == Some(head),
            };
            if called {
                bell.ringer.ring();
            }
        }
    }

    fn ring_everybody(&self, name: &Name) {
        self.bells.get(name).into_iter().flatten().for_each(|bell| bell.ringer.ring());
    }
}

impl Call {
    fn letter(self, name: &Name) -> String {
        match self {
            Self::All => format!("*\n{name}"),
            Self::Head(owner) => format!("{owner}\n{name}"),
        }
    }

    fn read(letter: &str) -> Option<(Self, Name)> {
        let (whom, name) = letter.split_once('\n')?;
        let call = if whom == "*" { Self::All } else { Self::Head(whom.parse().ok()?) };
        Some((call, Name::new(name).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::ClientId;

    #[test]
    fn a_letter_reads_as_it_was_written() {
        let owner = WireOwner { client: ClientId::from_bits(7), number: 3 };
        let name = Name::new("a\nb").unwrap();
        for call in [Call::All, Call::Head(owner)] {
            assert_eq!(Call::read(&call.letter(&name)), Some((call, name.clone())));
        }
        assert_eq!(Call::read("anything"), None);
        assert_eq!(Call::read("*\n"), None);
    }
}
