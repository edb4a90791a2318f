//! What may be a name, and that a name has one kind.

use super::World;
use super::any::{How, take};
use crate::backend::{Kind, Snapshot};
use crate::error::{Error, ErrorKind};
use crate::session::Session;
use crate::sync::{CountDownLatch, CountingSemaphore, FairMutex, Mutex, RwLock, Semaphore};

/// Names that some store might stumble over: its own syntax, patterns, other scripts, what is not printed, and the longest.
fn odd_names() -> Vec<String> {
    let mut names: Vec<_> = [
        "x",
        "X",
        "заказ:{42}:注文",
        "🔒",
        "é",
        "e\u{301}",
        "{",
        "}",
        "{}",
        "}{",
        "{a}b",
        "a{b}c}d",
        "{{a}}",
        " ",
        " a",
        "a ",
        "a b",
        "*",
        "?",
        "a*",
        "[a-z]",
        "^a$",
        "a\\b",
        "\\*",
        "line\nbreak",
        "\r\n",
        "\t",
        "%s",
        "%",
        "'",
        "\"",
        "`",
        "a;b",
        "a/b",
        "../a",
        "/",
        "a:b",
        ":",
        "a,b",
        "$1",
        "-",
        "--",
        "0",
        "null",
        "\u{7f}",
        "\u{1}",
        "\u{feff}",
        "\u{200b}",
    ]
    .map(str::to_owned)
    .into();
    names.extend(["x".repeat(512), "注".repeat(170), "{".repeat(512)]);
    names
}

/// Any text of 1 to 512 bytes is a name, on every store, and no two of them are the same.
pub async fn any_text_is_a_name(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let mut guards = Vec::new();
    for name in odd_names() {
        let guard = Mutex::new(&ours, &name).try_lock().await.unwrap();
        guards.push(guard.unwrap_or_else(|| panic!("{name:?} is taken by another name")));
    }
    for guard in &guards {
        let found = world.look(guard.name()).await.unwrap_or_else(|| panic!("{:?} is not there", guard.name()));
        assert_eq!(found.name.as_str(), guard.name());
        assert_eq!(found.holders[0].owner, guard.owner().to_string());
        assert!(Mutex::new(&theirs, guard.name()).try_lock().await.unwrap().is_none());
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// So it is for the other kinds.
pub async fn any_text_is_a_name_for_every_kind(world: &World) {
    let client = world.client();
    for name in odd_names() {
        for claim in world.claims() {
            let guard = take(&client, &name, claim, How::default()).await;
            guard.unwrap_or_else(|error| panic!("{claim:?} {name:?}: {error}")).release().await.unwrap();
        }
        let can = world.capabilities();
        if can.semaphore {
            assert!(Semaphore::new(&client, &name, 1).remove().await.unwrap(), "{name:?}");
        }
        if can.counting_semaphore {
            let counter = CountingSemaphore::new(&client, &name);
            assert_eq!(counter.release(2).await.unwrap(), 2, "{name:?}");
            assert!(counter.remove().await.unwrap());
        }
        if can.latch {
            let latch = CountDownLatch::new(&client, &name);
            assert!(latch.try_set(1).await.unwrap(), "{name:?}");
            assert_eq!(latch.count_down().await.unwrap(), 0);
        }
    }
}

/// A bad name is refused by every kind of handle, in words, before the store sees it.
pub async fn a_bad_name_is_refused_by_every_handle(world: &World) {
    let client = world.client();
    for name in [String::new(), "x".repeat(513), "注".repeat(171), "a\0b".to_owned(), "\0".to_owned()] {
        let name = name.as_str();
        for error in [
            Mutex::new(&client, name).lock().await.unwrap_err(),
            Mutex::new(&client, name).try_lock().await.unwrap_err(),
            Mutex::new(&client, name).owned_by(&world.owner(&client)).lock().await.unwrap_err(),
            FairMutex::new(&client, name).lock().await.unwrap_err(),
            RwLock::new(&client, name).read().await.unwrap_err(),
            RwLock::new(&client, name).try_write().await.unwrap_err(),
            Semaphore::new(&client, name, 1).acquire().await.unwrap_err(),
            Semaphore::new(&client, name, 1).available().await.unwrap_err(),
            Semaphore::new(&client, name, 1).remove().await.unwrap_err(),
            CountingSemaphore::new(&client, name).acquire(1).await.unwrap_err(),
            CountingSemaphore::new(&client, name).available().await.unwrap_err(),
            CountDownLatch::new(&client, name).wait().await.unwrap_err(),
            CountDownLatch::new(&client, name).try_set(1).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidName, "{name:?}: {error}");
        }
    }
}

/// Everything that a handle of this kind can be asked for.
async fn errors(client: &Session, name: &str, kind: Kind) -> Vec<Option<Error>> {
    match kind {
        Kind::Mutex => vec![
            Mutex::new(client, name).try_lock().await.err(),
            Mutex::new(client, name).lock().await.err(),
            FairMutex::new(client, name).try_lock().await.err(),
            FairMutex::new(client, name).lock().await.err(),
        ],
        Kind::RwLock => vec![
            RwLock::new(client, name).try_read().await.err(),
            RwLock::new(client, name).read().await.err(),
            RwLock::new(client, name).try_write().await.err(),
            RwLock::new(client, name).write().await.err(),
        ],
        Kind::Semaphore => {
            let semaphore = Semaphore::new(client, name, 1);
            vec![
                semaphore.try_acquire().await.err(),
                semaphore.acquire().await.err(),
                semaphore.available().await.err(),
                semaphore.resize(2).await.err(),
                semaphore.remove().await.err(),
            ]
        }
        Kind::CountingSemaphore => {
            let counter = CountingSemaphore::new(client, name);
            vec![
                counter.try_acquire(1).await.err(),
                counter.acquire(1).await.err(),
                counter.available().await.err(),
                counter.release(1).await.err(),
                counter.try_set(1).await.err(),
                counter.add(-1).await.err(),
                counter.drain().await.err(),
                counter.remove().await.err(),
            ]
        }
        Kind::Latch => {
            let latch = CountDownLatch::new(client, name);
            vec![
                latch.try_set(1).await.err(),
                latch.count_down().await.err(),
                latch.count().await.err(),
                latch.wait().await.err(),
                latch.remove().await.err(),
            ]
        }
    }
}

/// What must not change: all but the time that passes, and what is learnt of a holder when its client announces itself.
fn essence(found: Option<Snapshot>) -> Option<Snapshot> {
    found.map(|mut found| {
        for holder in &mut found.holders {
            (holder.lease_left, holder.held_for) = (None, None);
            holder.client = None;
            if holder.claim.kind() == Kind::Semaphore {
                // Until then a store may know a permit by less than its whole owner.
                holder.owner.clear();
            }
        }
        found
    })
}

/// A name has one kind: every request of another kind is refused as such, and changes nothing.
pub async fn a_name_has_one_kind(world: &World) {
    let client = world.client();
    let can = world.capabilities();
    let kinds: Vec<_> = [Kind::Mutex, Kind::RwLock, Kind::Semaphore, Kind::CountingSemaphore, Kind::Latch]
        .into_iter()
        .filter(|kind| can.supports(*kind))
        .collect();
    for there in &kinds {
        let name = format!("{there:?}");
        let mut guard = None;
        match there {
            Kind::CountingSemaphore => drop(CountingSemaphore::new(&client, &name).release(3).await.unwrap()),
            Kind::Latch => drop(CountDownLatch::new(&client, &name).try_set(3).await.unwrap()),
            held => {
                let claim = world.claims().into_iter().find(|claim| claim.kind() == *held).expect("a claim of each kind");
                guard = Some(take(&client, &name, claim, How::default()).await.unwrap());
            }
        }
        let before = essence(world.look(&name).await);
        assert!(before.as_ref().is_some_and(|found| found.kind == *there));
        for wanted in kinds.iter().filter(|wanted| *wanted != there) {
            for (number, error) in errors(&client, &name, *wanted).await.into_iter().enumerate() {
                let error = error.unwrap_or_else(|| panic!("request {number} for a {wanted} went through on a {there}"));
                if !can.fair && *wanted == Kind::Mutex && error.kind() == ErrorKind::Unsupported {
                    continue;
                }
                assert_eq!(error.kind(), ErrorKind::WrongKind, "request {number} for a {wanted} on a {there}: {error}");
            }
            assert_eq!(essence(world.look(&name).await), before, "a {wanted} changed a {there}");
        }
        if let Some(guard) = guard {
            guard.release().await.unwrap();
        }
    }
}

/// When nothing lies there any more, a name may be of another kind.
pub async fn a_free_name_may_change_its_kind(world: &World) {
    let client = world.client();
    for _ in 0..2 {
        for claim in world.claims().into_iter().filter(|claim| claim.kind() != Kind::Semaphore) {
            take(&client, "n", claim, How::default()).await.unwrap().release().await.unwrap();
        }
        if world.capabilities().latch {
            let latch = CountDownLatch::new(&client, "n");
            assert!(latch.try_set(1).await.unwrap());
            latch.count_down().await.unwrap();
        }
    }
}
