//! The listeners of each channel, whatever connection its messages come by.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::Notifier;

/// The listeners, over the lives of many connections.
#[derive(Debug, Default)]
pub(super) struct Channels {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    listeners: HashMap<String, Vec<(u64, Notifier)>>,
    last_id: u64,
}

/// Ends the listening when dropped; the connection's task then leaves the channel.
pub(super) struct Listening {
    channels: Arc<Channels>,
    channel: String,
    id: u64,
    /// Called when nobody listens to the channel any more.
    idle: Box<dyn Fn() + Send + Sync>,
}

impl Channels {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listen(self: &Arc<Self>, channel: String, notifier: Notifier, idle: Box<dyn Fn() + Send + Sync>) -> Listening {
        let mut inner = self.inner();
        inner.last_id += 1;
        let id = inner.last_id;
        inner.listeners.entry(channel.clone()).or_default().push((id, notifier));
        Listening { channels: Arc::clone(self), channel, id, idle }
    }

    /// Notifies the listeners of a channel: a message came.
    pub(super) fn notify(&self, channel: &str) {
        for (_, notifier) in self.inner().listeners.get(channel).into_iter().flatten() {
            notifier.notify();
        }
    }

    /// Notifies all listeners: messages may have been missed.
    pub(super) fn notify_all(&self) {
        for (_, notifier) in self.inner().listeners.values().flatten() {
            notifier.notify();
        }
    }

    /// The channels that somebody listens to.
    pub(super) fn wanted(&self) -> Vec<String> {
        self.inner().listeners.keys().cloned().collect()
    }

    pub(super) fn is_wanted(&self, channel: &str) -> bool {
        self.inner().listeners.contains_key(channel)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut inner = self.channels.inner();
        let Some(listeners) = inner.listeners.get_mut(&self.channel) else { return };
        listeners.retain(|(id, _)| *id != self.id);
        if listeners.is_empty() {
            inner.listeners.remove(&self.channel);
            drop(inner);
            (self.idle)();
        }
    }
}
