//! How a waiter sleeps: until the store notifies it, until somebody in this process has news, or until a time.

use crate::backend::Subscription;
use crate::runtime::{Instant, Runtime};
use crate::session::Turn;

/// Sleeps until the first of these.
pub(super) async fn sleep(runtime: &Runtime, until: Instant, subscription: Option<&Subscription>, turn: Option<&Turn>) {
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
    let timer = (until < Instant::NEVER).then(|| Box::pin(runtime.sleep_until(until)));
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
    }
}
