//! The one retry rule: again soon, then ever less often, with jitter, until patience ends.

use std::time::Duration;

use crate::error::Error;
use crate::runtime::{self, Instant};

/// Trouble with a store, and how long it has lasted.
#[derive(Debug)]
pub(crate) struct Trouble {
    patience: Duration,
    /// When the first request that failed was sent; while none failed, when the last one was sent.
    since: Option<Instant>,
    failing: bool,
    pause: Duration,
}

impl Trouble {
    const FIRST: Duration = Duration::from_millis(10);
    /// The longest pause.
    pub(crate) const LAST: Duration = Duration::from_secs(1);

    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, since: None, failing: false, pause: Self::FIRST }
    }

    /// A request is sent: trouble counts from the first that fails.
    pub(crate) fn asked(&mut self, now: Instant) {
        if !self.failing {
            self.since = Some(now);
        }
    }

    /// The store has not answered since then.
    pub(crate) fn began(&mut self, since: Instant) {
        (self.since, self.failing) = (Some(since), true);
    }

    /// How much of the time for trouble is left.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        let borne = self.since.filter(|_| self.failing).map_or(Duration::ZERO, |since| now.since(since));
        self.patience.saturating_sub(borne)
    }

    /// The store answered.
    pub(crate) fn over(&mut self) {
        *self = Self::new(self.patience);
    }

    /// How long to pause before trying again, or the error if it is no use or patience has ended.
    pub(crate) fn again(&mut self, error: Error, now: Instant) -> Result<Duration, Error> {
        self.failing = true;
        let since = *self.since.get_or_insert(now);
        if !error.is_trouble() || now.since(since) >= self.patience {
            return Err(error);
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(Self::LAST);
        // The last attempt is made when the time for trouble ends, not after it.
        Ok(runtime::jitter(pause / 2, pause).min(self.patience.saturating_sub(now.since(since))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn pauses_grow_and_patience_ends() {
        let mut trouble = Trouble::new(Duration::from_secs(10));
        let mut now = Instant::from_nanos(0);
        let down = || Error::new(ErrorKind::Unavailable, "down");
        let mut pauses = Vec::new();
        while let Ok(pause) = trouble.again(down(), now) {
            pauses.push(pause);
            now = now.plus(pause);
        }
        assert!(now.since(Instant::from_nanos(0)) >= Duration::from_secs(10));
        assert!(pauses[0] <= Trouble::FIRST && pauses.iter().all(|pause| *pause <= Trouble::LAST));
        assert!((10..60).contains(&pauses.len()), "{} pauses", pauses.len());
        trouble.over();
        assert!(trouble.again(down(), now).unwrap() <= Trouble::FIRST);
    }

    #[test]
    fn trouble_counts_from_the_sending_of_the_first_request_that_failed() {
        let mut trouble = Trouble::new(Duration::from_secs(10));
        let at = |seconds| Instant::from_nanos(0).plus(Duration::from_secs(seconds));
        let down = || Error::new(ErrorKind::Unavailable, "down");
        trouble.asked(at(1));
        trouble.asked(at(2));
        assert_eq!(trouble.left(at(5)), Duration::from_secs(10), "nothing failed yet");
        trouble.again(down(), at(5)).unwrap();
        trouble.asked(at(6));
        assert_eq!(trouble.left(at(9)), Duration::from_secs(3));
        assert!(trouble.again(down(), at(11)).is_ok() && trouble.again(down(), at(12)).is_err());
    }

    #[test]
    fn a_refusal_is_not_tried_again() {
        let mut trouble = Trouble::new(Duration::from_secs(10));
        assert!(trouble.again(Error::new(ErrorKind::WrongKind, "no"), Instant::default()).is_err());
    }
}
