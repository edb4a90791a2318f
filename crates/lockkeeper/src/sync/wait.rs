//! The only wait loop. Everything that waits (locks, permits, counters, latches) waits here.
//!
//! Push wakes it, and it never relies on push alone: it asks again within a second, and when a lease it was told of ends.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Busy, Subscription};
use crate::error::{Error, Result};
use crate::runtime::{self, Instant};
use crate::session::{Session, Settings, Trouble};

/// What somebody found who looked.
#[derive(Debug)]
pub(super) enum Looked<T> {
    /// What was waited for.
    Ready(T),
    /// Not yet: listen to the store, and ask again.
    Busy(Busy),
    /// It will not be: trouble that looking again would make worse.
    Over(Error),
    /// Not yet, and somebody in this process will tell; look again by yourself after this long.
    Local(Option<Duration>),
}

/// Something that can be waited for.
pub(super) trait Look: Send {
    type Found;

    /// Asks once.
    fn look(&mut self) -> impl Future<Output = Result<Looked<Self::Found>>> + Send;

    /// Listens to the store.
    fn listen(&mut self) -> impl Future<Output = Result<Arc<Subscription>>> + Send;

    /// Resolves when somebody in this process has news.
    fn told(&self) -> impl Future<Output = ()> + Send;
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Not at all for others; for the store's answer as long as a command may take.
    Try,
    /// So long, trouble with the store included.
    For(Duration),
    /// As long as it takes; trouble with the store as long as the settings allow.
    Forever,
    /// So long for others, and so long for trouble with the store.
    Limited { wait: Duration, outage: Duration },
}

impl Patience {
    /// When waiting for others ends.
    pub(super) fn deadline(self, began: Instant) -> Instant {
        match self {
            Self::Try => began,
            Self::For(wait) | Self::Limited { wait, .. } => began.plus(wait),
            Self::Forever => Instant::NEVER,
        }
    }

    /// How long one request may take where a request of this claim may take `limit`.
    pub(super) fn request_limit(self, limit: Duration, left: Duration) -> Duration {
        match self {
            // A try does not wait for others, but it waits for the store, and once more if an answer is lost.
            Self::Try => limit / 3,
            // A caller that waits a moment is not kept for the whole command timeout, yet a round trip must fit in.
            Self::For(_) | Self::Forever => limit.min(left.max(limit / 10)),
            // A request without an answer is noticed in time to send it again.
            Self::Limited { outage, .. } => limit.min(left.min(outage / 3).max(limit / 10)),
        }
    }

    /// How long trouble with the store is borne.
    fn trouble(self, settings: &Settings) -> Trouble {
        Trouble::new(match self {
            // Two sendings took their thirds before this is counted.
            Self::Try => settings.command_timeout / 3,
            Self::For(wait) => wait,
            Self::Limited { wait, outage } => wait.min(outage),
            Self::Forever => settings.patience,
        })
    }
}

/// Looks until it is there; `None` when patience ended first.
///
/// If the last thing met was trouble with the store, that is the answer: "held by others" and "not reachable" are told apart.
#[allow(clippy::manual_async_fn, reason = "an `async fn` would carry each argument about twice")]
pub(super) fn wait<L: Look>(
    session: &Session,
    patience: Patience,
    began: Instant,
    look: &mut L,
) -> impl Future<Output = Result<Option<L::Found>>> {
    async move {
        let core = session.core();
        let deadline = patience.deadline(began);
        let mut trouble = patience.trouble(&core.settings);
        let mut subscription: Option<Arc<Subscription>> = None;
        loop {
            session.check_open()?;
            let found = look.look().await;
            let now = core.runtime.now();
            if matches!(found, Ok(Looked::Busy(_))) && subscription.is_none() && patience != Patience::Try {
                let limit = Settings::POLL.0.min(deadline.since(now));
                match runtime::within(limit, Box::pin(look.listen())).await {
                    // What happened between asking and listening rang no subscription of ours: ask once more.
                    Some(Ok(ours)) => {
                        subscription = Some(ours);
                        continue;
                    }
                    // The store answers, it only does not push: no trouble, but a wait by asking. The pause counts from the answer,
                    // so that a subscription without an answer does not make it longer.
                    Some(Err(error)) => tracing::debug!(%error, "no notifications; asking again by ourselves"),
                    None => tracing::debug!("no answer to a subscription; asking again by ourselves"),
                }
            }
            let (until, listening) = match weigh(found, patience, deadline, now, core.poll_after(now), &mut trouble)? {
                Weighed::Found(found) => return Ok(Some(found)),
                Weighed::GiveUp => return Ok(None),
                Weighed::Wait { until, listening } => (until, listening),
            };
            let notified = async {
                match &subscription {
                    Some(subscription) if listening => subscription.notified().await,
                    _ => std::future::pending().await,
                }
            };
            // Most who wait in one process wait for each other, and need no timer.
            let timer = (until < Instant::NEVER).then(|| Box::pin(core.runtime.sleep_until(until)));
            let late = async {
                match timer {
                    Some(timer) => timer.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = notified => {}
                () = look.told() => {}
                () = late => {}
            }
        }
    }
}

/// What follows from what somebody found who looked.
enum Weighed<T> {
    Found(T),
    GiveUp,
    /// Look again then, or before if told; also by the subscription.
    Wait {
        until: Instant,
        listening: bool,
    },
}

/// Not in the loop itself, where everything that it needs would be carried about by everybody who waits.
fn weigh<T>(
    found: Result<Looked<T>>,
    patience: Patience,
    deadline: Instant,
    now: Instant,
    poll: Duration,
    trouble: &mut Trouble,
) -> Result<Weighed<T>> {
    let (pause, listening, error) = match found {
        Ok(Looked::Ready(found)) => return Ok(Weighed::Found(found)),
        Ok(Looked::Busy(busy)) => (Some(pause(busy, poll)), true, None),
        Ok(Looked::Local(pause)) => (pause, true, None),
        Ok(Looked::Over(error)) => return Err(error),
        Err(error) => (Some(trouble.again(error.clone(), now)?), false, Some(error)),
    };
    if error.is_none() {
        trouble.over();
    }
    // A try does not wait for others, but for the store it does.
    let give_up = if error.is_some() && patience == Patience::Try { Instant::NEVER } else { deadline };
    if now >= give_up {
        return error.map_or(Ok(Weighed::GiveUp), Err);
    }
    Ok(Weighed::Wait { until: pause.map_or(Instant::NEVER, |pause| now.plus(pause)).min(give_up), listening })
}

/// When to ask again by ourselves: when a lease ends, and within a second in any case.
fn pause(busy: Busy, poll: Duration) -> Duration {
    // A little later than the end we were told: stores count in milliseconds, and a lease that ends while we ask costs a whole poll.
    let after = Duration::from_millis(1);
    busy.retry_in.map_or(poll, |end| poll.min(end + after))
}
