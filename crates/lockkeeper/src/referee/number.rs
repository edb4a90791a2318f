//! The rules of numbers: latches and counting semaphores. Nobody owns a part of them, so what can be judged is that each request counts once,
//! that nobody takes what is not there, and that a latch lets nobody pass while it is closed.

use std::collections::BTreeMap;

use super::{Promise, Scene};

/// The number under one name. A missing one is 0.
#[derive(Debug, Default)]
pub(super) struct Number {
    /// The store reports on it.
    seen: bool,
    value: i64,
    /// Since when it is 0, or when it was 0 for the last time.
    open: u64,
    /// By how much clients asked to raise and to lower it, each request once.
    asked: (u64, u64),
    /// By how much the store has raised and lowered it since it lost something.
    done: (u64, u64),
    /// By how much it was lowered in all.
    lowered: u64,
    /// What clients were told that they took.
    taken: u64,
    /// Another store took over: its number may be an older one.
    replaced: bool,
    reported: bool,
}

impl Number {
    pub(super) fn asked(&mut self, change: i64) {
        let which = if change < 0 { &mut self.asked.1 } else { &mut self.asked.0 };
        *which = which.saturating_add(change.unsigned_abs());
    }

    /// The store forgot it.
    pub(super) fn forgotten(&mut self, at: u64) {
        (self.value, self.open, self.done) = (0, at, (0, 0));
    }

    /// What the store lost may be asked for again.
    pub(super) fn replaced(&mut self) {
        (self.replaced, self.done) = (true, (0, 0));
    }

    /// The store's number is `value` from now on.
    pub(super) fn changes(&mut self, name: &str, value: i64, scene: &mut Scene<'_>) {
        scene.verdict.checked(Promise::Numbers);
        let (at, before) = (scene.at, self.value);
        (self.seen, self.value, self.reported) = (true, value, false);
        if before != value && (before == 0 || value == 0) {
            self.open = at;
        }
        if std::mem::take(&mut self.replaced) {
            return;
        }
        let change = value.saturating_sub(before).unsigned_abs();
        if value > before {
            self.done.0 = self.done.0.saturating_add(change);
        } else {
            self.done.1 = self.done.1.saturating_add(change);
            self.lowered = self.lowered.saturating_add(change);
        }
        if value < 0 {
            scene.verdict.add(Promise::Numbers, at, || format!("{name:?}: the number is {value}"));
        }
        if self.done.0 > self.asked.0 || self.done.1 > self.asked.1 {
            let (done, asked) = (self.done, self.asked);
            scene.verdict.add(Promise::Numbers, at, || {
                format!("{name:?}: raised by {} and lowered by {}, but asked for {} and {}", done.0, done.1, asked.0, asked.1)
            });
        }
    }

    /// A client was told that it has so many permits.
    pub(super) fn took(&mut self, name: &str, permits: u32, scene: &mut Scene<'_>) {
        self.taken = self.taken.saturating_add(permits.into());
        if !self.seen {
            return;
        }
        scene.verdict.checked(Promise::Numbers);
        let (taken, lowered) = (self.taken, self.lowered);
        if taken > lowered {
            scene.verdict.add(Promise::Numbers, scene.at, || format!("{name:?}: {taken} permits were taken, of {lowered}"));
        }
    }

    /// A call that began to wait at `began` passed the latch.
    pub(super) fn opened(&self, name: &str, began: Option<u64>, scene: &mut Scene<'_>) {
        let Some(began) = began.filter(|_| self.seen) else { return };
        scene.verdict.checked(Promise::Numbers);
        let value = self.value;
        if value != 0 && self.open < began {
            scene
                .verdict
                .add(Promise::Numbers, scene.at, || format!("{name:?}: a call passed, but {value} were to go all the time"));
        }
    }

    /// P6: those who wait for a latch that is open are let through.
    pub(super) fn waits(&mut self, name: &str, calls: &BTreeMap<(u32, u64), u64>, scene: &mut Scene<'_>) {
        if !self.seen || self.value != 0 || self.reported {
            return;
        }
        let (at, limits) = (scene.at, scene.limits);
        let ready = |(&(client, _), &since): (&(u32, u64), &u64)| Some(since.max(scene.client(client)?.well_since(at)?));
        let Some(waiting) = calls.iter().filter_map(ready).min() else { return };
        scene.verdict.checked(Promise::P6);
        let since = waiting.max(self.open);
        if at > since.saturating_add(limits.free_while_waited_for + 2 * limits.round_trip + limits.slack) {
            self.reported = true;
            scene.verdict.add(Promise::P6, at, || format!("{name:?}: open since {:.3} s, and a call waits", since as f64 / 1e9));
        }
    }
}
