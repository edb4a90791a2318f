//! How a waiter sleeps: until the store notifies it, until somebody in this process has news, until a time, or until the client is closed.

use crate::backend::Subscription;
use crate::runtime::Instant;
use crate::session::{Core, Turn};

/// Sleeps until the first of these.
pub(super) async fn sleep(core: &Core, until: Instant, subscription: Option<&Subscription>, turn: Option<&Turn>) {
    let Some(closing) = core.until_closed() else { return };
    let notified = async {
        match subscription {
            Some(subscription) => subscription.notified().await,
            None => std::future::pending().await,
        }
    };
    let told = async {
        match turn {
            Some(turn) => turn.changed().await,
            None => std::future::pending().await,
        }
    };
    // Most waiters of one process wait for each other, and need no timer.
    let timer = (until < Instant::NEVER).then(|| Box::pin(core.runtime.sleep_until(until)));
    let late = async {
        match timer {
            Some(timer) => timer.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = notified => {}
        () = told => {}
        () = late => {}
        () = closing => {}
    }
}
