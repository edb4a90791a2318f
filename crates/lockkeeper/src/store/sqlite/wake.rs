//! Subscriptions between processes: after a commit, a datagram to those who subscribed; and a watch on the holders in their way.
//!
//! A task on the executor of the first waiter reads the datagrams, so that no thread lies between a datagram and the waiter it wakes. The
//! poll thread (`watch.rs`) reads them instead once that executor has ended, or waiters are on several executors. All of it
//! is a hint: a full socket or a missing thread costs a poll, never a lock.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::FileType;

use super::files::{self, Files};
use super::liveness::{Instance, Liveness};
use super::message::{self, Senders};
use super::watch::Watched;
use crate::backend::{Notifier, Watch};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Wake;
use crate::name::Name;
use crate::runtime::{self, Runtime, log};
use crate::store::kit::listeners::{Listeners, Registration};

/// So many datagrams at once may mean that the socket was full and some were lost: the shortest queue that the kernel has by default.
const FULL: usize = 10;

/// What sending says when nobody reads the socket any more.
const GONE: [io::ErrorKind; 3] = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused, io::ErrorKind::BrokenPipe];

/// The socket and the subscriptions of this store; what reads and watches for it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Wakeups(pub(super) Arc<WakeState>);

#[derive(Debug)]
pub(super) struct WakeState {
    files: Arc<Files>,
    pub(super) liveness: Arc<Liveness>,
    pub(super) runtime: Runtime,
    pub(super) listeners: Arc<Listeners>,
    /// Wakes the poll thread.
    pub(super) nudge: OwnedFd,
    /// Bound for the first waiter, with the executor on which it is read; `None`: it could not be bound, and waiters poll.
    socket: OnceLock<Option<(UnixDatagram, Option<runtime::Executor>)>>,
    senders: Senders,
    /// The poll thread has been started.
    pub(super) thread_started: AtomicBool,
    /// Set once: the poll thread reads the socket, not a task.
    pub(super) thread_reads: AtomicBool,
    pub(super) stopped: AtomicBool,
    pub(super) watched: Watched,
}

/// What became of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The subscribers are in this process.
    Here,
    /// To another process.
    Away,
    /// Nobody reads that socket, now or later.
    Nowhere,
}

impl Wakeups {
    pub(super) fn new(files: Arc<Files>, liveness: Arc<Liveness>, runtime: Runtime) -> Result<Self> {
        let nudge = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|cause| {
            Error::new(ErrorKind::Unavailable, format!("cannot create an event descriptor: {cause}")).with_source(cause)
        })?;
        let (listeners, socket, senders, thread_started, thread_reads, stopped, watched) = Default::default();
        let inner = WakeState {
            files,
            liveness,
            runtime,
            listeners,
            nudge,
            socket,
            senders,
            thread_started,
            thread_reads,
            stopped,
            watched,
        };
        Ok(Self(Arc::new(inner)))
    }

    pub(super) fn listeners(&self) -> &Listeners {
        &self.0.listeners
    }

    /// Registers a waiter of this process, and makes sure that datagrams are read.
    pub(super) fn register(&self, watch: Watch) -> Result<(Notifier, Registration)> {
        // The pipe keeps others from removing the socket as that of a dead client.
        self.0.liveness.current()?;
        let here = runtime::executor();
        let mut bound = false;
        let socket = self.0.socket.get_or_init(|| {
            bound = true;
            let socket = self.0.bind().inspect_err(|error| log!(debug, %error, "no socket for wake-ups; polling")).ok()?;
            Some((socket, here))
        });
        match socket {
            Some((socket, _)) if bound => {
                let reader = Reader(Arc::downgrade(&self.0));
                // If it cannot be cloned, `reader` is dropped, and the thread takes over.
                if let Ok(socket) = socket.try_clone() {
                    runtime::spawn_if_possible(reader.read(socket));
                }
            }
            // The executor that reads may be idle while this one waits.
            Some((_, reading)) if *reading != here => self.0.read_on_thread(),
            _ => {}
        }
        Ok(self.0.listeners.register(watch.name.clone(), watch))
    }

    /// Sends a wake-up to one store.
    pub(super) fn send(&self, to: Instance, name: &Name, wake: Wake) -> Sent {
        if to == self.0.liveness.instance() {
            self.0.listeners.notify(name, wake);
            return Sent::Here;
        }
        match self.0.senders.send(&self.0.files, to, &message::encode(name, wake)) {
            Err(error) if GONE.contains(&error.kind()) => Sent::Nowhere,
            _ => Sent::Away,
        }
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        self.0.nudge();
        if let Some(socket) = self.0.socket() {
            // Wakes the reader, which ends.
            let _ = socket.shutdown(std::net::Shutdown::Both);
            let _ = std::fs::remove_file(self.0.files.socket(&self.0.liveness.instance().to_string()));
        }
    }
}

impl WakeState {
    pub(super) fn socket(&self) -> Option<&UnixDatagram> {
        self.socket.get()?.as_ref().map(|(socket, _)| socket)
    }

    fn bind(&self) -> io::Result<UnixDatagram> {
        let path = self.files.socket(&self.liveness.instance().to_string());
        let socket = UnixDatagram::bind(&path)?;
        files::set_mode(&path, FileType::Socket, self.files.mode())?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// The task that reads may not run any more: from now on the poll thread reads.
    fn read_on_thread(self: &Arc<Self>) {
        if !self.thread_reads.swap(true, Ordering::SeqCst) {
            self.poll_again();
        }
    }

    /// Reads all datagrams that are there, and notifies.
    pub(super) fn receive(&self, next: impl Fn(&mut [u8]) -> io::Result<usize>) {
        let mut buffer = [0; 1_024];
        let mut received = 0;
        while let Ok(length) = next(&mut buffer) {
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            received += 1;
            let text = std::str::from_utf8(&buffer[..length]).unwrap_or_default();
            if let Some((name, wake)) = message::decode(text) {
                self.listeners.notify(&name, wake);
            }
        }
        if received >= FULL {
            self.listeners.notify_all();
        }
    }
}

/// Reads the socket on the executor of the first waiter. If that executor ends, or has no I/O driver, the thread takes over.
///
/// It holds no strong reference: the task of an executor that does not run would keep the pipe of a closed client open.
struct Reader(Weak<WakeState>);

impl Reader {
    async fn read(self, socket: UnixDatagram) {
        let Ok(socket) = tokio::net::UnixDatagram::from_std(socket) else { return };
        while socket.readable().await.is_ok() {
            // Never beside the thread: each would see half of a full socket, and neither that it was full.
            let Some(inner) = self.inner().filter(|inner| !inner.thread_reads.load(Ordering::SeqCst)) else { return };
            inner.receive(|buffer| socket.try_recv(buffer));
        }
    }

    fn inner(&self) -> Option<Arc<WakeState>> {
        self.0.upgrade().filter(|inner| !inner.stopped.load(Ordering::SeqCst))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(inner) = self.inner() {
            inner.read_on_thread();
        }
    }
}
