//! P2 while a slot moves: a grant needs a lock's key and the counter of its tokens, and these may be at two servers.

use std::sync::{Arc, Mutex};

use lockkeeper::Client;
use lockkeeper_testkit::cluster::Cluster;
use lockkeeper_testkit::poll::async_until_within;

use crate::harness::{eyes, tell};
use crate::server::Flavour;
use crate::slots::{LONG, Moving, started};

const NAME: &str = "{bar}:fenced";

/// The slot of the name, which the first server has.
fn moving(cluster: &Cluster) -> Moving<'_> {
    Moving { cluster, slot: 5_061, from: 0, to: 1 }
}

/// The key that counts the tokens of the name, an hour ahead of all clocks, as after a server whose clock was ahead; and its number.
async fn counter_an_hour_ahead(cluster: &Cluster, client: &Client) -> (String, u64) {
    client.mutex(NAME).lock().timeout(LONG).await.unwrap().release().await.unwrap();
    let mut source = eyes(cluster.servers[0].port);
    let counters: Vec<String> = tell(&mut source, "KEYS lockkeeper:token:*").unwrap();
    let [counter] = &counters[..] else { panic!("{counters:?}") };
    let ahead = tell::<u64>(&mut source, &format!("GET {counter}")).unwrap() + 3_600_000_000;
    tell::<()>(&mut source, &format!("SET {counter} {ahead}")).unwrap();
    (counter.clone(), ahead)
}

fn assert_grown(what: &str, tokens: &[u64]) {
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{what}: {tokens:?}");
}

/// Whoever acquires: the counter goes on, wherever it is just now.
async fn acquired(flavour: Flavour) {
    for carried_first in [false, true] {
        let Some((cluster, client)) = started(flavour, "tokens of a moving slot", "").await else { return };
        let token = async || {
            let guard = client.mutex(NAME).lock().timeout(LONG).await.unwrap();
            let token = guard.token().unwrap().number();
            guard.release().await.unwrap();
            token
        };
        let (counter, ahead) = counter_an_hour_ahead(&cluster, &client).await;
        let mut tokens = vec![ahead, token().await];
        let moving = moving(&cluster);
        moving.begin();
        if carried_first {
            moving.carry(|_, key| key == counter);
        }
        for _ in 0..3 {
            tokens.push(token().await);
        }
        moving.carry(|_, key| key == counter);
        tokens.push(token().await);
        tokio::task::block_in_place(|| moving.end());
        for _ in 0..2 {
            tokens.push(token().await);
        }
        assert_grown(&format!("counter carried first: {carried_first}"), &tokens);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_while_a_slot_moves_to_a_clock_that_is_behind() {
    acquired(Flavour::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_while_a_slot_of_6_2_moves() {
    acquired(Flavour::Redis62).await;
}

/// A lock that is handed on at the server that its slot leaves, after its counter has left.
async fn handed_on(flavour: Flavour) {
    let Some((cluster, client)) = started(flavour, "a hand-over of a moving slot", "").await else { return };
    let other = Client::builder().lease(LONG).connect(cluster.url()).await.unwrap();
    let (counter, ahead) = counter_an_hour_ahead(&cluster, &client).await;
    let held = client.mutex(NAME).lock().timeout(LONG).await.unwrap();
    let tokens = Arc::new(Mutex::new(vec![ahead, held.token().unwrap().number()]));
    // Those of one process hand it on to each other; the other process waits, too, so that the server is asked each time.
    let waiters: Vec<_> = [&client, &client, &client, &other]
        .map(|client| {
            let (mutex, tokens) = (client.mutex(NAME), Arc::clone(&tokens));
            tokio::spawn(async move {
                let guard = mutex.lock().timeout(LONG).await.unwrap();
                tokens.lock().unwrap().push(guard.token().unwrap().number());
                guard.release().await.unwrap();
            })
        })
        .into();
    let listened = async || {
        let mut source = eyes(cluster.servers[0].port);
        let word = if matches!(flavour, Flavour::Redis62) { "NUMSUB" } else { "SHARDNUMSUB" };
        let (_, count): (String, u64) = tell(&mut source, &format!("PUBSUB {word} redisson_lock__channel:{NAME}")).unwrap();
        count >= 2
    };
    async_until_within(LONG, "both clients listen", listened).await;
    let moving = moving(&cluster);
    moving.begin();
    moving.carry(|_, key| key == counter);
    held.release().await.unwrap();
    for waiter in waiters {
        tokio::time::timeout(LONG, waiter).await.expect("nobody hangs").unwrap();
    }
    tokio::task::block_in_place(|| moving.end());
    assert_grown("handed on", &tokens.lock().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_where_a_lock_is_handed_on_without_its_counter() {
    handed_on(Flavour::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_where_a_lock_of_6_2_is_handed_on_without_its_counter() {
    handed_on(Flavour::Redis62).await;
}

/// Several clients want one name while its slot moves, stays half-way and arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_while_clients_contend_and_the_slot_moves() {
    let Some((cluster, client)) = started(Flavour::Redis, "contention for a moving slot", "").await else { return };
    let (counter, ahead) = counter_an_hour_ahead(&cluster, &client).await;
    let tokens = Arc::new(Mutex::new(vec![ahead]));
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let other = Client::builder().lease(LONG).connect(cluster.url()).await.unwrap();
        let (tokens, over) = (Arc::clone(&tokens), Arc::clone(&over));
        tasks.push(tokio::spawn(async move {
            let mutex = other.mutex(NAME);
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                // A look, not a wait: those who wait take turns, and would seldom ask at the same time.
                if let Some(guard) = mutex.try_lock().await.unwrap() {
                    tokens.lock().unwrap().push(guard.token().unwrap().number());
                    guard.release().await.unwrap();
                }
            }
        }));
    }
    let count = async |more: usize| {
        let goal = tokens.lock().unwrap().len() + more;
        async_until_within(LONG, "locks are taken", async || tokens.lock().unwrap().len() >= goal).await;
    };
    count(50).await;
    let moving = moving(&cluster);
    moving.begin();
    count(500).await;
    moving.carry(|_, key| key == counter);
    count(200).await;
    tokio::task::block_in_place(|| moving.end());
    count(100).await;
    over.store(true, std::sync::atomic::Ordering::SeqCst);
    for task in tasks {
        tokio::time::timeout(LONG, task).await.expect("nobody hangs").unwrap();
    }
    let tokens = tokens.lock().unwrap();
    println!("{} tokens", tokens.len());
    assert_grown("contended", &tokens);
}
