//! How a waiter learns that something happened: a bell that the store rings.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::Notify;

/// The waiter's end: resolves when the store rang, also if that was before it was asked.
pub struct Bell {
    rung: Arc<Notify>,
    /// Ends the listening when dropped; the store keeps in it whatever it needs.
    _listening: Box<dyn Send + Sync>,
}

/// The store's end.
#[derive(Clone, Default)]
pub struct Ringer(Arc<Notify>);

impl Bell {
    /// The bell of `ringer`. `listening` is kept until the bell is dropped.
    pub fn new(ringer: &Ringer, listening: impl Send + Sync + 'static) -> Self {
        Self { rung: Arc::clone(&ringer.0), _listening: Box::new(listening) }
    }

    /// A bell that never rings, for stores that cannot push.
    #[must_use]
    pub fn silent() -> Self {
        Self::new(&Ringer::default(), ())
    }

    /// Waits until it was rung since the last time; several rings count as one.
    pub fn rung(&self) -> impl Future<Output = ()> + Send {
        self.rung.notified()
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
