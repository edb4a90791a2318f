//! What broke ready-made cluster clients: a dropped connection under many tasks, many of them, and slots that move under load. No call may hang, no
//! request be carried out twice, no answer reach another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockkeeper::{Client, CountingSemaphore, ErrorKind, Mutex};
use tokio::task::JoinSet;

use crate::harness::{eyes, ms, skipped, tell};
use crate::server::Flavour;
use lockkeeper_testkit::cluster::Cluster;

const COMMAND_TIMEOUT: Duration = Duration::from_secs(3);

/// Each task counts under a name of its own, which nobody else knows: so it knows every answer in advance.
struct Counting {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<CountOutcome>,
}

#[derive(Debug, Default)]
struct CountOutcome {
    counted: i64,
    /// Those whose outcome is not known.
    unknown: i64,
    locked: u64,
    longest: Duration,
}

impl Counting {
    fn start(client: &Client, tasks: usize, name: impl Fn(usize) -> String) -> Self {
        let (stop, mut set) = (Arc::<AtomicBool>::default(), JoinSet::new());
        for task in 0..tasks {
            let (name, stop) = (name(task), Arc::clone(&stop));
            let (counter, mutex) = (client.counting_semaphore(format!("{name}:count")), client.mutex(format!("{name}:lock")));
            set.spawn(async move { count(&counter, &mutex, &stop).await });
        }
        Self { stop, tasks: set }
    }

    async fn end(mut self) -> Vec<CountOutcome> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        let ended = async {
            while let Some(done) = self.tasks.join_next().await {
                all.push(done.expect("a task failed"));
            }
        };
        tokio::time::timeout(COMMAND_TIMEOUT * 3, ended).await.expect("a call hangs");
        for tally in &all {
            assert!(tally.longest < COMMAND_TIMEOUT + ms(1_500), "a call took longer than the command timeout: {tally:?}");
            assert!(tally.counted > 0 && tally.locked > 0, "nothing was done: {tally:?}");
        }
        all
    }
}

async fn count(counter: &CountingSemaphore, mutex: &Mutex, stop: &AtomicBool) -> CountOutcome {
    let (mut tally, mut last_token) = (CountOutcome::default(), 0);
    let passing = |kind| matches!(kind, ErrorKind::Unavailable | ErrorKind::Indeterminate);
    while !stop.load(Ordering::SeqCst) {
        let began = Instant::now();
        let answer = counter.release(1).await;
        tally.longest = tally.longest.max(began.elapsed());
        match answer {
            Ok(value) => {
                tally.counted += 1;
                let possible = tally.counted..=tally.counted + tally.unknown;
                assert!(possible.contains(&value), "{value} is not one of {possible:?}: carried out twice, or another's answer");
            }
            Err(error) if error.kind() == ErrorKind::Indeterminate => tally.unknown += 1,
            Err(error) => assert!(passing(error.kind()), "{error:?}"),
        }
        let began = Instant::now();
        match mutex.try_lock().await {
            Ok(Some(guard)) => {
                assert!(
                    guard.token().unwrap().number() > last_token,
                    "token {} after {last_token}",
                    guard.token().unwrap().number()
                );
                last_token = guard.token().unwrap().number();
                tally.locked += 1;
                let _ = guard.release().await;
            }
            // What an earlier call may have left is being given back.
            Ok(None) => {}
            Err(error) => assert!(passing(error.kind()), "{error:?}"),
        }
        // Two calls: the lock, and giving it back.
        tally.longest = tally.longest.max(began.elapsed() / 2);
    }
    tally
}

async fn started(flavour: Flavour, test: &str) -> Option<(Cluster, Client)> {
    if skipped(test, flavour) {
        return None;
    }
    let cluster = tokio::task::spawn_blocking(move || Cluster::start(flavour)).await.unwrap();
    let client = Client::builder().command_timeout(COMMAND_TIMEOUT).connect(cluster.url()).await.unwrap();
    Some((cluster, client))
}

fn drop_connections(cluster: &Cluster, index: usize) {
    tell::<i64>(&mut eyes(cluster.servers[index].port), "CLIENT KILL TYPE normal SKIPME yes").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_dropped_connection_under_64_tasks_costs_nobody_more_than_a_moment() {
    let Some((cluster, client)) = started(Flavour::Redis, "a dropped connection").await else { return };
    for index in 0..3 {
        let counting = Counting::start(&client, 64, |task| format!("t{index}-{task}"));
        tokio::time::sleep(ms(400)).await;
        drop_connections(&cluster, index);
        tokio::time::sleep(ms(800)).await;
        counting.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_dropped_connections_under_16_tasks_lose_and_double_nothing() {
    let Some((cluster, client)) = started(Flavour::Redis, "dropped connections").await else { return };
    let counting = Counting::start(&client, 16, |task| format!("t{task}"));
    for kill in 0..40 {
        tokio::time::sleep(ms(100)).await;
        drop_connections(&cluster, kill % 3);
    }
    tokio::time::sleep(ms(500)).await;
    let tallies = counting.end().await;
    println!("{tallies:?}");
}

async fn a_slot_moves_under_load(flavour: Flavour, times: usize) {
    let Some((mut cluster, client)) = started(flavour, "a moving slot").await else { return };
    // 5061, the slot of `bar`, which the first of three has.
    let counting = Counting::start(&client, 64, |task| format!("{{bar}}:{task}"));
    let waiting = client.mutex("{bar}:waited");
    for turn in 0..times {
        tokio::time::sleep(ms(200)).await;
        let (from, to) = if turn % 2 == 0 { (0, 1) } else { (1, 0) };
        let held = waiting.lock().timeout(Duration::from_secs(10)).await.unwrap();
        let (waiter, came) = (waiting.clone(), Instant::now());
        let waiter =
            tokio::spawn(
                async move { waiter.lock().timeout(Duration::from_secs(20)).await.map(|guard| (guard, Instant::now())) },
            );
        cluster = tokio::task::spawn_blocking(move || {
            cluster.move_slot(5_061, from, to);
            cluster
        })
        .await
        .unwrap();
        assert!(held.is_valid(), "the lock moved with its slot, after {:?}", came.elapsed());
        let released = Instant::now();
        held.release().await.unwrap();
        let (guard, got) = waiter.await.unwrap().unwrap();
        assert!(got - released < ms(2_500), "woken {:?} after the release", got - released);
        guard.release().await.unwrap();
    }
    tokio::time::sleep(ms(300)).await;
    let tallies = counting.end().await;
    let (counted, unknown): (i64, i64) = tallies.iter().fold((0, 0), |sum, tally| (sum.0 + tally.counted, sum.1 + tally.unknown));
    println!("{counted} counted, {unknown} unknown");
    assert_eq!(unknown, 0, "no connection broke: every outcome is known");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_64_tasks_goes_on_serving() {
    a_slot_moves_under_load(Flavour::Redis, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo xtask faults"]
async fn a_slot_that_moves_again_and_again_under_64_tasks_goes_on_serving() {
    a_slot_moves_under_load(Flavour::Redis, 20).await;
    a_slot_moves_under_load(Flavour::Valkey, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_whose_braces_split_slots_is_refused_with_the_reason() {
    let Some((_cluster, client)) = started(Flavour::Redis, "braces").await else { return };
    for name in ["{}orders", "a{b", "a{}{b}", "a}b"] {
        let error = client.mutex(name).try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{name}");
        assert!(error.to_string().contains("slots"), "{error}");
    }
    for name in ["orders", "{orders}:42", "a{b}c"] {
        client.mutex(name).lock().await.unwrap().release().await.unwrap();
    }
    // In three slots, taken one after the other.
    client.multi_lock(["foo", "bar", "orders"]).lock().await.unwrap().release().await.unwrap();
}
