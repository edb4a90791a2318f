//! Servers that forget, restart, stall or cut connections: holders are told, waiters go on, nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockkeeper::backend::LossReason;
use lockkeeper::{Client, ErrorKind};
use redis::{Commands, Connection};

use crate::proxy::Door;
use crate::server::{Flavour, Server};
use crate::site::{Site, holders, ms, plain_connection, until};

const LEASE: Duration = Duration::from_millis(900);

/// A server of the test's own, a client with a short lease, and a plain connection. `None`: skipped, and said so.
async fn own(test: &str) -> Option<(Server, Client, Connection)> {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let server = Server::start(Flavour::Redis);
    let client = Client::builder().lease(LEASE).connect(server.url(0)).await.unwrap();
    let eyes = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
    Some((server, client, eyes))
}

/// P4: told within a third of the lease and a round trip; the bound leaves room for a busy machine.
pub(crate) async fn what_the_server_forgot_is_told_to_its_holders(site: &Site) {
    let client = site.client(Client::builder().lease(LEASE)).await;
    for forget in ["FLUSHALL", "DEL m r s {s}:timeout"] {
        let (mutex, reader) = (client.mutex("m").lock().await.unwrap(), client.rwlock("r").read().await.unwrap());
        let permit = client.semaphore("s", 1).acquire().await.unwrap();
        site.tell(forget);
        let began = Instant::now();
        for guard in [&*mutex, &*reader, &*permit] {
            let told = tokio::time::timeout(LEASE * 3, guard.lost()).await;
            assert_eq!(told.ok(), Some(LossReason::Gone), "{forget}: nobody was told");
            assert!(!guard.is_valid());
        }
        assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
        assert_eq!(mutex.release().await.unwrap_err().kind(), ErrorKind::Lost);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_or_a_deleted_key_is_told_to_every_holder_at_its_next_renewal() {
    let Some(site) = Site::sound("flush").await else { return };
    what_the_server_forgot_is_told_to_its_holders(&site).await;
}

/// P2: across whatever makes a server forget what it gave out.
pub(crate) async fn tokens_grow_although_the_server_forgot(site: &Site) {
    let client = site.client(Client::builder()).await;
    let mut last = 0;
    for forget in ["PING", "FLUSHALL", "DEL lockkeeper:token", "SCRIPT FLUSH"] {
        site.tell(forget);
        for _ in 0..2 {
            let guard = client.mutex("m").lock().await.unwrap();
            assert!(
                guard.token().unwrap().number() > last,
                "{forget}: a token went back from {last} to {}",
                guard.token().unwrap()
            );
            last = guard.token().unwrap().number();
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_across_a_flush_and_a_lost_counter() {
    let Some(site) = Site::sound("tokens").await else { return };
    tokens_grow_although_the_server_forgot(&site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_empty_tells_the_holder_and_serves_again() {
    let Some((mut server, client, _eyes)) = own("restart").await else { return };
    let guard = client.mutex("m").lock().await.unwrap();
    let before = guard.token().unwrap().number();
    server.restart(|_| {});
    let reason = tokio::time::timeout(LEASE * 3, guard.lost()).await.unwrap();
    assert!(matches!(reason, LossReason::Gone | LossReason::Expired), "{reason:?}");
    let again = client.mutex("m").lock().timeout(Duration::from_secs(10)).await.unwrap();
    assert!(again.token().unwrap().number() > before);
    again.release().await.unwrap();
}

/// A server that stalls may carry out later what was given up: it is refused as late, or undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_server_costs_the_wait_limit_and_keeps_nothing() {
    let Some((server, client, mut eyes)) = own("stall").await else { return };
    client.mutex("warm").lock().await.unwrap().release().await.unwrap();
    for stall in ["CLIENT PAUSE 1500 ALL", "CLIENT PAUSE 1500 WRITE", "DEBUG SLEEP 1.5"] {
        let mut words = stall.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            command.arg(word);
        });
        // Both connections stand before the stall: one that is opened during it would see only its end.
        let mut probe = redis::Client::open(server.url(1)).unwrap().get_connection().unwrap();
        probe.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut stalled = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
        let stalling = std::thread::spawn(move || command.exec(&mut stalled));
        // Until the server has fallen silent there is nothing to test.
        let began = Instant::now();
        while probe.set::<_, _, ()>("probe", 1).is_ok() {
            assert!(began.elapsed() < Duration::from_secs(10), "{stall}: the server never fell silent");
            tokio::task::yield_now().await;
        }
        let began = Instant::now();
        let error = client.mutex("m").lock().timeout(Duration::from_millis(200)).await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(1), "{stall}: told after {:?}", began.elapsed());
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{stall}: {error:?}");
        stalling.join().unwrap().unwrap();
        let guard = client.mutex("m").lock().timeout(Duration::from_secs(10)).await.unwrap();
        guard.release().await.unwrap();
        let began = Instant::now();
        while eyes.exists::<_, bool>("m").unwrap() {
            assert!(began.elapsed() < LEASE * 3, "{stall}: somebody who gave up holds it");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_does_not_end_is_borne() {
    let Some((server, client, mut eyes)) = own("busy").await else { return };
    redis::cmd("CONFIG").arg("SET").arg("busy-reply-threshold").arg(50).exec(&mut eyes).unwrap();
    client.mutex("warm").lock().await.unwrap().release().await.unwrap();
    let held = client.mutex("held").lock().await.unwrap();
    let endless = redis::Client::open(server.url(0)).unwrap();
    let running = std::thread::spawn(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut endless.get_connection().unwrap())
    });
    let waiting = tokio::spawn({
        let mutex = client.mutex("m");
        async move { mutex.lock().timeout(Duration::from_secs(10)).await }
    });
    // Longer than a renewal may wait: the lease is kept by one that passes later.
    tokio::time::sleep(LEASE / 2).await;
    // Refused until the script is known to run too long.
    let began = Instant::now();
    while redis::cmd("SCRIPT").arg("KILL").exec(&mut eyes).is_err() {
        assert!(began.elapsed() < Duration::from_secs(10), "the script cannot be killed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(running.join().unwrap().is_err());
    tokio::time::sleep(LEASE).await;
    assert!(held.is_valid(), "a lease that outlasted the trouble was lost");
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// Connections are cut all the time while eight tasks count under a lock: no increment is lost, nobody hangs, nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_resets_loses_no_update() {
    let Some((server, client, mut eyes)) = own("resets").await else { return };
    let (counter, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let cuts = Arc::new(AtomicU64::new(0));
    let nemesis = std::thread::spawn({
        let (over, cuts, url) = (Arc::clone(&over), Arc::clone(&cuts), server.url(0));
        move || {
            let mut knife = redis::Client::open(url).unwrap().get_connection().unwrap();
            while !over.load(Ordering::SeqCst) {
                for kind in ["normal", "pubsub"] {
                    let mut kill = redis::cmd("CLIENT");
                    kill.arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes");
                    cuts.fetch_add(kill.query(&mut knife).unwrap(), Ordering::SeqCst);
                }
                std::thread::sleep(Duration::from_millis(25));
            }
        }
    });
    let other = loop {
        // Connecting is not spared either.
        if let Ok(other) = Client::builder().lease(LEASE).connect(server.url(0)).await {
            break other;
        }
    };
    let workers: Vec<_> = (0..8)
        .map(|worker| {
            let client = if worker % 2 == 0 { client.clone() } else { other.clone() };
            let (counter, cuts) = (Arc::clone(&counter), Arc::clone(&cuts));
            tokio::spawn(async move {
                let (mut turns, mut counted) = (0, 0);
                // The number of cuts says when it is enough: a fast client takes its turns between two of them.
                while turns < 25 || cuts.load(Ordering::SeqCst) < 100 {
                    turns += 1;
                    let Ok(guard) = client.mutex("m").lock().timeout(Duration::from_secs(20)).await else { continue };
                    let read = counter.load(Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    // As an honest user without a fence does: look before the write.
                    if guard.is_valid() {
                        counter.store(read + 1, Ordering::SeqCst);
                        counted += 1;
                    }
                    let _ = guard.release().await;
                }
                (turns, counted)
            })
        })
        .collect();
    let (mut turns, mut counted) = (0, 0);
    for worker in workers {
        let (tried, had) = tokio::time::timeout(Duration::from_secs(90), worker).await.expect("a worker hangs").unwrap();
        turns += tried;
        counted += had;
    }
    over.store(true, Ordering::SeqCst);
    nemesis.join().unwrap();
    assert_eq!(counter.load(Ordering::SeqCst), counted);
    assert!(counted * 2 >= turns, "only {counted} of {turns} got their turn");
    let mut eyes_again = move || {
        eyes.exists::<_, bool>("m").or_else(|_| {
            eyes = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
            eyes.exists::<_, bool>("m")
        })
    };
    let began = Instant::now();
    while eyes_again().unwrap() {
        assert!(began.elapsed() < LEASE * 4, "left behind");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// While the door is shut, many who want in knock as one, ever less often; then they come in. A hold whose lease allows it is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_is_not_stormed_by_those_who_want_to_connect() {
    let Some(site) = Site::sound("refused connections").await else { return };
    let client = site.client(Client::builder().lease(Duration::from_secs(20))).await;
    let guard = client.mutex("held").lock().await.unwrap();
    site.proxy.set_door(Door::Resets);
    site.proxy.reset_present_connections();
    let before = site.proxy.connections();
    let waiting: Vec<_> = (0..40)
        .map(|number| {
            let mutex = client.mutex(format!("m{number}"));
            tokio::spawn(async move { mutex.lock().timeout(Duration::from_secs(20)).await })
        })
        .collect();
    tokio::time::sleep(ms(4_000)).await;
    let knocks = site.proxy.connections() - before;
    // Two connections; each knocks eight times in its first second and at least half a second apart from then on.
    assert!((4..=40).contains(&knocks), "{knocks} attempts to connect in 4 s");
    // As good as a reset, and quicker told.
    site.proxy.set_door(Door::Closed);
    tokio::time::sleep(ms(300)).await;
    site.proxy.set_door(Door::Open);
    for waiter in waiting {
        waiter.await.unwrap().expect("in, once the door is open").release().await.unwrap();
    }
    assert!(guard.is_valid(), "its lease outlasted the trouble");
    guard.release().await.expect("never lost");
}

/// A server that is stopped accepts connections and answers nothing: every request is bounded by a quarter of the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_bounds_every_request_by_a_quarter_of_the_lease() {
    let Some(site) = Site::sound("stopped server").await else { return };
    let client = site.client(Client::builder().command_timeout(Duration::from_secs(30))).await;
    let lease = Duration::from_secs(4);
    let guard = client.mutex("m").lock().lease(lease).await.unwrap();
    site.server.freeze();
    let began = Instant::now();
    let error = guard.extend(lease).await.unwrap_err();
    let took = began.elapsed();
    site.server.thaw();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!((lease / 4 - ms(10)..lease / 2).contains(&took), "took {took:?}");
    assert!(guard.is_valid(), "unknown is not lost");
    guard.release().await.expect("the server is back");
}

/// Scripts are forgotten all the time while eight tasks count under a lock and in the store: each counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_flushed_under_load_have_no_double_effect() {
    let Some((server, client, mut eyes)) = own("script flush").await else { return };
    let over = Arc::new(AtomicBool::new(false));
    let nemesis = std::thread::spawn({
        let (over, mut knife) = (Arc::clone(&over), plain_connection(&server.url(0)));
        move || {
            while !over.load(Ordering::SeqCst) {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut knife).unwrap();
                std::thread::sleep(ms(1));
            }
        }
    });
    let counter = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (client, counter) = (client.clone(), Arc::clone(&counter));
            tokio::spawn(async move {
                for _ in 0..40 {
                    let guard = client.mutex("m").lock().await.unwrap();
                    let read = counter.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counter.store(read + 1, Ordering::SeqCst);
                    client.counting_semaphore("c").release(1).await.unwrap();
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    over.store(true, Ordering::SeqCst);
    nemesis.join().unwrap();
    assert_eq!((counter.load(Ordering::SeqCst), eyes.get::<_, u64>("c").unwrap()), (320, 320));
    let errors: String = redis::cmd("INFO").arg("errorstats").query(&mut eyes).unwrap();
    assert!(errors.contains("errorstat_NOSCRIPT"), "no script was ever missing: nothing was tested");
    assert!(!eyes.exists::<_, bool>("m").unwrap());
}

const PERSISTENT: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Killed, and back with what it had written down: the hold goes on as if nothing had been.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_that_kept_a_log_comes_back_with_its_locks() {
    let Some(mut site) = Site::on("restart with a log", &PERSISTENT, None).await else { return };
    let client = site.client(Client::builder().lease(ms(3_000))).await;
    let guard = client.mutex("m").lock().await.unwrap();
    site.server.restart(|_| {});
    assert_eq!(holders(&mut site.eyes(), "m"), [(guard.owner().to_string(), 1)]);
    tokio::time::sleep(ms(3_500)).await;
    assert!(guard.is_valid(), "renewed at the new server");
    guard.release().await.expect("never lost");
}

/// Killed, and the end of its log is lost: it is as if the grant had never been, and the holder is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_lost_its_tail_tells_the_holder_and_tokens_still_grow() {
    let Some(mut site) = Site::on("lost tail", &PERSISTENT, None).await else { return };
    let client = site.client(Client::builder().lease(ms(3_000))).await;
    let guard = client.mutex("m").lock().await.unwrap();
    until("who we are is written, too", || !site.eyes().keys::<_, Vec<String>>("lockkeeper:client:*").unwrap().is_empty()).await;
    site.server.restart(|directory| {
        let log = newest_log(directory);
        let text = std::fs::read(&log).unwrap();
        // Everything from the grant on: its key is written there for the first time.
        let key = b"$1\r\nm\r\n";
        let at = text.windows(key.len()).position(|part| part == key).expect("the grant is in the log");
        std::fs::File::options().write(true).open(&log).unwrap().set_len(at as u64).unwrap();
    });
    assert!(holders(&mut site.eyes(), "m").is_empty(), "the tail was not lost: nothing was tested");
    let reason = tokio::time::timeout(ms(9_000), guard.lost()).await.expect("told");
    assert!(matches!(reason, LossReason::Gone | LossReason::Expired), "{reason:?}");
    let next = client.mutex("m").lock().timeout(ms(5_000)).await.unwrap();
    assert!(next.token().unwrap().number() > guard.token().unwrap().number());
    next.release().await.unwrap();
}

/// The part of the log that the server writes to.
fn newest_log(directory: &std::path::Path) -> std::path::PathBuf {
    let inside = std::fs::read_dir(directory.join("appendonlydir")).unwrap();
    let mut parts = inside.map(|entry| entry.unwrap().path()).filter(|path| path.to_string_lossy().contains(".incr."));
    parts.next().expect("a log")
}

/// All data is written out and read in again; leases stay as they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_of_all_data_keeps_leases() {
    let Some((_server, client, mut eyes)) = own("reload").await else { return };
    let guard = client.mutex("m").lock().await.unwrap();
    let reader = client.rwlock("r").read().await.unwrap();
    redis::cmd("DEBUG").arg("RELOAD").exec(&mut eyes).unwrap();
    let left: i64 = eyes.pttl("m").unwrap();
    assert!((1..=LEASE.as_millis() as i64).contains(&left), "{left}");
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_valid() && reader.is_valid(), "renewed as ever");
    guard.release().await.unwrap();
    reader.release().await.unwrap();
}
