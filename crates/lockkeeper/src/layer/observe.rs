//! What can be seen from outside: a `tracing` span per request, an event per loss, and `metrics` of waits and holds.
//!
//! | metric | kind | labels | what |
//! |---|---|---|---|
//! | `lockkeeper_wait_seconds` | histogram | `kind`, `outcome` = `acquired`, `gave_up` | from the call to the grant, or to giving up |
//! | `lockkeeper_hold_seconds` | histogram | `kind` | from the grant to the release |
//! | `lockkeeper_handovers_total` | counter | `kind` | grants handed over inside this process |
//! | `lockkeeper_renewals_failed_total` | counter | `kind` | renewals without an answer, or refused |
//! | `lockkeeper_losses_total` | counter | `kind`, `reason` = `gone`, `expired`, `closed` | holds lost |
//!
//! Spans are named `lockkeeper.acquire`, `.acquire_all`, `.release`, `.renew`, `.count`, at debug level, with `name`, `owner` and `answer`. A loss is a warning. Names
//! are never labels: there may be millions.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use tracing::{Level, Span, debug_span, field};

use super::Layer;
use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Count, CountOutcome, Event, Kind, LossReason, Observer, Release, Released, Renew,
    Renewed, Reply,
};
use crate::error::Result;

/// Tells the installed `metrics` recorder what the names mean.
pub fn describe_metrics() {
    use metrics::Unit::{Count, Seconds};
    metrics::describe_histogram!("lockkeeper_wait_seconds", Seconds, "from the call to the grant, or to giving up");
    metrics::describe_histogram!("lockkeeper_hold_seconds", Seconds, "from the grant to the release");
    metrics::describe_counter!("lockkeeper_handovers_total", Count, "grants handed over inside this process");
    metrics::describe_counter!("lockkeeper_renewals_failed_total", Count, "renewals without an answer, or refused");
    metrics::describe_counter!("lockkeeper_losses_total", Count, "holds lost");
}

/// Traces the requests to the backend below.
#[derive(Debug)]
pub struct Observe(Arc<dyn Backend>);

impl Observe {
    /// Observes `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self(inner)
    }
}

/// The reply in its span; the plain reply when nobody traces, so that it costs nothing.
macro_rules! traced {
    ($reply:expr, $span:expr) => {{
        if !caught(|| tracing::enabled!(Level::DEBUG)).unwrap_or(false) {
            return $reply;
        }
        let span = caught(|| $span).unwrap_or_else(Span::none);
        let mut reply = $reply;
        Box::pin(poll_fn(move |context| {
            let entered = caught(|| span.enter());
            let answer = reply.as_mut().poll(context);
            if let Poll::Ready(answer) = &answer {
                caught(|| span.record("answer", field::debug(answer)));
            }
            caught(move || drop(entered));
            answer
        }))
    }};
}

/// What a subscriber of the user's does with a span. If it panics, the request goes on without it: the keeper's renewals pass here.
fn caught<T>(of_the_user: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(of_the_user)).ok()
}

/// The metric with the kind as a literal label: a key of literals only is made once, any other at every use.
macro_rules! by_kind {
    ($kind:expr, |kind| metrics::$metric:ident!($name:literal, "kind" => kind $(, $label:literal => $value:tt)?)) => {
        match $kind {
            Kind::Mutex => metrics::$metric!($name, "kind" => "mutex" $(, $label => $value)?),
            Kind::RwLock => metrics::$metric!($name, "kind" => "rwlock" $(, $label => $value)?),
            Kind::Semaphore => metrics::$metric!($name, "kind" => "semaphore" $(, $label => $value)?),
            Kind::CountingSemaphore => metrics::$metric!($name, "kind" => "counting_semaphore" $(, $label => $value)?),
            Kind::Latch => metrics::$metric!($name, "kind" => "latch" $(, $label => $value)?),
        }
    };
}

impl Layer for Observe {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.0
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self(inner))
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        traced!(
            self.0.acquire(request),
            debug_span!("lockkeeper.acquire", name = %request.name, owner = %request.owner, claim = ?request.claim, answer = field::Empty)
        )
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        traced!(
            self.0.acquire_all(requests),
            debug_span!("lockkeeper.acquire_all", names = requests.len(), answer = field::Empty)
        )
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        traced!(
            self.0.release(request),
            debug_span!("lockkeeper.release", name = %request.name, owner = %request.owner, answer = field::Empty)
        )
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        traced!(self.0.renew(requests), debug_span!("lockkeeper.renew", holds = requests.len(), answer = field::Empty))
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        traced!(
            self.0.count(request),
            debug_span!("lockkeeper.count", name = %request.name, op = ?request.op, answer = field::Empty)
        )
    }
}

/// Records the metrics of waits and holds, and warns of losses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metrics;

impl Observer for Metrics {
    fn notify(&self, event: &Event<'_>) {
        match *event {
            Event::Acquired { claim, waited, handed_over, .. } => {
                by_kind!(
                    claim.kind(),
                    |kind| metrics::histogram!("lockkeeper_wait_seconds", "kind" => kind, "outcome" => "acquired")
                )
                .record(waited);
                if handed_over {
                    by_kind!(claim.kind(), |kind| metrics::counter!("lockkeeper_handovers_total", "kind" => kind)).increment(1);
                }
            }
            Event::GaveUp { claim, waited, .. } => {
                by_kind!(
                    claim.kind(),
                    |kind| metrics::histogram!("lockkeeper_wait_seconds", "kind" => kind, "outcome" => "gave_up")
                )
                .record(waited);
            }
            Event::Released { claim, held, .. } => {
                by_kind!(claim.kind(), |kind| metrics::histogram!("lockkeeper_hold_seconds", "kind" => kind)).record(held);
            }
            Event::RenewalFailed { name, claim, owner, error } => {
                tracing::debug!(%name, %owner, %error, "renewal failed");
                by_kind!(claim.kind(), |kind| metrics::counter!("lockkeeper_renewals_failed_total", "kind" => kind)).increment(1);
            }
            Event::Lost { name, claim, owner, reason } => {
                tracing::warn!(%name, %owner, %reason, "lock lost");
                let reason = match reason {
                    LossReason::Gone => "gone",
                    LossReason::Expired => "expired",
                    LossReason::Closed => "closed",
                };
                by_kind!(claim.kind(), |kind| metrics::counter!("lockkeeper_losses_total", "kind" => kind, "reason" => reason))
                    .increment(1);
            }
        }
    }
}
