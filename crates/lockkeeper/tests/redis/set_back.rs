//! The server's clock is set back by an hour: renewals bring the ends of holds back, so that a crash blocks for a lease and not for an hour, and
//! cut nothing that was promised.

use std::time::{Duration, Instant};

use lockkeeper::backend::{Attempt, Backend as _, Claim};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use lockkeeper::{Client, MultiLock};
use redis::Commands;
use tokio::time::timeout;

use crate::clock::WallClock;
use crate::dead_waiters::fair_request;
use crate::flaw::Flaw;
use crate::proxy::Fault;
use crate::server::{Flavour, Server};
use crate::site::{Site, ms, scripts_run, until};

const LEASE: Duration = ms(3_000);

/// What a hold may last beyond its lease after a step: what smaller steps are left at.
const MARGIN: u64 = 60_000;

const HOUR: i64 = 3_600;

/// A site whose server has a clock that can be set. `None`: skipped, and said so.
pub(crate) async fn under_a_clock(test: &str, flavour: Flavour, flaw: Option<Flaw>) -> Option<(Site, WallClock)> {
    if let Some(why) = Server::missing(flavour) {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let clock = WallClock::new(test)?;
    let server = Server::start_in(clock.environment(), flavour, &[]);
    Some((Site::before(server, flaw).await, clock))
}

/// How long the server keeps each hold: a mutex, a fair one, a reader, its hash, a writer and a permit.
fn left(site: &Site) -> Vec<(&'static str, u64)> {
    let mut eyes = site.eyes();
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut eyes).unwrap();
    let reader: Vec<String> = eyes.keys("{r}:*:rwlock_timeout:1").unwrap();
    let scores: Vec<(Vec<u8>, f64)> = eyes.zrange_withscores("{s}:timeout", 0, -1).unwrap();
    let permit = (scores[0].1 as u64).saturating_sub(seconds * 1_000 + micros / 1_000);
    let mut of = |key: &str| u64::try_from(eyes.pttl::<_, i64>(key).unwrap()).expect("it is held");
    vec![("m", of("m")), ("f", of("f")), ("reader", of(&reader[0])), ("r", of("r")), ("w", of("w")), ("s", permit)]
}

/// P5 after a clock step, for every kind of hold.
pub(crate) async fn a_crash_after_a_clock_step_blocks_for_a_lease(site: &Site, clock: &WallClock) {
    let client = site.client(Client::builder().lease(LEASE)).await;
    let (mutex, fair) = (client.mutex("m").lock().await.unwrap(), client.fair_mutex("f").lock().await.unwrap());
    let (reader, writer) = (client.rwlock("r").read().await.unwrap(), client.rwlock("w").write().await.unwrap());
    let permit = client.semaphore("s", 1).acquire().await.unwrap();
    clock.set(-HOUR);
    assert!(left(site).iter().all(|(_, left)| *left > 3_000_000), "the clock was not set: nothing was tested");
    let began = Instant::now();
    // Two renewals: the first is told, the second brings it back.
    while left(site).iter().any(|(_, left)| *left > MARGIN + 3_000) {
        assert!(began.elapsed() < LEASE * 4, "still kept for long: {:?}", left(site));
        tokio::time::sleep(ms(50)).await;
    }
    // They are renewed as before.
    tokio::time::sleep(LEASE * 2).await;
    assert!(mutex.is_valid() && fair.is_valid() && reader.is_valid() && writer.is_valid() && permit.is_valid());
    assert!(left(site).iter().all(|(_, left)| *left <= 3_005), "{:?}", left(site));
    // As if it had crashed.
    site.proxy.fall_silent(true);
    let (other, began) = (site.other().await, Instant::now());
    let patience = LEASE * 3;
    other.mutex("m").lock().timeout(patience).await.expect("free").release().await.unwrap();
    other.fair_mutex("f").lock().timeout(patience).await.expect("free").release().await.unwrap();
    other.rwlock("r").write().timeout(patience).await.expect("free").release().await.unwrap();
    other.rwlock("w").read().timeout(patience).await.expect("free").release().await.unwrap();
    other.semaphore("s", 1).acquire().timeout(patience).await.expect("free").release().await.unwrap();
    assert!(began.elapsed() < LEASE * 3, "after {:?}", began.elapsed());
    site.proxy.fall_silent(false);
}

/// Not on Valkey: the server that we have is linked statically, so its clock cannot be set.
macro_rules! on {
    ($($name:ident: $flavour:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let Some((site, clock)) = under_a_clock("clock set back", Flavour::$flavour, None).await else { return };
                a_crash_after_a_clock_step_blocks_for_a_lease(&site, &clock).await;
            }
        )*
    };
}

on! {
    a_crash_after_a_clock_step_blocks_for_a_lease_on_redis_7: Redis;
    a_crash_after_a_clock_step_blocks_for_a_lease_on_redis_6_2: Redis62;
    a_crash_after_a_clock_step_blocks_for_a_lease_on_redis_8: Redis8;
}

/// What an extension promised is more than the lease of the renewals that follow it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_after_a_clock_step_keeps_what_an_extension_promised() {
    let Some((site, clock)) = under_a_clock("extension and clock step", Flavour::Redis, None).await else { return };
    let client = site.client(Client::builder().lease(LEASE)).await;
    let guard = client.mutex("m").lock().await.unwrap();
    let promised = Instant::now() + Duration::from_secs(600);
    guard.extend(Duration::from_secs(600)).await.unwrap();
    clock.set(-HOUR);
    let left = || Duration::from_millis(site.eyes().pttl::<_, u64>("m").unwrap());
    assert!(left() > Duration::from_secs(3_000), "the clock was not set: nothing was tested");
    until("the end comes back", || left() < Duration::from_secs(700)).await;
    assert!(left() + ms(50) > promised.saturating_duration_since(Instant::now()), "{:?} are left", left());
    tokio::time::sleep(LEASE).await;
    assert!(left() + ms(50) > promised.saturating_duration_since(Instant::now()), "{:?} are left", left());
    guard.release().await.unwrap();
}

/// A renewal that may shorten is held up. What is extended meanwhile stays extended when it arrives; without an extension it shortens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_renewal_cuts_no_extension() {
    for extended in [true, false] {
        let Some((site, clock)) = under_a_clock("late renewal", Flavour::Redis, None).await else { return };
        let client = site.client(Client::builder().lease(LEASE)).await;
        let guard = client.mutex("m").lock().await.unwrap();
        clock.set(-HOUR);
        let (end, mut eyes) = (redis::cmd("PEXPIRETIME").arg("m").query::<u64>(&mut site.eyes()).unwrap(), site.eyes());
        site.proxy.next(format!(" {end}"), Fault::Hold);
        until("a renewal names the end", || site.proxy.met()).await;
        if extended {
            guard.extend(Duration::from_secs(600)).await.unwrap();
            let left: u64 = eyes.pttl("m").unwrap();
            assert!((595_000..=600_000).contains(&left), "an extension brings the end back: {left} ms are left");
        }
        let before = scripts_run(&mut eyes);
        site.proxy.let_go();
        until("the late renewal has arrived", || scripts_run(&mut eyes) > before).await;
        let left: u64 = eyes.pttl("m").unwrap();
        if extended {
            assert!(left > 590_000, "an extension was cut to {left} ms");
            assert!(timeout(LEASE, guard.lost()).await.is_err(), "the hold was lost");
            assert!(eyes.pttl::<_, u64>("m").unwrap() > 585_000);
        } else {
            assert!(left <= 3_000, "it would not have cut anything: nothing was tested ({left} ms)");
        }
    }
}

/// A mutex by majority: each server's end comes back by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn votes_come_back_after_a_clock_step() {
    if let Some(why) = Server::missing(Flavour::Redis) {
        return lockkeeper::conformance::skip("votes and clock step", &why);
    }
    let Some(clock) = WallClock::new("votes and clock step") else { return };
    let servers: Vec<Server> = (0..3).map(|_| Server::start_in(clock.environment(), Flavour::Redis, &[])).collect();
    let urls: Vec<String> = servers.iter().map(|server| server.url(0)).collect();
    let client = Client::builder().lease(LEASE).connect(&format!("redlock:{},admit=new", urls.join(","))).await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    clock.set(-HOUR);
    let ends = || -> Vec<i64> {
        servers.iter().map(|server| crate::site::plain_connection(&server.url(0)).pttl("m").unwrap()).collect()
    };
    assert!(ends().iter().filter(|left| **left > 3_000_000).count() >= 2, "the clock was not set: nothing was tested");
    until("all ends come back", || ends().iter().all(|left| (1..=3_000).contains(left))).await;
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

/// How many ms the place of the only fair waiter of `name` has left.
fn place_left(site: &Site, name: &str) -> i64 {
    let mut eyes = site.eyes();
    let (seconds, _): (i64, i64) = redis::cmd("TIME").query(&mut eyes).unwrap();
    let places: Vec<(String, f64)> = eyes.zrange_withscores(format!("lockkeeper:fair:{{{name}}}"), 0, -1).unwrap();
    assert_eq!(places.len(), 1, "{places:?}");
    places[0].1 as i64 - seconds * 1_000
}

/// Fair waiters and a writer asked once and died, and then the clock was set back: those who come next wait for as long as the dead keep their
/// places, and not for an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_died_before_a_clock_step_block_nobody_for_long() {
    let Some((site, clock)) = under_a_clock("dead waiters and clock step", Flavour::Redis, None).await else { return };
    let client = site.client(Client::builder()).await;
    let (first, second) = (client.fair_mutex("f").lock().await.unwrap(), client.fair_mutex("g").lock().await.unwrap());
    let reader = client.rwlock("r").read().await.unwrap();
    let store = RedisStore::connect(Config::parse(&site.server.url(0)).unwrap(), &Runtime::system()).await.unwrap();
    for (name, claim) in [("f", Claim::Fair), ("g", Claim::Fair), ("r", Claim::Write)] {
        let mut waiter = fair_request(name, 1, Duration::from_secs(5));
        waiter.claim = claim;
        assert!(matches!(store.acquire(waiter).await.unwrap(), Attempt::Busy(_)), "{name}");
    }
    clock.set(-HOUR);
    assert!(
        place_left(&site, "f") > 3_000_000 && place_left(&site, "g") > 3_000_000,
        "the clock was not set: nothing was tested"
    );
    first.release().await.unwrap();
    second.release().await.unwrap();
    let (mutex, several, rwlock) = (client.fair_mutex("f"), client.fair_mutex("g"), client.rwlock("r"));
    let several = MultiLock::new().and(several.lock()).and(client.mutex("m").lock());
    let (began, patience) = (Instant::now(), Duration::from_secs(30));
    let (one, all, read) =
        tokio::join!(mutex.lock().timeout(patience), several.lock().timeout(patience), rwlock.read().timeout(patience));
    one.expect("the dead one does not block a fair mutex").release().await.unwrap();
    all.expect("the dead one does not block several locks").release().await.unwrap();
    read.expect("the dead one does not block readers").release().await.unwrap();
    eprintln!("all are served after {:?}", began.elapsed());
    reader.release().await.unwrap();
}

/// Who lives keeps the place from before the step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn living_fair_waiters_keep_their_order_over_a_clock_step() {
    let Some((site, clock)) = under_a_clock("living waiters and clock step", Flavour::Redis, None).await else { return };
    let client = site.client(Client::builder().lease(LEASE)).await;
    let holder = client.fair_mutex("f").lock().await.unwrap();
    let served = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..3 {
        let (other, served) = (site.other().await, std::sync::Arc::clone(&served));
        waiters.push(tokio::spawn(async move {
            let guard = other.fair_mutex("f").lock().await.unwrap();
            served.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        until("it waits", || site.eyes().llen::<_, usize>("redisson_lock_queue:{f}").unwrap() == number + 1).await;
        if number == 1 {
            clock.set(-HOUR);
        }
    }
    // Longer than a place that was brought back.
    tokio::time::sleep(ms(6_000)).await;
    holder.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [0, 1, 2]);
}
