//! Waiting by push: the subscriptions of all servers as one.
//!
//! A release notifies at every server that had a vote. A rival that got some votes and withdraws them notifies too, but at few servers. So our
//! subscription is notified when a majority has notified at about the same time; otherwise rivals would wake each other without end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::Quorum;
use super::member::{Answer, locked};
use super::votes::majority;
use crate::backend::{Notifier, Subscription, Watch};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant, Runtime};

/// Notifications of one release are not further apart.
const TOGETHER: Duration = Duration::from_millis(100);

/// How long a server may take to subscribe.
const LISTENING: Duration = Duration::from_secs(3);

impl Quorum {
    pub(super) async fn watch_majority(&self, watch: Watch) -> Result<Subscription> {
        let (answers, mut answered) = mpsc::unbounded_channel();
        // One server alone grants nothing.
        let watch = Watch { grant: None, ..watch };
        for server in &self.servers {
            let watch = watch.clone();
            server.ask(LISTENING, &answers, |voter| Box::pin(async move { voter.watch(watch).await }));
        }
        drop(answers);
        let mut subscriptions: Vec<Option<Arc<Subscription>>> = self.servers.iter().map(|_| None).collect();
        let mut why: Vec<Result<()>> =
            self.servers.iter().map(|_| Err(Error::new(ErrorKind::Unavailable, "did not answer in time"))).collect();
        while subscriptions.iter().flatten().count() < majority(subscriptions.len()) {
            let Some((index, answer)) = answered.recv().await else {
                return Err(self.without_majority("subscribed", &why));
            };
            match answer {
                Ok(subscription) => {
                    why[index] = Ok(());
                    subscriptions[index] = Some(Arc::new(subscription));
                }
                Err(error) => why[index] = Err(error),
            }
        }
        let notifier = Notifier::default();
        let (listening, over) = oneshot::channel::<()>();
        runtime::spawn(notify_by_majority(self.shared.runtime.clone(), subscriptions, answered, notifier.clone(), over));
        Ok(Subscription::new(&notifier, std::sync::Mutex::new(listening)))
    }
}

/// Notifies when a majority has notified. Adds the subscriptions of servers that answer late. Ends when the subscription is dropped.
async fn notify_by_majority(
    runtime: Runtime,
    mut subscriptions: Vec<Option<Arc<Subscription>>>,
    mut late: mpsc::UnboundedReceiver<Answer<Subscription>>,
    notifier: Notifier,
    mut over: oneshot::Receiver<()>,
) {
    let notified: std::sync::Mutex<Vec<Option<Instant>>> = std::sync::Mutex::new(vec![None; subscriptions.len()]);
    let mut all_there = false;
    loop {
        let heard = {
            let mut waiting: Vec<_> = subscriptions
                .iter()
                .enumerate()
                .filter_map(|(index, subscription)| Some((index, Arc::clone(subscription.as_ref()?))))
                .map(|(index, subscription)| {
                    Box::pin(async move {
                        subscription.notified().await;
                        index
                    })
                })
                .collect();
            let mut any = pin!(poll_fn(|context| {
                let ready: Vec<usize> = waiting
                    .iter_mut()
                    .filter_map(|subscription| match subscription.as_mut().poll(context) {
                        Poll::Ready(index) => Some(index),
                        Poll::Pending => None,
                    })
                    .collect();
                if ready.is_empty() { Poll::Pending } else { Poll::Ready(ready) }
            }));
            tokio::select! {
                biased;
                _ = &mut over => return,
                ready = &mut any => Some(ready),
                more = late.recv(), if !all_there => {
                    match more {
                        Some((index, Ok(subscription))) => subscriptions[index] = Some(Arc::new(subscription)),
                        Some(_) => {}
                        None => all_there = true,
                    }
                    None
                }
            }
        };
        let Some(ready) = heard else { continue };
        let (mut notified, now) = (locked(&notified), runtime.now());
        for index in ready {
            notified[index] = Some(now);
        }
        let lately = notified.iter().flatten().filter(|when| now.since(**when) <= TOGETHER).count();
        if lately >= majority(notified.len()) {
            notified.fill(None);
            notifier.notify();
        }
    }
}
