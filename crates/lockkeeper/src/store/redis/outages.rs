//! Says once that a server cannot be reached any more, and once that it is back: per client, however many requests and connections fail.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::runtime::Instant;

/// The servers of one client, by address. All connections of the client share it.
#[derive(Debug, Default)]
pub(super) struct Outages(Mutex<HashMap<String, State>>);

#[derive(Clone, Copy, Debug)]
enum State {
    /// A connection was made at this time.
    Up(Instant),
    /// No connection could be made since then.
    Down(Instant),
}

impl Outages {
    /// A connection was made.
    pub(super) fn connected(&self, server: String, now: Instant) {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(State::Down(since)) = servers.insert(server.clone(), State::Up(now)) {
            tracing::info!(server, after = ?now.since(since), "connected to redis again");
        }
    }

    /// An attempt that began at `began` failed. An attempt that is older than the last success says nothing; nor does a server that was never
    /// reached: its first caller gets the error.
    pub(super) fn failed(&self, server: &str, error: &Error, began: Instant, now: Instant) {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = servers.get_mut(server)
            && let State::Up(since) = *state
            && since < began
        {
            *state = State::Down(now);
            tracing::warn!(server, %error, "lost the connection to redis and cannot connect again; trying on");
        }
    }
}
