//! The wait loop for numbers: counting semaphores and latches. Locks and permits wait as an [acquisition](crate::session::Acquisition).
//!
//! Notifications wake it, and it never relies on them alone: it asks again within a second.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Busy, Subscription};
use crate::error::{Error, Result};
use crate::runtime::{self, Instant, log};
pub(super) use crate::session::Patience;
use crate::session::{Session, Settings, Trouble, pause};

/// What somebody found who looked.
#[derive(Debug)]
pub(super) enum Looked<T> {
    /// What was waited for.
    Ready(T),
    /// Not yet: listen to the store, and ask again.
    Busy(Busy),
    /// It will not be: trouble that looking again would make worse.
    Over(Error),
}

/// Something that can be waited for.
pub(super) trait Look: Send {
    type Found;

    /// Asks once.
    fn look(&mut self) -> impl Future<Output = Result<Looked<Self::Found>>> + Send;

    /// Listens to the store.
    fn listen(&mut self) -> impl Future<Output = Result<Arc<Subscription>>> + Send;
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
        core.check_outage(patience)?;
        let mut trouble = core.trouble(patience);
        let mut subscription: Option<Arc<Subscription>> = None;
        loop {
            session.check_open()?;
            trouble.asked(core.runtime.now());
            let found = look.look().await;
            let now = core.runtime.now();
            if matches!(found, Ok(Looked::Busy(_))) && subscription.is_none() && patience != Patience::Try {
                let limit = Settings::POLL.0.min(deadline.since(now));
                match runtime::within(limit, Box::pin(look.listen())).await {
                    // A notification between asking and subscribing was missed: ask once more.
                    Some(Ok(ours)) => {
                        subscription = Some(ours);
                        continue;
                    }
                    // The store answers, it only does not notify: no trouble, but a wait by polling. The pause counts from the answer,
                    // so that a subscription without an answer does not make it longer.
                    Some(Err(error)) => log!(debug, %error, "cannot subscribe; polling instead"),
                    None => log!(debug, "no answer to a subscription; polling instead"),
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
            tokio::select! {
                biased;
                () = notified => {}
                () = core.runtime.sleep_until(until) => {}
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
        Ok(Looked::Busy(busy)) => (pause(busy, poll), true, None),
        Ok(Looked::Over(error)) => return Err(error),
        Err(error) => (trouble.again(error.clone(), now)?, false, Some(error)),
    };
    if error.is_none() {
        trouble.over();
    }
    // A try does not wait for others, but for the store it does.
    let give_up = if error.is_some() && patience == Patience::Try { Instant::NEVER } else { deadline };
    if now >= give_up {
        return error.map_or(Ok(Weighed::GiveUp), Err);
    }
    Ok(Weighed::Wait { until: now.plus(pause).min(give_up), listening })
}
