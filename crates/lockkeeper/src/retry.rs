//! The one retry rule: again soon, then ever less often, with jitter, until patience ends.

use std::time::Duration;

use crate::error::Error;
use crate::runtime::{self, Instant};

/// Trouble with a store, and how long it has lasted.
#[derive(Debug)]
pub(crate) struct Trouble {
    patience: Duration,
    began: Option<Instant>,
    pause: Duration,
}

impl Trouble {
    const FIRST: Duration = Duration::from_millis(10);
    const LAST: Duration = Duration::from_secs(1);

    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, began: None, pause: Self::FIRST }
    }

    /// The store answered.
    pub(crate) fn over(&mut self) {
        *self = Self::new(self.patience);
    }

    /// How long to pause before trying again, or the error if it is no use or patience has ended.
    pub(crate) fn again(&mut self, error: Error, now: Instant) -> Result<Duration, Error> {
        let began = *self.began.get_or_insert(now);
        if !error.is_trouble() || now.since(began) >= self.patience {
            return Err(error);
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(Self::LAST);
        Ok(runtime::jitter(pause / 2, pause))
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
    fn a_refusal_is_not_tried_again() {
        let mut trouble = Trouble::new(Duration::from_secs(10));
        assert!(trouble.again(Error::new(ErrorKind::WrongKind, "no"), Instant::default()).is_err());
    }
}
