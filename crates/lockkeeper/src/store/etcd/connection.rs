//! Which executor drives a connection.
//!
//! A change of threads takes about as long as the server's part of a request without its disk. So the executor that asks first, the home, drives the
//! connection of its own requests, and no other thread is woken for them. It may be idle while others ask, or end: all other executors use a connection
//! that the store's thread drives. Another executor becomes the home when the first one has ended, or has not asked for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tonic::transport::Channel;

use crate::runtime::{self, Executor, Instant};

/// An executor that has not asked for so long is the home no more, if another one asks.
const STAYS: Duration = Duration::from_secs(5);

/// A connection that can be used: its number is for [`Connections::leave`], the token for a user.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) channel: Channel,
    pub(super) number: u64,
    pub(super) token: Option<String>,
}

/// One connection, made again when it is lost.
#[derive(Default)]
pub(super) struct Connection {
    link: Mutex<Link>,
    /// Held while a connection is made.
    pub(super) connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Link {
    open: Option<Open>,
    /// Which member it leads to, or is tried next.
    member: usize,
}

/// Who drives a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// The executor of the caller.
    Caller,
    /// The store's thread.
    Thread,
}

/// All connections of one way to the members.
#[derive(Default)]
pub(super) struct Connections {
    of_thread: Arc<Connection>,
    home: Mutex<Option<Home>>,
    /// Counts connections, so that trouble with an old one does not end a new one.
    last_number: AtomicU64,
}

struct Home {
    executor: Executor,
    /// Its own, and not that of the home before: somebody may be connecting there who never goes on.
    connection: Arc<Connection>,
    used: Instant,
    /// Closed when the executor has ended.
    ended: oneshot::Sender<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    pub(super) fn open(&self) -> Option<Open> {
        lock(&self.link).open.clone()
    }

    pub(super) fn member(&self) -> usize {
        lock(&self.link).member
    }

    /// The member that is tried next.
    pub(super) fn try_next(&self, member: usize) {
        lock(&self.link).member = member;
    }

    /// Forgets the connection of this number; whether it was there.
    fn forget(&self, number: u64) -> bool {
        lock(&self.link).open.take_if(|open| open.number == number).is_some()
    }
}

impl Connections {
    /// The connection for a request of this caller, and who drives it.
    pub(super) fn choose(&self, now: Instant) -> (Arc<Connection>, Driver) {
        let of_thread = || (Arc::clone(&self.of_thread), Driver::Thread);
        let Some(executor) = runtime::executor() else { return of_thread() };
        let mut home = lock(&self.home);
        match home.as_mut() {
            Some(home) if home.executor == executor => {
                home.used = now;
                return (Arc::clone(&home.connection), Driver::Caller);
            }
            Some(home) if !home.ended.is_closed() && now.since(home.used) < STAYS => return of_thread(),
            _ => {}
        }
        let (ended, end) = oneshot::channel();
        // Dropped with its executor, or ended with the home.
        runtime::spawn(async move { drop(end.await) });
        let connection = Arc::<Connection>::default();
        *home = Some(Home { executor, connection: Arc::clone(&connection), used: now, ended });
        (connection, Driver::Caller)
    }

    /// A connection was made.
    pub(super) fn made(&self, on: &Connection, member: usize, channel: Channel, token: Option<String>) -> Open {
        let open = Open { channel, number: self.last_number.fetch_add(1, Ordering::Relaxed) + 1, token };
        *lock(&on.link) = Link { open: Some(open.clone()), member };
        open
    }

    /// Ends this connection; the next request goes to the next of the members.
    pub(super) fn leave(&self, number: u64, members: usize) {
        if let Some(connection) = self.all().find(|connection| connection.forget(number)) {
            connection.try_next((connection.member() + 1) % members.max(1));
        }
    }

    /// The connection has to be made, and authenticated, again; to the same member.
    pub(super) fn forget(&self, number: u64) {
        self.all().any(|connection| connection.forget(number));
    }

    fn all(&self) -> impl Iterator<Item = Arc<Connection>> {
        let home = lock(&self.home).as_ref().map(|home| Arc::clone(&home.connection));
        home.into_iter().chain([Arc::clone(&self.of_thread)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executor() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(1).plus(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_executor_drives_its_own_connection_until_it_ends_or_is_idle() {
        let connections = Connections::default();
        let chosen = |executor: &tokio::runtime::Runtime, now: u64| executor.block_on(async { connections.choose(at(now)) });
        let (first, second) = (executor(), executor());
        let (of_first, driver) = chosen(&first, 0);
        assert_eq!(driver, Driver::Caller);
        let (of_thread, driver) = chosen(&second, 1);
        assert_eq!(driver, Driver::Thread);
        assert!(Arc::ptr_eq(&of_first, &chosen(&first, 2).0) && !Arc::ptr_eq(&of_first, &of_thread));
        assert_eq!(connections.choose(at(2)).1, Driver::Thread, "a caller without an executor");
        drop(first);
        let (of_second, driver) = chosen(&second, 3);
        assert!(driver == Driver::Caller && !Arc::ptr_eq(&of_second, &of_first), "the first has ended");
        let third = executor();
        assert_eq!(chosen(&third, 4).1, Driver::Thread);
        assert_eq!(chosen(&third, 9).1, Driver::Caller, "the second has not asked for a while");
        assert_eq!(chosen(&second, 9).1, Driver::Thread);
    }
}
