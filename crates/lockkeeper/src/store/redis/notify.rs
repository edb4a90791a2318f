//! The listeners of each channel, whatever connection its messages come by.

use std::sync::Arc;

use crate::backend::Notifier;
use crate::store::kit::listeners::{Listeners, Registration};

/// The listeners, over the lives of many connections.
#[derive(Debug, Default)]
pub(super) struct Channels(Arc<Listeners<String>>);

/// Ends the listening when dropped; the connection's task then leaves the channel.
pub(super) struct Listening {
    listeners: Arc<Listeners<String>>,
    channel: String,
    registration: Option<Registration<String>>,
    /// Called when nobody listens to the channel any more.
    idle: Box<dyn Fn() + Send + Sync>,
}

impl Channels {
    pub(super) fn listen(&self, channel: String, notifier: Notifier, idle: Box<dyn Fn() + Send + Sync>) -> Listening {
        let registration = Some(self.0.listen(channel.clone(), notifier));
        Listening { listeners: Arc::clone(&self.0), channel, registration, idle }
    }

    /// Notifies the listeners of a channel: a message came.
    pub(super) fn notify(&self, channel: &str) {
        self.0.notify_key(channel);
    }

    /// Notifies all listeners: messages may have been missed.
    pub(super) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// The channels that somebody listens to.
    pub(super) fn wanted(&self) -> Vec<String> {
        self.0.keys()
    }

    pub(super) fn is_wanted(&self, channel: &str) -> bool {
        self.0.has_any(channel)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.registration.take());
        // A listener that comes now asks for the channel itself.
        if !self.listeners.has_any(self.channel.as_str()) {
            (self.idle)();
        }
    }
}
