//! Which clients are alive: each has a named pipe, whose writing end it holds open and never writes to.
//!
//! When the last copy of that end is closed (by exit, by `kill -9`), readers of the pipe see its end at once, and pollers are woken. A file lock would
//! show the same, but only to those who keep trying it. A program that works under the client's locks inherits a second pipe. If the client
//! dies before that program, its holds last until the program ends, beyond their leases: nobody is left who could renew them or end the program.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::error;
use super::files::{self, Files};
use crate::error::{Error, ErrorKind, Result};
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// One opened store, by a random number: its socket has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Instance(pub(super) u128);

/// One pipe of an instance; it makes a second one only after it closed the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct PeerId {
    pub(super) instance: Instance,
    generation: u32,
}

/// Whether a client is alive.
#[derive(Clone, Debug)]
pub(super) enum PeerState {
    Dead,
    /// The reading end of its pipe; `None`: it cannot be opened, and only leases count.
    Alive(Option<Arc<OwnedFd>>),
    /// It is dead, and a program that it started works on. The reading end of the pipe that the program has.
    Survived(Arc<OwnedFd>),
}

/// The pipe of this instance, and what it knows of those of others.
#[derive(Debug)]
pub(super) struct Liveness {
    files: Arc<Files>,
    instance: Instance,
    state: Mutex<State>,
    /// Live peers, whose pipes are kept open: to ask again costs less than to open them by path.
    others: Mutex<HashMap<PeerId, PeerState>>,
}

/// How many pipes of others are kept open.
const OTHERS: usize = 64;

#[derive(Debug, Default)]
struct State {
    generation: u32,
    current: Option<(PeerId, OwnedFd)>,
    /// The pipe that programs inherit, if one did.
    programs: Option<OwnedFd>,
    /// Owners that hold something under it, or may, and until when.
    held: HashMap<WireOwner, Instant>,
}

impl Liveness {
    pub(super) fn new(files: Arc<Files>, instance: Instance) -> Self {
        Self { files, instance, state: Mutex::default(), others: Mutex::default() }
    }

    pub(super) fn instance(&self) -> Instance {
        self.instance
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pipe that new holds are under; makes one if there is none.
    pub(super) fn current(&self) -> Result<PeerId> {
        self.ensure(&mut self.state())
    }

    fn ensure(&self, state: &mut State) -> Result<PeerId> {
        if let Some((id, _)) = &state.current {
            return Ok(*id);
        }
        if self.instance.0.is_multiple_of(16) {
            sweep(&self.files);
        }
        state.generation += 1;
        let id = PeerId { instance: self.instance, generation: state.generation };
        let pipe = begin(&self.files, &id.to_string())
            .map_err(|cause| error::of_file(cause, "make a named pipe in", self.files.live()))?;
        state.current = Some((id, pipe));
        Ok(id)
    }

    /// `owner` is about to hold something until then. Returns the pipe that it is under, which stays open meanwhile.
    pub(super) fn begin_hold(&self, owner: WireOwner, until: Instant) -> Result<PeerId> {
        let mut state = self.state();
        let peer = self.ensure(&mut state)?;
        let held = state.held.entry(owner).or_insert(until);
        *held = until.max(*held);
        Ok(peer)
    }

    /// Whether the owner holds something under the present pipe, or may.
    pub(super) fn holds(&self, owner: WireOwner) -> bool {
        self.state().held.contains_key(&owner)
    }

    pub(super) fn is_current(&self, peer: PeerId) -> bool {
        self.state().current.as_ref().is_some_and(|(id, _)| *id == peer)
    }

    /// The owner does not hold anything, or no longer.
    pub(super) fn end_hold(&self, owner: WireOwner) {
        self.state().held.remove(&owner);
    }

    /// Closes the present pipe, and so frees what `owner` holds under it, if nobody else holds anything under it.
    pub(super) fn close_for(&self, owner: WireOwner, now: Instant) -> bool {
        let mut state = self.state();
        state.held.retain(|_, until| *until > now);
        if state.held.keys().any(|other| *other != owner) {
            return false;
        }
        state.held.clear();
        self.close(&mut state);
        true
    }

    fn close(&self, state: &mut State) {
        let Some((id, pipe)) = state.current.take() else { return };
        // What programs have open counts no longer: this is the end in good order.
        if state.programs.take().is_some() {
            let _ = std::fs::remove_file(self.files.live().join(of_programs(&id.to_string())));
        }
        // Closed before it is unlinked: a peer that opens it in between sees that it is closed.
        drop(pipe);
        let _ = std::fs::remove_file(self.files.live().join(id.to_string()));
    }

    /// Another copy of the writing end that programs inherit.
    pub(super) fn copy(&self) -> Result<OwnedFd> {
        let mut state = self.state();
        let id = self.ensure(&mut state)?;
        let refused = |cause| error::of_file(cause, "make a named pipe in", self.files.live());
        let made = match state.programs.take() {
            Some(pipe) => pipe,
            None => begin(&self.files, &of_programs(&id.to_string())).map_err(refused)?,
        };
        let copy = made.try_clone().map_err(refused);
        state.programs = Some(made);
        copy
    }

    /// Whether the client with this pipe is alive.
    pub(super) fn state_of(&self, peer: PeerId) -> PeerState {
        if self.is_current(peer) {
            return PeerState::Alive(None);
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known @ (PeerState::Alive(Some(pipe)) | PeerState::Survived(pipe))) = others.get(&peer)
            && is_open(pipe)
        {
            return known.clone();
        }
        others.remove(&peer);
        let found = state_of(&self.files, &peer.to_string());
        if matches!(found, PeerState::Alive(Some(_)) | PeerState::Survived(_)) {
            if others.len() >= OTHERS {
                others.clear();
            }
            others.insert(peer, found.clone());
        }
        found
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        self.close(&mut self.state());
    }
}

/// The name of the pipe that programs of the client with the pipe `name` have.
fn of_programs(name: &str) -> String {
    format!("{name}.programs")
}

/// Opens the pipe before it gets its name: a sweep would take a pipe that nobody has open for that of a dead client.
fn begin(files: &Files, name: &str) -> io::Result<OwnedFd> {
    let path = files.live().join(format!("{name}.new"));
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(files.mode()), 0)?;
    // For both ends, so that opening waits for no reader, and none is needed.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let pipe = rustix::fs::open(&path, flags, Mode::empty())?;
    files::set_mode(&path, FileType::Fifo, files.mode())?;
    std::fs::rename(&path, files.live().join(name))?;
    Ok(pipe)
}

fn state_of(files: &Files, name: &str) -> PeerState {
    match open_pipe(&files.live().join(name)) {
        Ok(pipe) if is_open(&pipe) => return PeerState::Alive(Some(Arc::new(pipe))),
        Ok(_) | Err(rustix::io::Errno::NOENT) => {}
        Err(_) => return PeerState::Alive(None),
    }
    match open_pipe(&files.live().join(of_programs(name))) {
        Ok(pipe) if is_open(&pipe) => PeerState::Survived(Arc::new(pipe)),
        _ => PeerState::Dead,
    }
}

/// Opens the pipe of another client. In a directory that a group shares anything can have its name: nothing but a pipe is opened, and
/// anything else counts as gone.
fn open_pipe(path: &Path) -> rustix::io::Result<OwnedFd> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != FileType::Fifo {
        return Err(rustix::io::Errno::NOENT);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty())
}

/// Whether the other end is open. A pipe without a name was given up by its client, even if a program that inherited it runs.
fn is_open(pipe: &OwnedFd) -> bool {
    // Only the end of the pipe counts: a program that inherited it may have written to it.
    let ended = matches!(rustix::io::read(pipe, &mut [0]), Ok(0));
    !ended && rustix::fs::fstat(pipe).is_ok_and(|told| told.st_nlink > 0)
}

/// Whether any client of the file is alive.
pub(super) fn any_alive(files: &Files) -> bool {
    pipes(files).iter().any(|name| !matches!(state_of(files, name), PeerState::Dead))
}

fn pipes(files: &Files) -> Vec<String> {
    let entries = std::fs::read_dir(files.live()).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names = names.map(|name| name.strip_suffix(".programs").map(str::to_owned).unwrap_or(name));
    names.filter(|name| name.parse::<PeerId>().is_ok()).collect()
}

/// Removes what dead clients left. One client in sixteen does it, so that thousands do not all look at each other.
fn sweep(files: &Files) {
    for name in &pipes(files) {
        if matches!(state_of(files, name), PeerState::Dead) {
            let _ = std::fs::remove_file(files.live().join(name));
            let _ = std::fs::remove_file(files.live().join(of_programs(name)));
            if let Some((instance, _)) = name.split_once('.') {
                let _ = std::fs::remove_file(files.live().join(format!("{instance}.sock")));
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
        bits.map(Self).ok_or_else(|| Error::new(ErrorKind::Protocol, format!("{text:?} is not the id of a store instance")))
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.instance, self.generation)
    }
}

impl FromStr for PeerId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split_once('.').and_then(|(instance, generation)| {
            Some(Self { instance: instance.parse().ok()?, generation: generation.parse().ok()? })
        });
        parsed.ok_or_else(|| Error::new(ErrorKind::Protocol, format!("{text:?} is not the name of a liveness pipe")))
    }
}

impl TryFrom<String> for PeerId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<PeerId> for String {
    fn from(peer: PeerId) -> Self {
        peer.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::config::Config;
    use super::*;

    fn peer(number: u32) -> PeerId {
        PeerId { instance: Instance(u128::from(number) + 1), generation: 1 }
    }

    fn with_files(name: &str, test: impl FnOnce(&Files)) {
        let folder = std::env::temp_dir().join(format!("lockkeeper-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = Files::open(&Config::file(folder.join("locks.db"))).unwrap();
        files.make().unwrap();
        test(&files);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_not_a_pipe_is_never_opened_and_counts_as_gone() {
        with_files("foreign-pipes", |files| {
            // Alive, if it was reached through the link.
            let (there, id) = (begin(files, &peer(1).to_string()).unwrap(), peer(2));
            let link = files.live().join(id.to_string());
            std::os::unix::fs::symlink(files.live().join(peer(1).to_string()), &link).unwrap();
            assert!(matches!(state_of(files, &peer(1).to_string()), PeerState::Alive(_)));
            assert!(matches!(state_of(files, &id.to_string()), PeerState::Dead));
            std::fs::write(files.live().join(peer(3).to_string()), "text").unwrap();
            assert!(matches!(state_of(files, &peer(3).to_string()), PeerState::Dead));
            assert!(files::set_mode(&link, FileType::Fifo, 0o666).is_err(), "permissions through a link");
            sweep(files);
            assert!(!link.is_symlink() && files.live().join(peer(1).to_string()).exists());
            drop(there);
        });
    }

    #[test]
    fn a_sweep_removes_dead_pipes_and_none_that_is_being_made() {
        with_files("sweep", |files| {
            let over = AtomicBool::new(false);
            std::thread::scope(|threads| {
                for _ in 0..2 {
                    threads.spawn(|| {
                        while !over.load(Ordering::Relaxed) {
                            sweep(files);
                        }
                    });
                }
                let swept = (0..1_000).find(|number| {
                    let pipe = begin(files, &peer(*number).to_string());
                    let found = state_of(files, &peer(*number).to_string());
                    pipe.is_err() || matches!(found, PeerState::Dead)
                });
                // Before anything can fail: the sweepers are waited for.
                over.store(true, Ordering::Relaxed);
                assert_eq!(swept, None, "taken for that of a dead client");
            });
            sweep(files);
            assert_eq!(std::fs::read_dir(files.live()).unwrap().count(), 0, "dead pipes are removed");
        });
    }

    /// The negative control: one that has its name before it is open is what a sweep takes away.
    #[test]
    fn a_sweep_removes_what_has_its_name_too_early() {
        with_files("early", |files| {
            let path = files.live().join(peer(0).to_string());
            rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            sweep(files);
            assert!(!path.exists());
        });
    }
}
