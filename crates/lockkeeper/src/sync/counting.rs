//! Requests that count, and waiting for a number. A counting request carries an id: sent again after a lost answer it counts once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::call::{Limits, Running, Target};
use super::sleep::sleep;
use crate::backend::{Attempt, Busy, Count, CountOp, CountOutcome, Counted, Subscription, Watch};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant, log};
use crate::session::{Acquisition, Command, Moment, Step, Trouble};

/// Carries out `op` once, however often it has to be sent.
pub(super) fn count(target: &Target, op: CountOp) -> impl Future<Output = Result<Counted>> + Send + use<> {
    let target = target.clone();
    async move { count_by(&target, op, Instant::NEVER).await }
}

/// The same, for one who waits until `deadline`.
async fn count_by(target: &Target, op: CountOp, deadline: Instant) -> Result<Counted> {
    let session = &target.session;
    session.check_open()?;
    let (core, name) = (session.core(), target.name()?);
    if !core.capabilities.supports(op.kind()) {
        return Err(core.capabilities.unsupported(&op.kind().to_string()));
    }
    core.capabilities.check_name(name)?;
    let began = core.runtime.now();
    let timeout = core.settings.command_timeout;
    // The same for all repetitions, and remembered for longer than any of them can arrive: so none counts twice.
    let request = Count {
        name: name.clone(),
        id: core.next_owner(),
        not_after: began.plus(timeout),
        remember: timeout.saturating_mul(2),
        op,
    };
    let mut trouble = Trouble::new(timeout.min(deadline.since(began)));
    let mut unknown = None;
    loop {
        // A part of the time for each sending, so that one whose answer is lost can be sent again.
        let now = core.runtime.now();
        let limit = request.not_after.min(deadline).since(now).clamp(timeout / 10, timeout / 3);
        let error = match core.call(limit, core.backend.count(request.clone())).await {
            Ok(CountOutcome::Counted(counted)) => return Ok(counted),
            // Not carried out, now or when it was sent before: that would be remembered.
            Ok(CountOutcome::Late) => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "the request reached the store too late; the network or its clock is slow",
                ));
            }
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Indeterminate {
            unknown = Some(error.clone());
        }
        let now = core.runtime.now();
        match trouble.again(error, now) {
            Ok(pause) => core.runtime.sleep_until(now.plus(pause)).await,
            Err(error) => return Err(unknown.unwrap_or(error)),
        }
    }
}

/// A call that waits for a number: `semaphore.acquire(2).timeout(…).await`, `latch.wait().timeout(…).await`.
///
/// It owns what it needs, so it can be spawned. Without [`timeout`](Self::timeout) it waits as long as it takes.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// use std::time::Duration;
/// let parts = client.latch("parts");
/// parts.try_set(1).await?;
/// let call = parts.wait().timeout(Duration::from_millis(5)).outage_timeout(Duration::from_secs(1));
/// assert!(call.await.unwrap_err().is_busy(), "a part is missing");
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// `Timeout` if it did not happen in the time allowed; otherwise the store's errors.
///
/// # Cancel safety
///
/// Waiting for a latch only reads. A dropped [`CountingSemaphore::acquire`](crate::CountingSemaphore::acquire) whose request was sent may
/// have acquired its permits: no owner holds them, so nothing releases them. Let it run to its end, or use a
/// [`Semaphore`](crate::Semaphore).
#[must_use = "it does nothing unless awaited"]
pub struct WaitCall {
    target: Target,
    op: CountOp,
    limits: Limits,
    running: Running<Result<()>>,
}

impl WaitCall {
    pub(super) fn new(target: &Target, op: CountOp) -> Self {
        Self { target: target.clone(), op, limits: Limits::default(), running: None }
    }

    /// Waits at most this long, trouble with the store included.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limits.timeout = Some(limit);
        self
    }

    /// Limits how long the call retries while the store does not answer: see [`Acquiring::outage_timeout`](super::Acquiring::outage_timeout).
    pub fn outage_timeout(mut self, limit: Duration) -> Self {
        self.limits.outage_timeout = Some(limit);
        self
    }
}

impl Future for WaitCall {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { target, op, limits, running } = self.get_mut();
        running.get_or_insert_with(|| Box::pin(wait_for(target.clone(), *op, *limits))).as_mut().poll(cx)
    }
}

/// Waits as an acquisition does, without a local queue: each request is a count of its own.
async fn wait_for(target: Target, op: CountOp, limits: Limits) -> Result<()> {
    let session = &target.session;
    let core = session.core();
    let (began, patience) = (core.runtime.now(), limits.patience());
    let deadline = patience.deadline(began);
    core.check_outage(patience)?;
    let mut machine = Acquisition::new(patience, began, core.settings.command_timeout, false, core.trouble(patience));
    let mut subscription = None;
    let mut event = Step::Started { may_ask: true };
    loop {
        let now = core.runtime.now();
        event = match machine.step(event, Moment { now, poll: core.poll_after(now) }) {
            Command::Ask { sent, .. } => {
                session.check_open()?;
                let answer = match counted(&target, op, deadline).await {
                    Ok(true) => return Ok(()),
                    Ok(false) => Ok(Attempt::Busy(Busy::default())),
                    // It may have taken the permits: to take them again under another id would take them twice.
                    Err(error) if error.kind() == ErrorKind::Indeterminate && !op.is_read() => return Err(error),
                    Err(error) => Err(error),
                };
                Step::Answered { answer, sent }
            }
            Command::Subscribe { limit } => {
                subscription = subscribe(&target, op, limit).await;
                Step::Subscribed(subscription.is_some())
            }
            Command::Sleep { until, listen } => {
                sleep(core, until, subscription.as_ref().filter(|_| listen), None).await;
                Step::Woken
            }
            Command::GiveUp => {
                let waited = limits.timeout.unwrap_or_default();
                return Err(Error::new(ErrorKind::Timeout, format!("timed out after {waited:?} waiting for {target:?}")));
            }
            Command::Fail(error) => return Err(error),
            // Only with a local queue, or an answer that grants.
            Command::Look | Command::NewOwner { .. } | Command::Grant { .. } => Step::Woken,
        };
    }
}

/// Asks once whether what is waited for is there: a latch is waited for by reading it, permits by taking them.
async fn counted(target: &Target, op: CountOp, deadline: Instant) -> Result<bool> {
    let counted = count_by(target, op, deadline).await?;
    Ok(if op.is_read() { counted.value == 0 } else { counted.done })
}

/// Listens to the store; `None` if it does not notify. Then the wait goes on by polling.
async fn subscribe(target: &Target, op: CountOp, limit: Duration) -> Option<Subscription> {
    let core = target.session.core();
    let watch = Watch::number(target.name().ok()?.clone(), op.kind(), core.next_owner());
    let subscribed = Box::pin(core.call(core.settings.command_timeout, core.backend.watch(watch)));
    match runtime::within(limit, subscribed).await {
        Some(Ok(subscription)) => return Some(subscription),
        Some(Err(error)) => log!(debug, %error, "cannot subscribe; polling instead"),
        None => log!(debug, "no answer to a subscription; polling instead"),
    }
    None
}

impl fmt::Debug for WaitCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitCall").field("name", &self.target).field("op", &self.op).field("limits", &self.limits).finish()
    }
}
