//! Watches the pipes of the peers that our waiters wait for: when one closes, its client is dead, and the waiters are woken.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};

use super::liveness::{PeerId, PeerState};
use super::wake::{WakeState, Wakeups};
use crate::name::Name;
use crate::runtime::log;

/// How many peers in the way of one waiter are watched; polling finds the others.
const MOST: usize = 16;

/// The pipes that are watched.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<Pipes>);

#[derive(Debug, Default)]
struct Pipes {
    names: HashMap<Name, Vec<(PeerId, Arc<OwnedFd>)>>,
    /// What the thread polls at present.
    polled: HashMap<PeerId, Arc<OwnedFd>>,
}

impl Watched {
    fn pipes(&self) -> MutexGuard<'_, Pipes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wakeups {
    /// Watches the peers in the way of our waiters for the name, if there are waiters: when one dies, the waiters are notified.
    pub(super) fn watch_peers(&self, name: &Name, peers: &[PeerId]) {
        if !self.0.listeners.has_any(name) {
            return;
        }
        let mut pipes = self.0.watched.pipes();
        let mut before = pipes.names.remove(name).unwrap_or_default();
        let mut now = Vec::new();
        let (mut fresh, mut died) = (false, false);
        for peer in peers.iter().take(MOST) {
            if let Some(at) = before.iter().position(|(known, _)| known == peer) {
                now.push(before.swap_remove(at));
                continue;
            }
            match self.0.liveness.state_of(*peer) {
                PeerState::Alive(Some(pipe)) | PeerState::Survived(pipe) => {
                    fresh |= !pipes.polled.contains_key(peer);
                    now.push((*peer, pipe));
                }
                PeerState::Alive(None) => {}
                PeerState::Dead => died = true,
            }
        }
        pipes.names.insert(name.clone(), now);
        drop(pipes);
        if died {
            self.0.listeners.notify_key(name);
        }
        if fresh {
            self.0.poll_again();
        }
    }

    /// Stops watching for a name that nobody here waits for. The thread polls those pipes until it wakes, which does no harm.
    pub(super) fn stop_watching(&self, name: &Name) {
        if !self.0.listeners.has_any(name) {
            self.0.watched.pipes().names.remove(name);
        }
    }
}

impl WakeState {
    pub(super) fn nudge(&self) {
        let _ = rustix::io::write(&self.nudge, &1_u64.to_ne_bytes());
    }

    /// Has the thread poll what is to be polled now; starts it if needed.
    pub(super) fn poll_again(self: &Arc<Self>) {
        if self.thread_started.swap(true, Ordering::SeqCst) {
            return self.nudge();
        }
        let inner = Arc::clone(self);
        if let Err(error) = self.runtime.thread("lockkeeper-wake", move || inner.poll_until_stopped()) {
            self.thread_started.store(false, Ordering::SeqCst);
            log!(debug, %error, "cannot start the thread that watches peers; polling");
        }
    }

    fn poll_until_stopped(&self) {
        while !self.stopped.load(Ordering::SeqCst) {
            let thread_reads = self.thread_reads.load(Ordering::SeqCst);
            let socket = self.socket().filter(|_| thread_reads);
            let pipes = self.pipes_to_poll();
            let mut fds = vec![PollFd::new(&self.nudge, PollFlags::IN)];
            fds.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
            let first_pipe = fds.len();
            fds.extend(pipes.iter().map(|(_, pipe)| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::empty())));
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                let _ = rustix::io::read(&self.nudge, &mut [0; 8]);
            }
            if let Some(socket) = socket {
                self.receive(|buffer| socket.recv(buffer));
            }
            for ((peer, _), _) in pipes.iter().zip(&ready[first_pipe..]).filter(|(_, closed)| **closed) {
                self.peer_died(*peer);
            }
        }
    }

    /// All pipes that are watched, each once.
    fn pipes_to_poll(&self) -> Vec<(PeerId, Arc<OwnedFd>)> {
        let mut pipes = self.watched.pipes();
        pipes.polled = pipes.names.values().flatten().cloned().collect();
        pipes.polled.iter().map(|(peer, pipe)| (*peer, Arc::clone(pipe))).collect()
    }

    fn peer_died(&self, peer: PeerId) {
        let mut pipes = self.watched.pipes();
        pipes.polled.remove(&peer);
        let mut names = Vec::new();
        for (name, peers) in &mut pipes.names {
            let before = peers.len();
            peers.retain(|(known, _)| *known != peer);
            if peers.len() < before {
                names.push(name.clone());
            }
        }
        drop(pipes);
        names.iter().for_each(|name| self.listeners.notify_key(name));
    }
}
