//! How the kernel tells who is alive: a pipe with a name, whose writing end its owner holds open and never writes to.
//!
//! When the last copy of that end is closed (by exit, by `kill -9`, with the last program that inherited it), whoever reads the pipe
//! finds its end at once, and whoever polls it is woken. A lock on a file would tell the same, but only to those who keep asking.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::error;
use super::place::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// One opened store, drawn at random: where its mail goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Instance(pub(super) u128);

/// One of an instance's lives; it has a second one only after it gave up the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct LifeId {
    pub(super) instance: Instance,
    generation: u32,
}

/// Whether somebody is alive.
#[derive(Debug)]
pub(super) enum Sign {
    Dead,
    /// The reading end tells when that changes; `None`: it cannot be asked, and only its leases count.
    Alive(Option<Arc<OwnedFd>>),
}

/// The lives of this instance.
#[derive(Debug)]
pub(super) struct Lives {
    place: Arc<Place>,
    instance: Instance,
    state: Mutex<State>,
    /// Pipes of others that were found alive, still open: to ask again costs less than to find them anew.
    others: Mutex<HashMap<LifeId, Arc<OwnedFd>>>,
}

/// How many pipes of others are kept open.
const OTHERS: usize = 64;

#[derive(Debug, Default)]
struct State {
    generation: u32,
    current: Option<(LifeId, OwnedFd)>,
    /// What is held under it, or may be, until when.
    held: HashMap<WireOwner, Instant>,
}

impl Lives {
    pub(super) fn new(place: Arc<Place>, instance: Instance) -> Self {
        Self { place, instance, state: Mutex::default(), others: Mutex::default() }
    }

    pub(super) fn instance(&self) -> Instance {
        self.instance
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life that new holds are under; begins one if there is none.
    pub(super) fn current(&self) -> Result<LifeId> {
        self.ensure(&mut self.state())
    }

    fn ensure(&self, state: &mut State) -> Result<LifeId> {
        if let Some((id, _)) = &state.current {
            return Ok(*id);
        }
        if self.instance.0.is_multiple_of(16) {
            sweep(&self.place);
        }
        state.generation += 1;
        let id = LifeId { instance: self.instance, generation: state.generation };
        let pipe = begin(&self.place, id).map_err(|cause| error::of_file(cause, "make a sign of life in", self.place.live()))?;
        state.current = Some((id, pipe));
        Ok(id)
    }

    /// `owner` is about to hold something until then, under the life that is told, which is not given up meanwhile.
    pub(super) fn hold(&self, owner: WireOwner, until: Instant) -> Result<LifeId> {
        let mut state = self.state();
        let life = self.ensure(&mut state)?;
        let held = state.held.entry(owner).or_insert(until);
        *held = until.max(*held);
        Ok(life)
    }

    /// Whether it holds something under the present life, or may.
    pub(super) fn holds(&self, owner: WireOwner) -> bool {
        self.state().held.contains_key(&owner)
    }

    pub(super) fn is_current(&self, life: LifeId) -> bool {
        self.state().current.as_ref().is_some_and(|(id, _)| *id == life)
    }

    /// It does not hold it, or no more.
    pub(super) fn let_go(&self, owner: WireOwner) {
        self.state().held.remove(&owner);
    }

    /// Gives up the present life, and with it what `owner` holds under it, if that is all there is.
    pub(super) fn give_up_for(&self, owner: WireOwner, now: Instant) -> bool {
        let mut state = self.state();
        state.held.retain(|_, until| *until > now);
        if state.held.keys().any(|other| *other != owner) {
            return false;
        }
        state.held.clear();
        // Closed before it is unlinked: who still finds it finds it dead.
        if let Some((id, pipe)) = state.current.take() {
            drop(pipe);
            let _ = std::fs::remove_file(self.place.live().join(id.to_string()));
        }
        true
    }

    /// Another copy of the end that tells our life.
    pub(super) fn copy(&self) -> Result<OwnedFd> {
        let mut state = self.state();
        self.ensure(&mut state)?;
        let copied = state.current.as_ref().map(|(_, pipe)| pipe.try_clone());
        copied
            .unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::NotFound)))
            .map_err(|cause| error::of_file(cause, "copy the sign of life in", self.place.live()))
    }

    /// Whether the one with this life is alive.
    pub(super) fn sign(&self, life: LifeId) -> Sign {
        if self.is_current(life) {
            return Sign::Alive(None);
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = others.get(&life) {
            if is_open(pipe) {
                return Sign::Alive(Some(Arc::clone(pipe)));
            }
            others.remove(&life);
            return Sign::Dead;
        }
        let found = sign(&self.place, &life.to_string());
        if let Sign::Alive(Some(pipe)) = &found {
            if others.len() >= OTHERS {
                others.clear();
            }
            others.insert(life, Arc::clone(pipe));
        }
        found
    }
}

impl Drop for Lives {
    fn drop(&mut self) {
        if let Some((id, pipe)) = self.state().current.take() {
            drop(pipe);
            let _ = std::fs::remove_file(self.place.live().join(id.to_string()));
        }
    }
}

/// Opened before it has its name: a sweeper that found a pipe which nobody has open yet would take it for a dead one's.
fn begin(place: &Place, id: LifeId) -> io::Result<OwnedFd> {
    let path = place.live().join(format!("{id}.new"));
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(place.mode()), 0)?;
    // For both ends, so that opening waits for no reader, and none is needed.
    let pipe = rustix::fs::open(&path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fchmod(&pipe, Mode::from_raw_mode(place.mode()))?;
    std::fs::rename(&path, place.live().join(id.to_string()))?;
    Ok(pipe)
}

fn sign(place: &Place, name: &str) -> Sign {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(place.live().join(name), flags, Mode::empty()) {
        Ok(pipe) if is_open(&pipe) => Sign::Alive(Some(Arc::new(pipe))),
        Ok(_) => Sign::Dead,
        Err(rustix::io::Errno::NOENT) => Sign::Dead,
        Err(_) => Sign::Alive(None),
    }
}

/// Whether somebody has the other end, and has not given it up: then its name is gone, whoever inherited it.
fn is_open(pipe: &OwnedFd) -> bool {
    // Nothing to read, or something that a program wrote that inherited it.
    let ended = matches!(rustix::io::read(pipe, &mut [0]), Ok(0));
    !ended && rustix::fs::fstat(pipe).is_ok_and(|told| told.st_nlink > 0)
}

/// Removes what the dead left. One in sixteen does it, so that thousands do not look at each other.
fn sweep(place: &Place) {
    let Ok(entries) = std::fs::read_dir(place.live()) else { return };
    let names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    for name in names.iter().filter(|name| name.parse::<LifeId>().is_ok()) {
        if matches!(sign(place, name), Sign::Dead) {
            let _ = std::fs::remove_file(place.live().join(name));
            if let Some((instance, _)) = name.split_once('.') {
                let _ = std::fs::remove_file(place.live().join(format!("{instance}.sock")));
            }
        }
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Instance {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bits = if text.len() == 32 { u128::from_str_radix(text, 16).ok() } else { None };
        bits.map(Self).ok_or_else(|| Error::new(ErrorKind::Protocol, format!("{text:?} is no instance of a store")))
    }
}

impl fmt::Display for LifeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.instance, self.generation)
    }
}

impl FromStr for LifeId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split_once('.').and_then(|(instance, generation)| {
            Some(Self { instance: instance.parse().ok()?, generation: generation.parse().ok()? })
        });
        parsed.ok_or_else(|| Error::new(ErrorKind::Protocol, format!("{text:?} is no sign of life")))
    }
}

impl TryFrom<String> for LifeId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<LifeId> for String {
    fn from(life: LifeId) -> Self {
        life.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::config::Config;
    use super::*;

    fn life(number: u32) -> LifeId {
        LifeId { instance: Instance(u128::from(number) + 1), generation: 1 }
    }

    fn with_place(name: &str, test: impl FnOnce(&Place)) {
        let folder = std::env::temp_dir().join(format!("lockkeeper-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let place = Place::open(&Config::file(folder.join("locks.db"))).unwrap();
        place.make().unwrap();
        test(&place);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_sweep_removes_the_dead_and_nobody_who_begins() {
        with_place("sweep", |place| {
            let over = AtomicBool::new(false);
            std::thread::scope(|threads| {
                for _ in 0..2 {
                    threads.spawn(|| {
                        while !over.load(Ordering::Relaxed) {
                            sweep(place);
                        }
                    });
                }
                let swept = (0..1_000).find(|number| {
                    let pipe = begin(place, life(*number));
                    let found = sign(place, &life(*number).to_string());
                    pipe.is_err() || matches!(found, Sign::Dead)
                });
                // Before anything can fail: the sweepers are waited for.
                over.store(true, Ordering::Relaxed);
                assert_eq!(swept, None, "taken for a dead one's");
            });
            sweep(place);
            assert_eq!(std::fs::read_dir(place.live()).unwrap().count(), 0, "the dead are removed");
        });
    }

    /// The negative control: one that has its name before it is open is what a sweep takes away.
    #[test]
    fn a_sweep_removes_what_has_its_name_too_early() {
        with_place("early", |place| {
            let path = place.live().join(life(0).to_string());
            rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            sweep(place);
            assert!(!path.exists());
        });
    }
}
