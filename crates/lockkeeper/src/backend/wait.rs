//! How a waiter learns that something happened: a bell that the store rings.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Notify;

/// The waiter's end: resolves when the store rang, also if that was before it was asked.
pub struct Bell {
    rung: Arc<Notify>,
    /// Ends the listening when dropped; the store keeps in it whatever it needs.
    _listening: Box<dyn Send + Sync>,
}

/// The store's end.
#[derive(Clone)]
pub struct Ringer(Arc<Notify>);

impl Bell {
    /// A bell and its ringer. `listening` is kept until the bell is dropped.
    pub fn new(listening: impl FnOnce(Ringer) -> Box<dyn Send + Sync>) -> Self {
        let rung = Arc::new(Notify::new());
        let listening = listening(Ringer(Arc::clone(&rung)));
        Self { rung, _listening: listening }
    }

    /// A bell that never rings, for stores that cannot push.
    #[must_use]
    pub fn silent() -> Self {
        Self::new(|_| Box::new(()))
    }

    /// Waits until it was rung since the last time; several rings count as one.
    pub async fn rung(&self) {
        self.rung.notified().await;
    }
}

impl Ringer {
    /// Rings. Never blocks.
    pub fn ring(&self) {
        self.0.notify_one();
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bell")
    }
}

impl fmt::Debug for Ringer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ringer")
    }
}
