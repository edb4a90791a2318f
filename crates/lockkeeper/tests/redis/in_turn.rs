//! A release of a mutex wakes one client after the other: each has its share, no wake-up is lost, and nobody is kept out by one that does not come.

use std::time::{Duration, Instant};

use lockkeeper::{Client, MultiLock};
use redis::{Commands as _, Connection};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::flaw::Flaw;
use crate::site::{Site, holders, ms, scripts_run, until};

const WAITING: &str = "lockkeeper:waiting:{m}";
const CHANNEL: &str = "redisson_lock__channel:{m}";
const TURN: &str = "redisson_lockkeeper_turn:{m}";
/// A client that never asks.
const NOBODY: &str = "00000000-0000-0000-0000-0000000000ff";

/// Longer than anything takes that is right.
const PATIENCE: Duration = Duration::from_secs(20);

/// Below what a waiter takes that was not notified.
const SOON: Duration = ms(300);

fn registered(eyes: &mut Connection) -> Vec<String> {
    eyes.zrange(WAITING, 0, -1).unwrap()
}

async fn clients(site: &Site, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(site.client(Client::builder()).await);
    }
    clients
}

/// Lets these clients wait for `m` one after the other; each holds it for a moment. Returns in which order they held it.
async fn wait_in_order(clients: &[Client], eyes: &mut Connection, held: Duration) -> JoinSet<(usize, Instant)> {
    let mut waiters = JoinSet::new();
    for (number, client) in clients.iter().enumerate() {
        let mutex = client.mutex("m");
        waiters.spawn(async move {
            let guard = mutex.lock().timeout(PATIENCE).await.expect("a turn");
            let got = Instant::now();
            sleep(held).await;
            guard.release().await.expect("it is held");
            (number, got)
        });
        until("it is registered", || registered(eyes).len() == number + 1).await;
    }
    waiters
}

/// How many scripts a hand-over among twelve clients takes.
async fn scripts_per_hand_over(site: &Site) -> u64 {
    let (clients, mut eyes) = (clients(site, 13).await, site.eyes());
    let holder = clients[0].mutex("m").lock().await.unwrap();
    let mut waiters = JoinSet::new();
    for client in &clients[1..] {
        let mutex = client.mutex("m");
        waiters.spawn(async move {
            let guard = mutex.lock().timeout(PATIENCE).await.expect("a turn");
            sleep(ms(5)).await;
            guard.release().await.expect("it is held");
        });
    }
    until("all listen", || {
        let numbers: (String, u64) = redis::cmd("PUBSUB").arg("NUMSUB").arg(CHANNEL).query(&mut eyes).unwrap();
        numbers.1 == 12
    })
    .await;
    let before = scripts_run(&mut eyes);
    holder.release().await.unwrap();
    while let Some(done) = waiters.join_next().await {
        done.expect("no panic");
    }
    (scripts_run(&mut eyes) - before) / 12
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_one_client() {
    let Some(site) = Site::sound("one wake-up per release").await else { return };
    let scripts = scripts_per_hand_over(&site).await;
    // One to release and one to acquire; some ask by themselves, because they have waited for a while.
    assert!(scripts <= 4, "{scripts} scripts for each hand-over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_test_notices_a_release_that_wakes_all() {
    let Some(site) = Site::broken(Flaw::NeverRegisters).await else { return };
    let scripts = scripts_per_hand_over(&site).await;
    assert!(scripts > 4, "only {scripts} scripts for each hand-over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_woken_in_the_order_in_which_they_came() {
    let Some(site) = Site::sound("the order of wake-ups").await else { return };
    in_the_order_in_which_they_came(&site).await;
}

pub(crate) async fn in_the_order_in_which_they_came(site: &Site) {
    let (clients, mut eyes) = (clients(site, 9).await, site.eyes());
    let holder = clients[8].mutex("m").lock().await.unwrap();
    let waiters = wait_in_order(&clients[..8], &mut eyes, ms(5)).await;
    let ends: i64 = eyes.pttl(WAITING).unwrap();
    assert!((1..=10_000).contains(&ends), "the set of those that wait ends by itself: {ends}");
    holder.release().await.unwrap();
    let mut turns = waiters.join_all().await;
    turns.sort_by_key(|(_, got)| *got);
    assert_eq!(turns.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    until("nobody is registered any more", || registered(&mut eyes).is_empty()).await;
}

/// How many turns the tasks of each client get in four seconds with holds of 5 ms, if each asks again at once.
async fn turns(site: &Site, tasks: &[usize]) -> Vec<u32> {
    let clients = clients(site, tasks.len()).await;
    let end = Instant::now() + ms(4_000);
    let mut contenders = JoinSet::new();
    for (number, (client, tasks)) in clients.into_iter().zip(tasks).enumerate() {
        for _ in 0..*tasks {
            let client = client.clone();
            contenders.spawn(async move {
                let (mutex, mut turns) = (client.mutex("m"), 0_u32);
                while Instant::now() < end {
                    let guard = mutex.lock().timeout(PATIENCE).await.expect("a turn");
                    sleep(ms(5)).await;
                    guard.release().await.expect("it is held");
                    turns += 1;
                }
                (number, turns)
            });
        }
    }
    let mut turns = vec![0; tasks.len()];
    for (number, of_task) in contenders.join_all().await {
        turns[number] += of_task;
    }
    println!("{turns:?}");
    turns
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_ask_again_at_once_have_equal_shares() {
    let Some(site) = Site::sound("shares of many clients").await else { return };
    let turns = turns(&site, &[1; 12]).await;
    let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    assert!(3 * least >= 2 * most, "{turns:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_many_tasks_has_its_share_beside_many_clients() {
    let Some(site) = Site::sound("shares of a large client").await else { return };
    let turns = turns(&site, &[16, 1, 1, 1, 1, 1, 1, 1, 1]).await;
    let all: u32 = turns.iter().sum();
    // Half of the share by number of contenders.
    assert!(turns[0] * 3 >= all, "{turns:?}");
    assert!(turns[1..].iter().all(|turns| turns * 48 >= all), "{turns:?}");
}

/// A client that listens and never asks: a stopped process.
fn stopped_client(site: &Site, eyes: &mut Connection) -> Connection {
    let mut stopped = site.eyes();
    redis::cmd("SUBSCRIBE").arg(format!("{TURN}:{NOBODY}")).exec(&mut stopped).unwrap();
    eyes.zadd::<_, _, _, ()>(WAITING, NOBODY, -1_000).unwrap();
    stopped
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_client_that_is_first_keeps_others_out_for_a_moment_only() {
    let Some(site) = Site::sound("a stopped first waiter").await else { return };
    let (clients, mut eyes) = (clients(&site, 2).await, site.eyes());
    let holder = clients[0].mutex("m").lock().await.unwrap();
    let mut waiters = wait_in_order(&clients[1..], &mut eyes, ms(1)).await;
    let _stopped = stopped_client(&site, &mut eyes);
    let released = Instant::now();
    holder.release().await.unwrap();
    let (_, got) = waiters.join_next().await.unwrap().expect("no panic");
    assert!(got - released < SOON, "after {:?}", got - released);
    assert!(registered(&mut eyes).is_empty(), "its place ended when it was woken");
}

/// Whether a try gets a mutex whose first waiter was woken and does not come.
pub(crate) async fn a_try_beside_a_woken_client(site: &Site) {
    let (clients, mut eyes) = (clients(site, 2).await, site.eyes());
    let holder = clients[0].mutex("m").lock().await.unwrap();
    let _stopped = stopped_client(site, &mut eyes);
    holder.release().await.unwrap();
    let guard = clients[1].mutex("m").try_lock().await.unwrap();
    assert!(guard.is_some(), "nobody holds it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_mutex_is_granted_to_whoever_asks() {
    let Some(site) = Site::sound("a try beside a woken client").await else { return };
    a_try_beside_a_woken_client(&site).await;
}

/// Registers so many clients that do not exist before all others, but behind these places.
fn dead_clients(count: i32, eyes: &mut Connection) {
    for number in 0..count {
        let dead = format!("00000000-0000-0000-0000-{number:012x}");
        eyes.zadd::<_, _, _, ()>(WAITING, dead, number - count).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_gone_costs_nothing() {
    let Some(site) = Site::sound("dead clients that are registered").await else { return };
    let (clients, mut eyes) = (clients(&site, 2).await, site.eyes());
    // The most that one script takes out are a hundred.
    for count in [1, 60, 350] {
        let holder = clients[0].mutex("m").lock().await.unwrap();
        let mut waiters = wait_in_order(&clients[1..], &mut eyes, ms(1)).await;
        dead_clients(count, &mut eyes);
        let released = Instant::now();
        holder.release().await.unwrap();
        let (_, got) = waiters.join_next().await.unwrap().expect("no panic");
        assert!(got - released < SOON, "{count}: after {:?}", got - released);
        eyes.del::<_, ()>(WAITING).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_stopped_client_and_dead_ones_the_next_that_lives_asks_soon() {
    let Some(site) = Site::sound("a stopped and many dead waiters").await else { return };
    let (clients, mut eyes) = (clients(&site, 2).await, site.eyes());
    let holder = clients[0].mutex("m").lock().await.unwrap();
    let mut waiters = wait_in_order(&clients[1..], &mut eyes, ms(1)).await;
    dead_clients(30, &mut eyes);
    let _stopped = stopped_client(&site, &mut eyes);
    let released = Instant::now();
    holder.release().await.unwrap();
    let (_, got) = waiters.join_next().await.unwrap().expect("no panic");
    assert!(got - released < SOON, "after {:?}", got - released);
}

/// A client is woken and gives up in the same moment. Another one waits, and nobody else tells it: it is not registered.
async fn gives_up(clients: &[Client], eyes: &mut Connection) -> Duration {
    let holder = clients[0].mutex("m").lock().await.unwrap();
    let wait = |client: &Client| {
        let mutex = client.mutex("m");
        tokio::spawn(async move { mutex.lock().timeout(PATIENCE).await.map(|guard| (guard, Instant::now())) })
    };
    let given_up = wait(&clients[1]);
    until("the first is registered", || registered(eyes).len() == 1).await;
    let next = wait(&clients[2]);
    until("the second is registered", || registered(eyes).len() == 2).await;
    let second = registered(eyes).pop().unwrap();
    eyes.zrem::<_, _, ()>(WAITING, second).unwrap();
    let released = Instant::now();
    let (done, ()) = tokio::join!(holder.release(), async { given_up.abort() });
    done.unwrap();
    let (guard, got) = next.await.unwrap().unwrap();
    guard.release().await.unwrap();
    until("nobody is registered", || registered(eyes).is_empty() && holders(eyes, "m").is_empty()).await;
    got - released
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_passes_the_turn_on() {
    let Some(site) = Site::sound("waits that end").await else { return };
    let (clients, mut eyes) = (clients(&site, 3).await, site.eyes());
    for round in 0..20 {
        if round == 10 {
            // The server has to be sent the script again.
            redis::cmd("SCRIPT").arg("FLUSH").exec(&mut eyes).unwrap();
        }
        let took = gives_up(&clients, &mut eyes).await;
        assert!(took < SOON, "round {round}: after {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_test_notices_a_turn_that_is_not_passed_on() {
    let Some(site) = Site::sound("a turn that is not passed on").await else { return };
    let (clients, mut eyes) = (clients(&site, 2).await, site.eyes());
    let holder = clients[0].mutex("m").lock().await.unwrap();
    let mut waiters = wait_in_order(&clients[1..], &mut eyes, ms(1)).await;
    eyes.del::<_, ()>(WAITING).unwrap();
    let _stopped = stopped_client(&site, &mut eyes);
    let released = Instant::now();
    holder.release().await.unwrap();
    let (_, got) = waiters.join_next().await.unwrap().expect("no panic");
    assert!(got - released >= SOON, "after {:?}, although nobody told it", got - released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_is_notified_of_every_release_although_one_client_is_woken() {
    let Some(site) = Site::sound("notifications of redisson").await else { return };
    let (clients, mut eyes, mut listener) = (clients(&site, 4).await, site.eyes(), site.eyes());
    let holder = clients[3].mutex("m").lock().await.unwrap();
    let waiters = wait_in_order(&clients[..3], &mut eyes, ms(5)).await;
    let mut listening = listener.as_pubsub();
    listening.subscribe(CHANNEL).unwrap();
    listening.set_read_timeout(Some(PATIENCE)).unwrap();
    holder.release().await.unwrap();
    waiters.join_all().await;
    let mut in_turn = 0;
    for _ in 0..4 {
        let message: String = listening.get_message().expect("each release is told").get_payload().unwrap();
        assert_eq!(message.parse::<i64>(), Ok(0), "Redisson takes it for a release");
        in_turn += u32::from(message == "00");
    }
    assert!(in_turn > 0, "no release woke one client only");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redisson_releases_wakes_a_client_that_is_registered() {
    let Some(site) = Site::sound("releases of redisson").await else { return };
    let (clients, mut eyes) = (clients(&site, 1).await, site.eyes());
    let java = format!("{NOBODY}:1");
    eyes.hset::<_, _, _, ()>("m", &java, 1).unwrap();
    eyes.pexpire::<_, ()>("m", 30_000).unwrap();
    let mut waiters = wait_in_order(&clients, &mut eyes, ms(1)).await;
    let released = Instant::now();
    eyes.del::<_, ()>("m").unwrap();
    eyes.publish::<_, _, ()>(CHANNEL, 0).unwrap();
    let (_, got) = waiters.join_next().await.unwrap().expect("no panic");
    assert!(got - released < SOON, "after {:?}", got - released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_wants_several_locks_has_its_turn_beside_clients_that_are_registered() {
    let Some(site) = Site::sound("several locks beside registered clients").await else { return };
    let clients = clients(&site, 4).await;
    let mut contenders = JoinSet::new();
    for client in &clients[..3] {
        let client = client.clone();
        contenders.spawn(async move {
            loop {
                let guard = client.mutex("m").lock().timeout(PATIENCE).await.expect("a turn");
                sleep(ms(2)).await;
                guard.release().await.expect("it is held");
                sleep(ms(2)).await;
            }
        });
    }
    // Also in a process that waits for one of them alone.
    for client in [&clients[3], &clients[0]] {
        let several = MultiLock::new().and(client.mutex("m")).and(client.mutex("n"));
        let guard = timeout(PATIENCE, several.lock()).await.expect("a turn").unwrap();
        guard.release().await.unwrap();
    }
    contenders.shutdown().await;
}
