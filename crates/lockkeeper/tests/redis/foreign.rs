//! An application's own keys are left alone: only the exact shapes of a lock count as one, for every operation.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::Kind;
use lockkeeper::{Client, ErrorKind};
use redis::{Commands, Connection};

use crate::server::{Flavour, Server};

const OWNER: &str = "8d5b1c6e-0a3f-4f0e-9d1b-6b1b2f3c4d5e:33";
const OTHER: &str = "8d5b1c6e-0a3f-4f0e-9d1b-6b1b2f3c4d5e:34";

/// A client on a fresh database, and a plain connection beside it. `None`: skipped, and said so.
async fn fresh(flavour: Flavour, test: &str) -> Option<(Arc<Server>, Client, Connection)> {
    if let Some(why) = Server::missing(flavour) {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let server = Server::shared(flavour);
    let url = server.fresh_url();
    let client = Client::connect(&url).await.unwrap();
    Some((server, client, redis::Client::open(url).unwrap().get_connection().unwrap()))
}

fn tell(eyes: &mut Connection, words: &[&str]) {
    redis::cmd(words[0]).arg(&words[1..]).exec(eyes).unwrap();
}

/// What is refused of `name` by everything that could touch it.
async fn refusals(client: &Client, name: &str) -> Vec<Option<ErrorKind>> {
    let semaphore = client.semaphore(name, 2);
    let (counter, latch) = (client.counting_semaphore(name), client.latch(name));
    let refusals = [
        client.mutex(name).try_lock().await.err(),
        client.fair_mutex(name).try_lock().await.err(),
        client.rwlock(name).try_read().await.err(),
        client.rwlock(name).try_write().await.err(),
        semaphore.try_acquire().await.err(),
        semaphore.available().await.err(),
        semaphore.resize(5).await.err(),
        semaphore.remove().await.err(),
        counter.try_acquire(1).await.err(),
        counter.release(1).await.err(),
        counter.drain().await.err(),
        counter.remove().await.err(),
        latch.try_set(3).await.err(),
        latch.count_down().await.err(),
        latch.remove().await.err(),
        client.inspect(name).await.err(),
        client.force_release(name).await.err(),
        client.multi_lock([name, "free"]).try_lock().await.err(),
    ];
    refusals.into_iter().map(|error| error.map(|error| error.kind())).collect()
}

fn dump(eyes: &mut Connection, name: &str) -> (Vec<u8>, bool) {
    (redis::cmd("DUMP").arg(name).query(eyes).unwrap(), eyes.pttl::<_, i64>(name).unwrap() >= 0)
}

/// Shapes that come near to a lock, with and without an end.
async fn what_an_application_keeps_is_neither_locked_nor_changed(flavour: Flavour) {
    let Some((_server, client, mut eyes)) = fresh(flavour, "an application's keys").await else { return };
    let hashes: [&[&str]; 10] = [
        &["mode", "write", "url", "http://localhost"],
        &["mode", "read", "user", "7", "theme", "dark"],
        &["mode", "read"],
        &["mode", "production", OWNER, "1"],
        &["mode", "read", OWNER, "1", "user", "7"],
        &["mode", "read", OWNER, "soon"],
        &["user", "7"],
        &[OWNER, "0"],
        &[OWNER, "1", OTHER, "1"],
        &["8d5b1c6e-0a3f-4f0e-9d1b:33", "1"],
    ];
    for (number, fields) in hashes.iter().enumerate() {
        for ends in [false, true] {
            let name = format!("app:{number}:{ends}");
            redis::cmd("HSET").arg(&name).arg(*fields).exec(&mut eyes).unwrap();
            if ends {
                eyes.pexpire::<_, ()>(&name, 600_000).unwrap();
            }
            let before = dump(&mut eyes, &name);
            for (at, refused) in refusals(&client, &name).await.into_iter().enumerate() {
                assert_eq!(refused, Some(ErrorKind::ForeignKey), "{fields:?}, ends: {ends}, {at}");
            }
            assert_eq!(dump(&mut eyes, &name), before, "{fields:?}, ends: {ends}");
        }
    }
    for text in ["3.5", "0x10", "1e3", "+7", "seven", "", "99999999999999999999"] {
        eyes.set::<_, _, ()>("app:text", text).unwrap();
        let before = dump(&mut eyes, "app:text");
        for (at, refused) in refusals(&client, "app:text").await.into_iter().enumerate() {
            assert_eq!(refused, Some(ErrorKind::ForeignKey), "{text:?}, {at}");
        }
        assert_eq!(dump(&mut eyes, "app:text"), before, "{text:?}");
    }
    assert!(client.list("*").await.unwrap().is_empty());
    assert!(!eyes.exists::<_, bool>("free").unwrap());
}

/// The same shapes as Redisson writes them are locks: the check is not one that refuses everything.
async fn what_redisson_writes_is_a_lock(flavour: Flavour) {
    let Some((_server, client, mut eyes)) = fresh(flavour, "Redisson's keys").await else { return };
    let transaction = format!("{OWNER}:0123456789abcdef0123456789abcdef");
    let write = format!("{OWNER}:write");
    let locks: [(&[&str], Kind); 5] = [
        (&[OWNER, "2"], Kind::Mutex),
        (&[&transaction, "1"], Kind::Mutex),
        (&["mode", "read", OWNER, "2", OTHER, "1"], Kind::RwLock),
        (&["mode", "write", &write, "1"], Kind::RwLock),
        (&["mode", "write", &write, "1", OWNER, "1"], Kind::RwLock),
    ];
    for (number, (fields, kind)) in locks.into_iter().enumerate() {
        let name = format!("java:{number}");
        redis::cmd("HSET").arg(&name).arg(fields).exec(&mut eyes).unwrap();
        eyes.pexpire::<_, ()>(&name, 600_000).unwrap();
        for owner in [OWNER, OTHER] {
            for hold in 1..=2 {
                tell(&mut eyes, &["SET", &format!("{{{name}}}:{owner}:rwlock_timeout:{hold}"), "1", "PX", "600000"]);
            }
        }
        let found = client.inspect(&name).await.unwrap().expect("a lock");
        assert!(found.kind == kind && found.certain && !found.holders.is_empty(), "{found:?}");
        let other = if kind == Kind::Mutex {
            client.rwlock(&name).try_write().await.err()
        } else {
            client.mutex(&name).try_lock().await.err()
        };
        assert_eq!(other.map(|error| error.kind()), Some(ErrorKind::WrongKind), "{fields:?}");
        let busy = if kind == Kind::Mutex {
            client.mutex(&name).try_lock().await.unwrap().is_none()
        } else {
            client.rwlock(&name).try_write().await.unwrap().is_none()
        };
        assert!(busy, "{fields:?}");
        assert_eq!(client.force_release(&name).await.unwrap().from.len(), found.holders.len());
        assert!(!eyes.exists::<_, bool>(&name).unwrap());
    }
}

/// A bare number cannot be told from Redisson's: the library uses it as Redisson does, but says that it is not certain, and lists none.
async fn a_number_without_a_mark_is_not_certain(flavour: Flavour) {
    let Some((_server, client, mut eyes)) = fresh(flavour, "bare numbers").await else { return };
    eyes.set::<_, _, ()>("visits", 41).unwrap();
    let found = client.inspect("visits").await.unwrap().unwrap();
    assert!(found.kind == Kind::CountingSemaphore && !found.certain && found.value == Some(41), "{found:?}");
    assert!(client.list("*").await.unwrap().is_empty());
    client.latch("gate").try_set(2).await.unwrap();
    let found = client.inspect("gate").await.unwrap().unwrap();
    assert!(found.kind == Kind::Latch && found.certain, "{found:?}");
    // Java counted it down: most likely it is still a latch.
    eyes.decr::<_, _, ()>("gate", 1).unwrap();
    let found = client.inspect("gate").await.unwrap().unwrap();
    assert!(found.kind == Kind::Latch && !found.certain, "{found:?}");
    client.counting_semaphore("jobs").release(3).await.unwrap();
    let listed: Vec<_> = client.list("*").await.unwrap().into_iter().map(|found| found.name.to_string()).collect();
    assert_eq!(listed, ["gate"]);
    // Permits that are out tell a semaphore of Java's.
    eyes.set::<_, _, ()>("pool", 1).unwrap();
    eyes.zadd::<_, _, _, ()>("{pool}:timeout", [7_u8; 16].as_slice(), 99_999_999_999_999_i64).unwrap();
    let found = client.inspect("pool").await.unwrap().unwrap();
    assert!(found.kind == Kind::Semaphore && found.certain && found.total == Some(2), "{found:?}");
    assert_eq!(client.counting_semaphore("pool").drain().await.unwrap_err().kind(), ErrorKind::WrongKind);
}

/// Java deletes a latch of ours and makes something else under its name; our mark of the latch is still there.
async fn a_mark_does_not_outlive_what_it_marked(flavour: Flavour) {
    let Some((_server, client, mut eyes)) = fresh(flavour, "old marks").await else { return };
    client.latch("name").try_set(3).await.unwrap();
    assert_eq!(client.counting_semaphore("name").available().await.unwrap_err().kind(), ErrorKind::WrongKind);
    eyes.del::<_, ()>("name").unwrap();
    eyes.set::<_, _, ()>("name", 10).unwrap();
    let jobs = client.counting_semaphore("name");
    assert_eq!(jobs.available().await.unwrap(), 10);
    assert!(jobs.try_acquire(4).await.unwrap());
    assert_eq!(client.latch("name").count().await.unwrap_err().kind(), ErrorKind::WrongKind);
    // The same of a semaphore, whose number changes while its size stays.
    let permit = client.semaphore("pool", 3).acquire().await.unwrap();
    permit.release().await.unwrap();
    assert_eq!(client.latch("pool").count().await.unwrap_err().kind(), ErrorKind::WrongKind);
    eyes.del::<_, ()>("pool").unwrap();
    eyes.set::<_, _, ()>("pool", 7).unwrap();
    assert_eq!(client.latch("pool").count_down().await.unwrap(), 6);
}

async fn reading_changes_nothing(flavour: Flavour) {
    let Some((_server, client, mut eyes)) = fresh(flavour, "reading").await else { return };
    client.counting_semaphore("jobs").release(3).await.unwrap();
    client.latch("gate").try_set(2).await.unwrap();
    client.semaphore("pool", 3).acquire().await.unwrap().release().await.unwrap();
    // A permit that ended, not taken back yet.
    eyes.set::<_, _, ()>("pool", 2).unwrap();
    eyes.zadd::<_, _, _, ()>("{pool}:timeout", [7_u8; 16].as_slice(), 1_000).unwrap();
    for mark in ["jobs", "gate", "pool"] {
        eyes.pexpire::<_, ()>(format!("lockkeeper:kind:{{{mark}}}"), 60_000).unwrap();
    }
    let keys: Vec<String> = eyes.keys("*").unwrap();
    let before: Vec<_> = keys.iter().map(|key| dump(&mut eyes, key)).collect();
    assert_eq!(client.counting_semaphore("jobs").available().await.unwrap(), 3);
    assert_eq!(client.latch("gate").count().await.unwrap(), 2);
    assert_eq!(client.semaphore("pool", 3).available().await.unwrap(), 3);
    for name in ["jobs", "gate", "pool"] {
        assert!(client.inspect(name).await.unwrap().is_some());
    }
    client.list("*").await.unwrap();
    let after: Vec<_> = keys.iter().map(|key| dump(&mut eyes, key)).collect();
    assert_eq!(after, before);
    for mark in ["jobs", "gate", "pool"] {
        let left: i64 = eyes.pttl(format!("lockkeeper:kind:{{{mark}}}")).unwrap();
        assert!(left <= 60_000, "looking made the mark of {mark} last {left} ms");
    }
}

/// `x` and `{x}` would have the same queues, marks and permits.
async fn one_word_in_braces_is_no_name(flavour: Flavour) {
    let Some((_server, client, mut eyes)) = fresh(flavour, "one word in braces").await else { return };
    for error in refusals(&client, "{x}").await {
        assert_eq!(error, Some(ErrorKind::InvalidName));
    }
    let keys: Vec<String> = eyes.keys("*").unwrap();
    assert!(keys.iter().all(|key| key.starts_with("lockkeeper:client:")), "{keys:?}");
    client.mutex("{x}:1").lock().await.unwrap().release().await.unwrap();
}

/// What lies where clients that wait are registered ends when its owner wants it to, and they are notified or poll.
async fn what_lies_where_waiters_register_is_left_alone(flavour: Flavour) {
    let Some((_server, client, mut eyes)) = fresh(flavour, "a foreign key where waiters register").await else { return };
    let waiting = |name: &str| format!("lockkeeper:waiting:{{{name}}}");
    tell(&mut eyes, &["SET", &waiting("lasts"), "theirs"]);
    tell(&mut eyes, &["SET", &waiting("ends"), "theirs", "PX", "4000"]);
    for name in ["lasts", "ends"] {
        let holder = client.mutex(name).lock().await.unwrap();
        let limit = Duration::from_millis(1_200);
        let other = Client::connect(client.url()).await.unwrap();
        let waits = other.mutex(name).lock().timeout(limit).await;
        assert_eq!(waits.unwrap_err().kind(), ErrorKind::Timeout, "it asked more than once");
        let next = tokio::spawn(other.mutex(name).lock().timeout(5 * limit).into_future());
        tokio::time::sleep(limit / 6).await;
        holder.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        let (kept, left): (Option<String>, i64) = (eyes.get(waiting(name)).unwrap(), eyes.pttl(waiting(name)).unwrap());
        match name {
            "lasts" => assert_eq!((kept.as_deref(), left), (Some("theirs"), -1)),
            _ => assert!(left <= 3_000, "it was to end sooner: {left} ms are left"),
        }
    }
}

macro_rules! on_each_server {
    ($($test:ident),* $(,)?) => {
        on_each_server!(on_redis Redis: $($test)*);
        on_each_server!(on_redis_6_2 Redis62: $($test)*);
        on_each_server!(on_valkey Valkey: $($test)*);
        on_each_server!(on_redis_8 Redis8: $($test)*);
    };
    ($server:ident $flavour:ident: $($test:ident)*) => {
        mod $server {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(crate::server::Flavour::$flavour).await;
                }
            )*
        }
    };
}

on_each_server!(
    what_an_application_keeps_is_neither_locked_nor_changed,
    what_redisson_writes_is_a_lock,
    a_number_without_a_mark_is_not_certain,
    a_mark_does_not_outlive_what_it_marked,
    reading_changes_nothing,
    one_word_in_braces_is_no_name,
    what_lies_where_waiters_register_is_left_alone,
);
