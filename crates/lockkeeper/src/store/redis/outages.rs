//! Says once that one of several servers cannot be reached any more, and once that it is back: per client, however many requests and connections
//! fail. Of a store that is one server the session says that.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::runtime::{Instant, log};

/// The servers of one client, by address. All connections of the client share it.
#[derive(Debug)]
pub(super) struct Outages {
    /// There are several servers.
    several: bool,
    servers: Mutex<HashMap<String, State>>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A connection was made at this time.
    Up(Instant),
    /// One attempt failed at this time. It may have been cut off with the connection that it was to replace, so this is not yet an outage.
    Doubted(Instant),
    /// No connection could be made since then.
    Down(Instant),
}

impl Outages {
    pub(super) fn new(several: bool) -> Self {
        Self { several, servers: Mutex::default() }
    }

    /// A connection was made.
    pub(super) fn connected(&self, server: String, now: Instant) {
        if !self.several {
            return;
        }
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(State::Down(since)) = servers.insert(server.clone(), State::Up(now)) {
            log!(info, server, after = ?now.since(since), "connected to redis again");
        }
    }

    /// An attempt that began at `began` failed. It is told when it began after another one had failed. An attempt that is older than the last
    /// success says nothing; nor does a server that was never reached: its first caller gets the error.
    pub(super) fn failed(&self, server: &str, error: &Error, began: Instant, now: Instant) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = servers.get_mut(server) else { return };
        match *state {
            State::Up(since) if since < began => *state = State::Doubted(now),
            State::Doubted(since) if since <= began => {
                *state = State::Down(since);
                log!(warn, server, %error, "lost the connection to redis and cannot connect again; retrying");
            }
            State::Up(_) | State::Doubted(_) | State::Down(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn an_outage_begins_with_the_second_attempt_that_fails_in_a_row() {
        let outages = Outages::new(true);
        let at = Instant::from_nanos;
        let failed = |began, now| outages.failed("s", &Error::new(ErrorKind::Unavailable, "refused"), at(began), at(now));
        let down = || matches!(outages.servers.lock().unwrap().get("s"), Some(State::Down(_)));
        failed(0, 1);
        assert!(!down(), "never reached");
        outages.connected("s".to_owned(), at(10));
        // Two attempts that were on their way when the connections broke.
        failed(11, 13);
        failed(12, 13);
        assert!(!down(), "one cut");
        outages.connected("s".to_owned(), at(20));
        failed(19, 21);
        failed(22, 23);
        assert!(!down(), "the first was older than the success");
        failed(24, 25);
        assert!(down());
        outages.connected("s".to_owned(), at(30));
        assert!(!down());
    }
}
