//! How a client closes: what is under way is waited for, and what sleeping calls may have left in the store is undone.
//!
//! An acquisition is under way until it sleeps. Before it sleeps it leaves a mark of what it may have left: a place in a queue, a request without
//! an answer. So closing depends on no caller that sleeps and is not polled; a request that is out it waits for until its time is over.

use tokio::sync::futures::Notified;

use super::{Core, Session};
use crate::backend::LossReason;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime;
use crate::runtime::sync::atomic::Ordering;

/// Something that may lead to a hold, or to an undo: `close` waits for it until this is dropped.
pub(crate) struct UnderWay<'a>(&'a Core);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let Core { under_way, closed, progress, .. } = self.0;
        if under_way.fetch_sub(1, Ordering::SeqCst) == 1 && closed.load(Ordering::SeqCst) {
            progress.notify_waiters();
        }
    }
}

impl Core {
    /// Something begins that `close` waits for. Whether the client was closed before has to be checked *afterwards*.
    pub(crate) fn under_way(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(self)
    }

    /// Resolves when the client is closed; `None` if it is closed now.
    pub(crate) fn until_closed(&self) -> Option<Notified<'_>> {
        let closing = self.closing.notified();
        (!self.closed.load(Ordering::SeqCst)).then_some(closing)
    }

    /// Whether nothing is on its way that may hold something.
    fn is_drained(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0 && self.undoing.load(Ordering::SeqCst) == 0
    }
}

impl Session {
    /// Releases everything that this client holds, and refuses everything asked later. What is on its way is waited for, so that a grant
    /// that comes is released too. Calls that wait end with [`ErrorKind::Closed`], and their places in the store's queues are given up.
    ///
    /// Guards that still live are told that they lost their hold. After `Ok` nothing of this client is left in the store that keeps others out. On Redis, a
    /// waiter whose future is not polled any more may still be in the set of those that wait: for 10 s, or until a release takes it out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if something could not be released within twice the command timeout; its lease ends it.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the closing goes on in the background if this future is dropped.
    pub async fn close(&self) -> Result<()> {
        let core = self.core();
        core.check_process()?;
        core.closed.store(true, Ordering::SeqCst);
        core.closing.notify_waiters();
        // First: a release of ours must not hand over to a waiter of ours.
        core.queues.close(core);
        // Taken out first, here and below: releasing locks the registry itself.
        let holds = core.registry().holds();
        for hold in holds {
            hold.lose(LossReason::Closed);
            core.release_later(&hold);
        }
        for undo in core.marks.take_all() {
            core.undo(undo);
        }
        let drained = Box::pin(async {
            loop {
                let progress = core.progress.notified();
                if core.is_drained() {
                    return;
                }
                progress.await;
            }
        });
        match runtime::within(core.settings.command_timeout * 2, drained).await {
            Some(()) => Ok(()),
            None => Err(Error::new(
                ErrorKind::Unavailable,
                "not everything could be released in time; what is left ends with its lease",
            )),
        }
    }
}
