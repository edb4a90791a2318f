//! A `tracing` span for each request. [`observability`](crate::observability) has their names; names of locks are never labels of metrics, because there
//! may be millions.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tracing::{Level, Span, debug_span, field};

use super::Layer;
use crate::backend::{Acquire, Attempt, AttemptAll, Backend, Count, CountOutcome, Release, Released, Renew, Renewed, Reply};
use crate::error::Result;
use crate::runtime::caught;

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
        // The keeper's renewals pass here: if a subscriber panics, the request goes on without it.
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
