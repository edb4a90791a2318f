//! What the processes change under their locks, kept by the parent, which is neither paused nor killed: for each lock a number behind a gate,
//! and one that nothing but the lock protects.

use std::collections::BTreeMap;

use lockkeeper::Token;
use lockkeeper::fence::Watermark;
use lockkeeper::referee::{Event, What};

use super::message::{Ask, Lock};

#[derive(Debug, Default)]
struct Resource {
    gate: Watermark,
    fenced: u64,
    plain: u64,
}

/// How often something was written, and what was wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    pub(super) fenced: u64,
    /// Turned away by the gate.
    pub(super) refused: u64,
    pub(super) plain: u64,
    /// Computed from a value that was no longer the last one, so that an update in between is gone.
    pub(super) lost: u64,
}

#[derive(Debug, Default)]
pub(super) struct Resources {
    all: BTreeMap<String, Resource>,
    pub(super) writes: Writes,
}

impl Resources {
    /// The answer, and the event that the referee must see.
    pub(super) fn answer(&mut self, client: u32, at: u64, ask: Ask) -> (Option<u64>, Option<Event>) {
        match ask {
            Ask::Enter { resource, token, owner } => {
                let resource = self.all.entry(resource).or_default();
                let admitted = parse(token, &owner).is_some_and(|token| resource.gate.enter(token).is_ok());
                self.writes.refused += u64::from(!admitted);
                (admitted.then_some(resource.fenced), None)
            }
            Ask::Write { resource: name, token, owner, read } => {
                let resource = self.all.entry(name.clone()).or_default();
                if parse(token, &owner).is_none_or(|token| resource.gate.check(token).is_err()) {
                    self.writes.refused += 1;
                    return (None, None);
                }
                self.writes.fenced += 1;
                resource.fenced = read + 1;
                (Some(read + 1), Some(Event { at, client, what: What::Wrote { resource: name, token, read, wrote: read + 1 } }))
            }
            Ask::Look { resource } => (Some(self.all.entry(resource).or_default().plain), None),
            Ask::Put { resource, read } => {
                let resource = self.all.entry(resource).or_default();
                self.writes.plain += 1;
                self.writes.lost += u64::from(resource.plain != read);
                resource.plain = read + 1;
                (Some(read + 1), None)
            }
        }
    }
}

fn parse(token: u64, owner: &str) -> Option<Token> {
    Some(Token::new(token, owner.parse().ok()?))
}

/// Changes of numbers: those that the store confirmed, and those of which nobody knows.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    open: BTreeMap<(u32, u64), (Lock, i64)>,
    sure: BTreeMap<Lock, i64>,
    pub(super) confirmed: u64,
}

impl Numbers {
    pub(super) fn counting(&mut self, client: u32, id: u64, lock: Lock, by: i64) {
        self.open.insert((client, id), (lock, by));
    }

    pub(super) fn counted(&mut self, client: u32, id: u64, by: i64) {
        if let Some((lock, _)) = self.open.remove(&(client, id)) {
            *self.sure.entry(lock).or_default() += by;
            self.confirmed += 1;
        }
    }

    /// The lower and the upper bound of a number that began as `first`.
    pub(super) fn range(&self, lock: Lock, first: i64) -> (i64, i64) {
        let sure = first + self.sure.get(&lock).copied().unwrap_or_default();
        let open = || self.open.values().filter(|(of, _)| *of == lock).map(|(_, by)| *by);
        (sure + open().filter(|by| *by < 0).sum::<i64>(), sure + open().filter(|by| *by > 0).sum::<i64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "00000000-0000-0000-0000-000000000001:1";
    const TWO: &str = "00000000-0000-0000-0000-000000000002:1";

    #[test]
    fn a_gate_refuses_the_older_holder_and_a_plain_number_does_not() {
        let mut all = Resources::default();
        let resource = || "r".to_owned();
        let enter = |token, owner: &str| Ask::Enter { resource: resource(), token, owner: owner.to_owned() };
        let write = |token, owner: &str, read| Ask::Write { resource: resource(), token, owner: owner.to_owned(), read };
        assert_eq!(all.answer(1, 0, enter(7, ONE)).0, Some(0));
        assert_eq!(all.answer(2, 0, enter(8, TWO)).0, Some(0));
        assert_eq!(all.answer(1, 0, write(7, ONE, 0)), (None, None));
        assert!(all.answer(2, 0, write(8, TWO, 0)).1.is_some());
        for client in [1, 2] {
            all.answer(client, 0, Ask::Put { resource: resource(), read: 0 });
        }
        assert_eq!(all.writes, Writes { fenced: 1, refused: 1, plain: 2, lost: 1 });
    }

    #[test]
    fn a_change_without_an_answer_may_have_been_made_or_not() {
        let mut numbers = Numbers::default();
        for id in 0..3 {
            numbers.counting(1, id, Lock::Counter, if id == 1 { 1 } else { -1 });
        }
        assert_eq!(numbers.range(Lock::Counter, 10), (8, 11));
        numbers.counted(1, 0, -1);
        numbers.counted(1, 1, 0);
        assert_eq!((numbers.range(Lock::Counter, 10), numbers.range(Lock::Latch, 5)), ((8, 9), (5, 5)));
    }
}
