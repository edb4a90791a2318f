//! A time limit for a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{BoxFuture, world};

/// The answer of `future` if it comes within `limit`.
pub(crate) const fn within<F: Future + Unpin>(limit: Duration, future: F) -> Within<F> {
    Within::Untimed { limit, future: Some(future) }
}

/// See [`within`]. Written out, because everything that asks or waits has one inside: it is a third of what an `async fn` makes of it.
pub(crate) enum Within<F> {
    /// Not polled yet: an answer that is there at once needs no timer.
    Untimed { limit: Duration, future: Option<F> },
    /// Boxed, so that the many calls that never come here do not carry a timer about.
    Timed(Pin<Box<tokio::time::Timeout<F>>>),
    /// With a timer of the simulated world that polls it.
    Simulated(Box<(F, BoxFuture<'static, ()>)>),
}

impl<F: Future + Unpin> Future for Within<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Self::Untimed { limit, future } = &mut *self {
            let limit = *limit;
            let mut future = future.take().expect("polled after it was ready");
            if let Poll::Ready(answer) = Pin::new(&mut future).poll(cx) {
                return Poll::Ready(Some(answer));
            }
            *self = match world::current() {
                Some(world) => Self::Simulated(Box::new((future, world.sleep_until(world.now().plus(limit))))),
                None => Self::Timed(Box::pin(tokio::time::timeout(limit, future))),
            };
        }
        match &mut *self {
            Self::Timed(timed) => timed.as_mut().poll(cx).map(std::result::Result::ok),
            Self::Simulated(timed) => match Pin::new(&mut timed.0).poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending => timed.1.as_mut().poll(cx).map(|()| None),
            },
            Self::Untimed { .. } => Poll::Pending,
        }
    }
}
