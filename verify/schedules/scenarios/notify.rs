//! Notifier and subscription: a notification is never lost.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::sync::atomic::{AtomicU32, Ordering};

use super::machine::Machine;
use crate::backend::{Grant, Notifier, Subscription};

/// Polls at most so often, and drops it then; whether it ended.
pub(crate) async fn poll_times(times: u32, future: impl Future<Output = ()>) -> bool {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        let ended = future.as_mut().poll(cx).is_ready();
        if ended || left == 0 { Poll::Ready(ended) } else { Poll::Pending }
    })
    .await
}

/// Waits until `free` is at least `wanted`, as a waiter does: look, wait for a notification, look again.
async fn until(free: &AtomicU32, wanted: u32, subscription: &Subscription) {
    while free.load(Ordering::SeqCst) < wanted {
        subscription.notified().await;
    }
}

/// Two notifications, one of them with a grant, come while a waiter looks and waits. No timer helps: one that is lost is a deadlock.
pub(super) fn between_check_and_wait() {
    Machine::run(0, |machine| async move {
        let (free, notifier) = (Arc::new(AtomicU32::new(0)), Notifier::default());
        let subscription = Arc::new(Subscription::new(&notifier, ()));
        let waits = {
            let (free, subscription) = (Arc::clone(&free), Arc::clone(&subscription));
            machine.start(async move {
                until(&free, 1, &subscription).await;
                until(&free, 2, &subscription).await;
                let grant = loop {
                    match subscription.take_grant() {
                        Some(grant) => break grant,
                        None => subscription.notified().await,
                    }
                };
                assert_eq!(grant.token, Some(7), "another grant");
            })
        };
        let first = {
            let (free, notifier) = (Arc::clone(&free), notifier.clone());
            machine.start(async move {
                free.fetch_add(1, Ordering::SeqCst);
                notifier.notify();
            })
        };
        let second = {
            let (free, notifier) = (Arc::clone(&free), notifier.clone());
            machine.start(async move {
                free.fetch_add(1, Ordering::SeqCst);
                notifier.notify_granted(Grant::new(Some(7), Duration::from_secs(1)));
            })
        };
        first.await;
        second.await;
        waits.await;
        assert_eq!(subscription.count(), 2, "notifications are counted");
        assert!(subscription.take_grant().is_none(), "a grant is taken once");
    });
}

/// Two waiters share a subscription. The first leaves at any moment; what it was notified of, the second must learn.
pub(super) fn handed_on() {
    Machine::run(0, |machine| async move {
        let (free, notifier) = (Arc::new(AtomicU32::new(0)), Notifier::default());
        let subscription = Arc::new(Subscription::new(&notifier, ()));
        let notifies = {
            let free = Arc::clone(&free);
            machine.start(async move {
                free.fetch_add(1, Ordering::SeqCst);
                notifier.notify();
            })
        };
        let polls = thread_rng().gen_range(0..3);
        let waits = machine.start(async move {
            poll_times(polls, until(&free, 1, &subscription)).await;
            // As the next first waiter does: it takes over the subscription, and looks before it waits.
            until(&free, 1, &subscription).await;
        });
        notifies.await;
        waits.await;
    });
}
