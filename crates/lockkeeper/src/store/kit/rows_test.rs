//! The engine on tables does what it does on whole records, and writes few rows.

use std::collections::BTreeMap;
use std::time::Duration;

use super::engine::{Entry, RecordEngine, Rows, Waking};
use super::rows::{self, HeadRow, PartRow, RowTable};
use crate::backend::{Acquire, Attempt, Claim, Release, Renew};
use crate::error::Result;
use crate::model::{Part, Record, RequestRef, Role, Wake};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::Instant;

/// Tables in memory, for one name.
#[derive(Default)]
struct Tables {
    head: Option<HeadRow<u8>>,
    parts: BTreeMap<(Role, u64, WireOwner), PartRow<u8>>,
    wakes: Vec<Wake>,
    written: usize,
}

impl RowTable for Tables {
    type Peer = u8;

    fn head(&mut self, _: &Name) -> Result<(Option<HeadRow<u8>>, u64)> {
        Ok((self.head.clone(), 0))
    }

    fn scan(&mut self, _: &Name, role: Role, visit: &mut dyn FnMut(PartRow<u8>) -> bool) -> Result<()> {
        let _ = self.parts.values().filter(|row| row.part.role == role).all(|row| visit(*row));
        Ok(())
    }

    fn part(&mut self, _: &Name, role: Role, owner: WireOwner) -> Result<Option<PartRow<u8>>> {
        Ok(self.parts.get(&(role, 0, owner)).copied())
    }

    fn put_head(&mut self, _: &Name, row: &HeadRow<u8>, before: Option<&HeadRow<u8>>) -> Result<()> {
        assert_eq!(before, self.head.as_ref());
        self.written += 1;
        self.head = Some(row.clone());
        Ok(())
    }

    fn delete_head(&mut self, _: &Name, _: u64) -> Result<()> {
        assert!(self.head.take().is_some() && self.parts.is_empty(), "parts without a head: {:?}", self.parts);
        Ok(())
    }

    fn put_part(&mut self, _: &Name, row: &PartRow<u8>) -> Result<()> {
        self.written += 1;
        self.parts.insert(row.part.key(), *row);
        Ok(())
    }

    fn delete_part(&mut self, _: &Name, part: &Part) -> Result<()> {
        assert!(self.parts.remove(&part.key()).is_some(), "{part:?} was not there");
        Ok(())
    }
}

impl Rows for Tables {
    type Peer = u8;

    fn load(&mut self, name: &Name, request: RequestRef<'_>, at: Instant) -> Result<Entry<u8>> {
        rows::load(self, name, request, at)
    }

    fn save(&mut self, name: &Name, entry: Entry<u8>) -> Result<()> {
        rows::save(self, name, entry)
    }

    fn wake(&mut self, _: &Name, waking: Waking<u8>) -> Result<u32> {
        self.wakes.push(waking.wake);
        Ok(0)
    }
}

/// A whole record.
#[derive(Default)]
struct Whole(Record, u64, Vec<Wake>);

impl Rows for Whole {
    type Peer = u8;

    fn load(&mut self, _: &Name, _: RequestRef<'_>, _: Instant) -> Result<Entry<u8>> {
        Ok(Entry::whole(std::mem::take(&mut self.0), self.1))
    }

    fn save(&mut self, _: &Name, entry: Entry<u8>) -> Result<()> {
        self.1 = if entry.record.is_empty() { 0 } else { entry.last_token };
        self.0 = entry.record;
        Ok(())
    }

    fn put_back(&mut self, _: &Name, entry: Entry<u8>) {
        self.0 = entry.record;
    }

    fn wake(&mut self, _: &Name, waking: Waking<u8>) -> Result<u32> {
        self.2.push(waking.wake);
        Ok(0)
    }
}

fn name() -> Name {
    Name::new("n").expect("a name")
}

fn ask(number: u64, claim: Claim, at: u64, lease: u64) -> Acquire {
    Acquire::new(name(), claim, WireOwner { client: ClientId::from_bits(1), number }, Duration::from_nanos(lease))
        .with_times(Instant::from_nanos(at), Instant::NEVER)
        .with_place(Duration::from_nanos(lease))
}

/// One request, drawn from `draw`, carried out; the answer as text.
fn carry_out<R: Rows>(rows: &mut R, at: u64, draw: u64) -> String {
    let claims = match draw / 7 % 3 {
        0 => [Claim::Fair, Claim::Fair, Claim::Mutex],
        1 => [Claim::Read, Claim::Read, Claim::Write],
        _ => [Claim::Permits { take: 1, of: 2 }; 3],
    };
    let asked = ask(draw % 7, claims[(draw >> 8) as usize % 3], at, 1 + (draw >> 12) % 40);
    let Acquire { name, claim, owner, lease, .. } = asked.clone();
    let mut engine = RecordEngine::new(rows, Instant::from_nanos(at), at, None);
    match (draw >> 20) % 8 {
        0..4 => format!("{:?}", engine.acquire(&asked).map_err(|error| error.kind())),
        4..6 => format!("{:?}", engine.release(&Release::new(name, claim, owner)).ok()),
        6 => format!("{:?}", engine.renew(&Renew::new(name, claim, owner, Some(lease))).ok()),
        _ => format!("{:?}", engine.snapshot(&name).ok()),
    }
}

#[test]
fn tables_and_whole_records_give_the_same_answers() {
    for seed in 1..300_u64 {
        let (mut tables, mut whole) = (Tables::default(), Whole::default());
        let (mut at, mut draw) = (1_000, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for turn in 0..60 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            at += draw >> 60;
            // The same kind for most of the history.
            let draw = (draw >> 24) - (draw >> 24) % 21 + (seed % 3) * 7 + draw % 7;
            tables.written = 0;
            let (ours, theirs) = (carry_out(&mut tables, at, draw), carry_out(&mut whole, at, draw));
            assert!((draw >> 20) % 8 < 7 || tables.written == 0, "a look wrote, seed {seed}, turn {turn}");
            assert_eq!(ours, theirs, "seed {seed}, turn {turn}");
            assert_eq!(tables.wakes, whole.2, "seed {seed}, turn {turn}");
        }
    }
}

/// Whoever joins, asks again or leaves writes its own row, however many others wait.
#[test]
fn a_step_writes_the_rows_that_it_changed() {
    let mut tables = Tables::default();
    let mut step = |number, at| {
        tables.written = 0;
        let mut engine = RecordEngine::new(&mut tables, Instant::from_nanos(at), at, None);
        let attempt = engine.acquire(&ask(number, Claim::Fair, at, 1_000)).expect("an answer");
        (attempt, tables.written, tables.parts.len())
    };
    assert!(matches!(step(0, 10), (Attempt::Granted(_), 1, 0)));
    for number in 1..100 {
        let (attempt, written, parts) = step(number, 20);
        assert!(matches!(attempt, Attempt::Busy(busy) if busy.ahead == Some(number as u32 - 1)), "{attempt:?}");
        // The first waiter also marks the head.
        assert!(written <= 2 && (number == 1 || written == 1) && parts == number as usize, "{written} rows, {parts} parts");
    }
    assert_eq!(step(50, 30).1, 1);
}

/// A waiter whose place has ended comes behind all others, not behind those that were read before its old place.
#[test]
fn a_waiter_whose_place_has_ended_goes_to_the_end_of_the_queue() {
    let mut tables = Tables::default();
    let mut step = |number, at, place| {
        let mut engine = RecordEngine::new(&mut tables, Instant::from_nanos(at), at, None);
        let asked = ask(number, Claim::Fair, at, 1_000).with_place(Duration::from_nanos(place));
        let attempt = engine.acquire(&asked).expect("an answer");
        if let Attempt::Busy(busy) = attempt { busy.ahead } else { None }
    };
    assert_eq!(step(9, 10, 1_000), None);
    for (number, place) in [(1, 1_000), (2, 50), (3, 1_000), (4, 1_000), (5, 1_000)] {
        step(number, 20, place);
    }
    assert_eq!(step(2, 100, 1_000), Some(4));
    // And it stays there.
    assert_eq!((step(5, 110, 1_000), step(2, 120, 1_000)), (Some(3), Some(4)));
}
