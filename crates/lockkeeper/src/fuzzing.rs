//! Entry points to the parsers, for the fuzz targets of `verify`. Each takes what a user, a file or a server may say. Not part of the public API.
#![allow(missing_docs, reason = "hidden; the targets say what goes in")]

use std::time::Duration;

use crate::backend::{Acquire, Claim, Count, CountOp, CounterOp, LatchOp, Release, Renew, SemaphoreOp};
use crate::model::{Now, Record, Request, step};
use crate::name::{Name, literal_pattern, matches_pattern};
use crate::owner::{ClientId, WireOwner};
use crate::runtime::Instant;
use crate::store::kit::engine::RecordEngine;
use crate::store::sql::rows::{NameRows, Work};
use crate::store::sql::text;
use crate::{client, store};

/// When stored rows are looked at.
const NOW: Instant = Instant::from_nanos(1_700_000_000_000_000_000);

const LEASE: Duration = Duration::from_secs(30);

fn owner(number: u64) -> WireOwner {
    WireOwner { client: ClientId::from_bits(1), number }
}

fn claims() -> [Claim; 5] {
    [Claim::Mutex, Claim::Fair, Claim::Read, Claim::Write, Claim::Permits { take: 2, of: 3 }]
}

fn counts() -> [CountOp; 14] {
    use CounterOp as C;
    [
        CountOp::Counter(C::Init(3)),
        CountOp::Counter(C::Take(2)),
        CountOp::Counter(C::Give(u32::MAX)),
        CountOp::Counter(C::Add(i32::MIN)),
        CountOp::Counter(C::Add(i32::MAX)),
        CountOp::Counter(C::Drain),
        CountOp::Counter(C::Read),
        CountOp::Latch(LatchOp::Init(2)),
        CountOp::Latch(LatchOp::Down),
        CountOp::Latch(LatchOp::Read),
        CountOp::Semaphore(SemaphoreOp::Init(3)),
        CountOp::Semaphore(SemaphoreOp::Resize(u32::MAX)),
        CountOp::Semaphore(SemaphoreOp::Read),
        CountOp::Semaphore(SemaphoreOp::Remove),
    ]
}

/// A URL of a store.
pub fn store_url(text: &str) {
    client::fuzzing::store_url(text);
}

/// The text of a config file.
pub fn config_file(text: &str, is_yaml: bool) {
    client::fuzzing::config_file(text, is_yaml);
}

/// The bytes of a reply of Redis.
pub fn redis_reply(bytes: &[u8]) {
    store::redis::fuzzing::reply(bytes);
}

/// The text of a row of sqlite, or of a datagram.
pub fn sqlite_text(text: &str) {
    store::sqlite::fuzzing::text(text);
}

/// The children of a folder of ZooKeeper.
pub fn zookeeper_children(listed: &[&str]) {
    store::zookeeper::fuzzing::children(listed);
}

/// Keys and values of etcd.
pub fn etcd_keys(pairs: &[(&[u8], &[u8])]) {
    store::etcd::fuzzing::keys(&Name::new("a").expect("a good name"), pairs);
}

/// A name, an owner, and a pattern that names are listed by.
pub fn name(text: &str, pattern: &str) {
    let _ = (text.parse::<WireOwner>(), matches_pattern(pattern, text));
    assert!(matches_pattern(&literal_pattern(text), text), "a text matches itself");
    if let Ok(name) = Name::new(text) {
        assert_eq!(name.as_str(), text, "a name is what it was made of");
    }
}

/// A record as a store that keeps whole records has it, and every request on it.
pub fn record(json: &[u8]) {
    let Ok(record) = serde_json::from_slice::<Record>(json) else { return };
    let name = Name::new("a").expect("a good name");
    let (releases, renews) = (claims().into_iter(), claims().into_iter());
    let acquires = claims().into_iter().map(|claim| Request::Acquire(Acquire::new(name.clone(), claim, owner(1), LEASE)));
    let releases = releases.map(|claim| Request::Release(Release::new(name.clone(), claim, owner(1))));
    let renews = renews.map(|claim| Request::Renew(Renew::new(name.clone(), claim, owner(1), Some(LEASE))));
    let counts = counts().into_iter().map(|op| Request::Count(Count::new(name.clone(), owner(2), op, LEASE)));
    for request in acquires.chain(releases).chain(renews).chain(counts).chain([Request::Force]) {
        let mut record = record.clone();
        let now = Now { at: NOW, token: 7 };
        let _ = record.snapshot(&name, NOW);
        record.expire(NOW);
        let _ = step(&mut record, &request, now);
        let _ = (record.snapshot(&name, NOW), record.is_empty(), record.owners());
    }
}

/// The rows of a name on a SQL server, and every request on them.
pub fn sql_rows(token: i64, body: Option<&str>, parts: Option<&str>) {
    let name = Name::new("a").expect("a good name");
    let rows = || NameRows::parse(&name, 1_700_000_000_000_000, Some(1), token, body, parts).ok();
    let Some(read) = rows() else { return };
    let _ = (read.has_doubtful_place(NOW), read.is_head_alone());
    for claim in claims() {
        with(rows(), |engine| drop(engine.acquire(&Acquire::new(name.clone(), claim, owner(1), LEASE))));
        with(rows(), |engine| drop(engine.release(&Release::new(name.clone(), claim, owner(1)))));
        with(rows(), |engine| drop(engine.renew(&Renew::new(name.clone(), claim, owner(1), Some(LEASE)))));
    }
    for op in counts() {
        with(rows(), |engine| drop(engine.count(&Count::new(name.clone(), owner(2), op, LEASE))));
    }
    with(rows(), |engine| drop(engine.snapshot(&name)));
    with(rows(), |engine| drop(engine.force_release(&name)));
}

fn with(rows: Option<NameRows>, ask: impl FnOnce(&mut RecordEngine<'_, Work>)) {
    let Some(rows) = rows else { return };
    let mut work = Work::of(&Name::new("a").expect("a good name"), rows);
    ask(&mut RecordEngine::new(&mut work, NOW, 1_700_000_000_000_000, None));
}

/// What a database notifies.
pub fn sql_payload(payload: &str) {
    let _ = (text::parse_payload(payload), text::decoded(payload));
}
