//! Who wrote under a name, and which readers came in beside their own writer: a writer that becomes a reader lets no other writer in between.

use std::collections::{BTreeMap, VecDeque};

use super::name::NameState;
use super::{Promise, Scene, Side};

/// The last holds of one name, as the store granted them.
#[derive(Debug, Default)]
pub(super) struct Writers {
    /// When each hold began, and whether it writes.
    granted: VecDeque<(u64, String, bool)>,
    /// The writers beside which readers were let in.
    beside: BTreeMap<String, String>,
}

const REMEMBERED: usize = 256;

impl Writers {
    pub(super) fn lets_in(&mut self, reader: &str, writer: &str) {
        self.beside.insert(reader.to_owned(), writer.to_owned());
    }

    /// Whether two owners are a reader and the writer beside which it reads.
    pub(super) fn are_one(&self, one: &str, other: &str) -> bool {
        let beside = |reader, writer| self.beside.get(reader).is_some_and(|known| known == writer);
        beside(one, other) || beside(other, one)
    }

    /// The store grants to an owner that did not hold it.
    pub(super) fn granted(&mut self, owner: &str, side: Side, at: u64) {
        self.granted.push_back((at, owner.to_owned(), side == Side::Exclusive));
        if self.granted.len() > REMEMBERED {
            self.granted.pop_front();
        }
    }

    /// The first other writer between the grant to the writer `from` and that to the reader `to`. Nothing is said if the store was not itself since
    /// the writer was granted: it may have lost either of them.
    pub(super) fn between(&self, from: &str, to: &str, unhealthy: Option<u64>) -> Option<&str> {
        let begins = self.granted.iter().rposition(|(_, owner, _)| owner == from)?;
        if unhealthy.is_some_and(|when| self.granted[begins].0 <= when) {
            return None;
        }
        let between = self.granted.iter().skip(begins + 1).take_while(|(_, owner, _)| owner != to);
        between.filter(|(_, owner, writes)| *writes && owner != from).map(|(_, owner, _)| owner.as_str()).next()
    }
}

impl NameState {
    /// P1: a writer became a reader, with no other writer in between, unless somebody took its hold away.
    pub(super) fn downgraded(&mut self, name: &str, (from, to): (&str, &str), scene: &mut Scene<'_>) {
        scene.verdict.checked(Promise::P1);
        let excused = self.forced.contains(from) || self.forced.contains(to);
        let unhealthy = scene.unhealthy.map(|(when, _)| when);
        if let Some(other) = self.writers.between(from, to, unhealthy).filter(|_| !excused) {
            scene.verdict.add(Promise::P1, scene.at, || format!("{name:?}: {other} wrote before the writer {from} read as {to}"));
        }
    }
}
