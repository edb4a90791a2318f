//! What a cluster's slots mean to those who lock: several names at once, how waiters are woken, servers of before 7.0, and a slot that is on its way for long.

use std::time::{Duration, Instant};

use lockkeeper::{Client, Error, ErrorKind};

use crate::harness::{calls, eyes, ms, skipped, tell, until};
use crate::server::Flavour;
use lockkeeper_testkit::cluster::Cluster;

pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) async fn started(flavour: Flavour, test: &str, options: &str) -> Option<(Cluster, Client)> {
    if skipped(test, flavour) {
        return None;
    }
    let cluster = tokio::task::spawn_blocking(move || Cluster::start(flavour)).await.unwrap();
    // Longer than any of these tests: what they see is not the end of a lease.
    let client = Client::builder().lease(LONG * 6).connect(format!("{}{options}", cluster.url())).await.unwrap();
    Some((cluster, client))
}

/// How many scripts all servers ran.
fn scripts(cluster: &Cluster) -> u64 {
    cluster.servers.iter().map(|server| calls(server.port, "evalsha") + calls(server.port, "eval")).sum()
}

fn is_free(cluster: &Cluster, names: &[String]) -> bool {
    let keys = |server: &crate::server::Server| tell::<Vec<String>>(&mut eyes(server.port), "KEYS *").unwrap();
    let there: Vec<String> = cluster.servers.iter().flat_map(keys).collect();
    names.iter().all(|name| !there.contains(name))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_one_slot_are_taken_in_one_round_trip() {
    let Some((cluster, client)) = started(Flavour::Redis, "names of one slot", "").await else { return };
    let inside: Vec<String> = (0..1_000).map(|number| format!("{{orders}}:{number}")).collect();
    client.mutex("{orders}:0").lock().await.unwrap().release().await.unwrap();
    let before = scripts(&cluster);
    let guard = client.multi_lock(&inside).lock().timeout(LONG).await.unwrap();
    assert_eq!(scripts(&cluster) - before, 1, "more than one request");
    assert_eq!(guard.tokens().count(), 1_000);
    guard.release().await.unwrap();
    // The control: of as many slots as names, so many requests, which this test sees.
    let apart = ["a", "b", "c"].map(str::to_owned);
    let before = scripts(&cluster);
    let guard = client.multi_lock(&apart).lock().timeout(LONG).await.unwrap();
    assert_eq!(scripts(&cluster) - before, 3);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_several_slots_are_all_taken_or_none() {
    let Some((cluster, client)) = started(Flavour::Redis, "names of several slots", "").await else { return };
    let other = Client::connect(cluster.url()).await.unwrap();
    let names: Vec<String> = ["{a}1", "{a}2", "{b}1", "{b}2", "{c}1", "{c}2"].map(str::to_owned).into();
    for busy in &names {
        let held = other.mutex(busy).lock().timeout(LONG).await.unwrap();
        assert!(client.multi_lock(&names).try_lock().await.unwrap().is_none(), "{busy} was somebody else's");
        let rest: Vec<String> = names.iter().filter(|name| *name != busy).cloned().collect();
        until("the others were given back", || is_free(&cluster, &rest));
        // Whoever waits for all keeps nothing meanwhile, and gets all.
        let all = client.multi_lock(&names);
        let waiter = tokio::spawn(async move { all.lock().timeout(LONG).await });
        tokio::time::sleep(ms(50)).await;
        for name in &rest {
            other.mutex(name).lock().timeout(LONG).await.expect("nobody holds it for long").release().await.unwrap();
        }
        held.release().await.unwrap();
        let guard = tokio::time::timeout(LONG * 2, waiter).await.expect("nobody hangs").unwrap().unwrap();
        assert!(names.iter().all(|name| !is_free(&cluster, std::slice::from_ref(name))));
        guard.release().await.unwrap();
        until("all were given back", || is_free(&cluster, &names));
    }
}

/// Two that want the same names of several slots, and one that wants some of them in another order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_across_slots_do_not_lock_each_other_out() {
    let Some((cluster, ours)) = started(Flavour::Redis, "opposite orders", "").await else { return };
    let theirs = Client::connect(cluster.url()).await.unwrap();
    let holders = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let tasks: Vec<_> =
        [(&ours, ["{a}1", "{b}1", "{c}1"]), (&theirs, ["{c}1", "{b}1", "{a}1"]), (&theirs, ["{b}1", "{c}1", "{b}2"])]
            .into_iter()
            .map(|(client, names)| {
                let (all, holders) = (client.multi_lock(names), std::sync::Arc::clone(&holders));
                tokio::spawn(async move {
                    for _ in 0..100 {
                        let guard = all.lock().timeout(LONG).await.unwrap();
                        assert_eq!(holders.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two hold b");
                        tokio::task::yield_now().await;
                        holders.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
    for task in tasks {
        tokio::time::timeout(LONG * 5, task).await.expect("nobody hangs").unwrap();
    }
}

/// Somebody waits until another releases; how the server was asked to wake them is counted.
async fn published(cluster: &Cluster, client: &Client, options: &str) -> [u64; 2] {
    let count = |command| cluster.servers.iter().map(|server| calls(server.port, command)).sum::<u64>();
    let before = ["publish", "spublish"].map(count);
    let mutex = client.mutex("waited");
    let held = mutex.lock().timeout(LONG).await.unwrap();
    let other = Client::connect(format!("{}{options}", cluster.url())).await.unwrap();
    let waiter = tokio::spawn(async move { other.mutex("waited").lock().timeout(LONG).await.map(|guard| (guard, other)) });
    tokio::time::sleep(ms(300)).await;
    held.release().await.unwrap();
    let (guard, _other) = waiter.await.unwrap().unwrap();
    guard.release().await.unwrap();
    let after = ["publish", "spublish"].map(count);
    [after[0] - before[0], after[1] - before[1]]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_leave_their_slot_where_that_is_chosen() {
    let Some((cluster, client)) = started(Flavour::Redis, "sharded=off", "?sharded=off").await else { return };
    let [everywhere, in_the_slot] = published(&cluster, &client, "?sharded=off").await;
    assert!(everywhere > 0 && in_the_slot == 0, "{everywhere} everywhere, {in_the_slot} in the slot");
    // The control: left to the servers, messages stay in their slot.
    let client = Client::connect(cluster.url()).await.unwrap();
    let [everywhere, in_the_slot] = published(&cluster, &client, "").await;
    assert!(everywhere == 0 && in_the_slot > 0, "{everywhere} everywhere, {in_the_slot} in the slot");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_before_7_serves_and_wakes() {
    let Some((cluster, client)) = started(Flavour::Redis62, "a cluster of 6.2", "").await else { return };
    let [everywhere, _] = published(&cluster, &client, "").await;
    assert!(everywhere > 0, "nobody was told");
    let guard = client.multi_lock(["a", "b", "c", "{a}1", "{a}2"]).lock().timeout(LONG).await.unwrap();
    guard.release().await.unwrap();
    let write = client.rwlock("{b}rw").write().timeout(LONG).await.unwrap();
    assert!(client.rwlock("{b}rw").try_read().await.unwrap().is_none());
    write.release().await.unwrap();
}

/// A slot that an operator moves, and stops half-way.
pub(crate) struct Moving<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) slot: u16,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Moving<'_> {
    fn id(&self, at: usize) -> String {
        tell(&mut eyes(self.cluster.servers[at].port), "CLUSTER MYID").unwrap()
    }

    pub(crate) fn begin(&self) {
        let set = |at: usize, what: String| {
            tell::<()>(&mut eyes(self.cluster.servers[at].port), &format!("CLUSTER SETSLOT {} {what}", self.slot)).unwrap();
        };
        set(self.to, format!("IMPORTING {}", self.id(self.from)));
        set(self.from, format!("MIGRATING {}", self.id(self.to)));
    }

    /// Moves those keys that are wanted.
    pub(crate) fn carry(&self, wanted: impl Fn(usize, &str) -> bool) {
        let mut source = eyes(self.cluster.servers[self.from].port);
        let mut keys: Vec<String> = tell(&mut source, &format!("CLUSTER GETKEYSINSLOT {} 1000", self.slot)).unwrap();
        keys.sort();
        let keys: Vec<&String> = keys.iter().enumerate().filter(|(at, key)| wanted(*at, key)).map(|(_, key)| key).collect();
        if keys.is_empty() {
            return;
        }
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.cluster.servers[self.to].port).arg("").arg(0).arg(5_000).arg("KEYS").arg(&keys);
        migrate.exec(&mut source).unwrap_or_else(|error| panic!("the operator cannot move {keys:?}: {error}"));
    }

    pub(crate) fn end(&self) {
        let source = self.cluster.servers[self.from].port;
        until("the slot is empty", || {
            self.carry(|_, _| true);
            tell::<i64>(&mut eyes(source), &format!("CLUSTER COUNTKEYSINSLOT {}", self.slot)).unwrap() == 0
        });
        for server in [self.to, self.from] {
            let told = format!("CLUSTER SETSLOT {} NODE {}", self.slot, self.id(self.to));
            tell::<()>(&mut eyes(self.cluster.servers[server].port), &told).unwrap();
        }
    }
}

/// Either it was served, or told in time in a way that says that it may pass.
fn passing<T>(what: &str, began: Instant, answer: Result<T, Error>) -> Option<T> {
    assert!(began.elapsed() < Duration::from_secs(8), "{what} took {:?}", began.elapsed());
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate, ErrorKind::Timeout];
            assert!(kinds.contains(&error.kind()), "{what}: {error:?}");
            println!("{what}: {:?} after {:?}", error.kind(), began.elapsed());
            None
        }
    }
}

/// Every kind, while half of a slot's keys are here and half are there, and stay so: nobody is let in beside a holder, nothing is counted twice, every call
/// ends, and all is well when the slot has arrived. `odd` are the keys that have moved.
async fn a_slot_is_half_moved(odd: bool) {
    let Some((cluster, client)) = started(Flavour::Redis, "a slot on its way", "").await else { return };
    let other = Client::builder().lease(LONG).connect(cluster.url()).await.unwrap();
    let brief = Client::builder().lease(ms(3_000)).connect(cluster.url()).await.unwrap();
    let wait = ms(1_000);
    let at = |what: &str| format!("{{bar}}:{what}");
    // Held by one client; the other must not get them.
    let renewed = brief.mutex(at("renewed")).lock().timeout(LONG).await.unwrap();
    // Of the same client, which would renew both in one call.
    let _reads = brief.rwlock(at("beside")).read().timeout(LONG).await.unwrap();
    let mutex = client.mutex(at("mutex")).lock().timeout(LONG).await.unwrap();
    let fair = client.fair_mutex(at("fair")).lock().timeout(LONG).await.unwrap();
    let write = client.rwlock(at("write")).write().timeout(LONG).await.unwrap();
    let read = client.rwlock(at("read")).read().timeout(LONG).await.unwrap();
    let permit = client.semaphore(at("permits"), 1).acquire().timeout(LONG).await.unwrap();
    // Redisson's latch bears no braces.
    let (counter, latch) = (client.counting_semaphore(at("count")), client.latch("bar"));
    counter.try_set(10).await.unwrap();
    latch.try_set(100).await.unwrap();
    let moving = Moving { cluster: &cluster, slot: 5_061, from: 0, to: 1 };
    moving.begin();
    moving.carry(|place, _| (place % 2 == 1) == odd);
    let (mut counted, mut down, mut open) = (0_i64, 0_u32, 0_i64);
    for _ in 0..2 {
        let began = Instant::now();
        assert!(passing("mutex", began, other.mutex(at("mutex")).lock().timeout(wait).await).is_none(), "two hold the mutex");
        let began = Instant::now();
        assert!(
            passing("fair", began, other.fair_mutex(at("fair")).lock().timeout(wait).await).is_none(),
            "two hold the fair mutex"
        );
        let began = Instant::now();
        assert!(
            passing("read", began, other.rwlock(at("write")).read().timeout(wait).await).is_none(),
            "a reader beside a writer"
        );
        let began = Instant::now();
        assert!(
            passing("write", began, other.rwlock(at("read")).write().timeout(wait).await).is_none(),
            "a writer beside a reader"
        );
        let began = Instant::now();
        let second = other.semaphore(at("permits"), 1).acquire().timeout(wait).await;
        assert!(passing("permit", began, second).is_none(), "two hold one permit");
        let began = Instant::now();
        match counter.release(1).await {
            Err(error) if error.kind() == ErrorKind::Indeterminate => open += 1,
            answer => counted += i64::from(passing("count", began, answer).is_some()),
        }
        let began = Instant::now();
        down += u32::from(passing("latch", began, latch.count_down().await).is_some());
        // A name that nobody held: mutexes go on being served while their slot moves.
        let began = Instant::now();
        let new = other.mutex(at("new")).lock().timeout(wait).await;
        passing("new", began, new).expect("mutexes go on").release().await.unwrap();
        for names in [["{bar}:n1", "{bar}:n2"]] {
            let began = Instant::now();
            if let Some(guard) = passing("several", began, other.multi_lock(names).lock().timeout(wait).await) {
                guard.release().await.unwrap();
            }
        }
    }
    tokio::task::block_in_place(|| moving.end());
    // Whoever held still does, and can give back; a mutex was also renewed on the way.
    assert!(renewed.is_valid(), "the slot was on its way for longer than a lease");
    renewed.release().await.unwrap();
    assert!(mutex.is_valid() && fair.is_valid() && write.is_valid() && read.is_valid() && permit.is_valid());
    mutex.release().await.unwrap();
    fair.release().await.unwrap();
    write.release().await.unwrap();
    read.release().await.unwrap();
    permit.release().await.unwrap();
    other.mutex(at("mutex")).lock().timeout(LONG).await.unwrap().release().await.unwrap();
    other.fair_mutex(at("fair")).lock().timeout(LONG).await.unwrap().release().await.unwrap();
    other.rwlock(at("write")).read().timeout(LONG).await.unwrap().release().await.unwrap();
    other.rwlock(at("read")).write().timeout(LONG).await.unwrap().release().await.unwrap();
    other.semaphore(at("permits"), 1).acquire().timeout(LONG).await.unwrap().release().await.unwrap();
    other.multi_lock(["{bar}:n1", "{bar}:n2"]).lock().timeout(LONG).await.unwrap().release().await.unwrap();
    let value = counter.available().await.unwrap();
    assert!((10 + counted..=10 + counted + open).contains(&value), "{value} after {counted} counted, {open} open");
    let left = latch.count().await.unwrap();
    assert!(left <= 100 - down && left >= 98, "{left} after {down}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_stays_half_moved_lets_nobody_in_twice() {
    for odd in [false, true] {
        a_slot_is_half_moved(odd).await;
    }
}

/// Many requests that meet a slot that has moved have the map asked for a few times, not once each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_redirected_requests_ask_for_the_map_a_few_times() {
    const MANY: u64 = 200;
    let Some((cluster, client)) = started(Flavour::Redis, "many redirected requests", "").await else { return };
    client.mutex("{bar}:first").lock().timeout(LONG).await.unwrap().release().await.unwrap();
    let moving = Moving { cluster: &cluster, slot: 5_061, from: 0, to: 1 };
    moving.begin();
    tokio::task::block_in_place(|| moving.end());
    let asked = || -> u64 { cluster.servers.iter().map(|server| calls(server.port, "cluster|slots")).sum() };
    let before = asked();
    let all = (0..MANY).map(|number| {
        let mutex = client.mutex(format!("{{bar}}:{number}"));
        tokio::spawn(async move { mutex.lock().timeout(LONG).await.unwrap().release().await.unwrap() })
    });
    for task in all.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    // The map is asked for beside the requests, so perhaps after the last of them, also if it was known just before the slot moved.
    tokio::task::block_in_place(|| until("the map is asked for", || asked() > before));
    let asked = asked() - before;
    assert!(asked < MANY / 10, "asked {asked} times for {MANY} requests");
}
