//! Masters are killed under load: service is back as soon as a new one can be written to, and shards that are well notice nothing.

use std::time::{Duration, Instant};

use lockkeeper::{Client, ErrorKind};

use crate::harness::{ms, skipped, tell, try_eyes};
use crate::load::Load;
use crate::sentinels::{MASTER, Watched};
use crate::server::{Flavour, Server};
use lockkeeper_testkit::cluster::Cluster;

/// From a new master that can be written to, to the first grant.
const PROMISED: Duration = Duration::from_secs(1);

/// The same where other tests run beside this one.
const BEARABLE: Duration = Duration::from_secs(3);

/// Before a failover no new master can be there: what is granted so soon was granted by the old one.
const SOONEST: Duration = ms(300);

/// What becomes of a master.
#[derive(Clone, Copy)]
enum End {
    Killed,
    /// It keeps its connections and answers nothing.
    Frozen,
}

impl End {
    fn of(self, server: &mut Server) {
        match self {
            Self::Killed => server.kill(),
            Self::Frozen => server.freeze(),
        }
    }
}

/// How seldom sentinels look whether a replica that they told to be the master is one: every second, by a timer of a tenth. Until they have seen it none of
/// them names it, and a failover may still be called off.
const SENTINELS_LOOK: Duration = ms(1_200);

/// When the first of these takes a write of a key: each is tried every few ms, on a connection of its own.
async fn writable(ports: Vec<u16>, key: String) -> Instant {
    let probing = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let mut eyes: Vec<_> = ports.iter().map(|port| (*port, None)).collect();
        while began.elapsed() < Duration::from_secs(30) {
            for (port, eyes) in &mut eyes {
                let Some(looking) = eyes.take().or_else(|| try_eyes(*port).ok()) else { continue };
                let looking = eyes.insert(looking);
                match tell::<()>(looking, &format!("SET {key} 1 PX 1000")) {
                    Ok(()) => return Instant::now(),
                    Err(error) if error.code().is_none() => *eyes = None,
                    Err(_) => {}
                }
            }
            std::thread::sleep(ms(3));
        }
        panic!("no new master")
    });
    probing.await.unwrap()
}

/// When the first sentinel names one of these.
async fn named(sentinels: Vec<u16>, ports: Vec<u16>) -> Instant {
    let asking = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let mut eyes: Vec<_> = sentinels.into_iter().map(crate::harness::eyes).collect();
        while began.elapsed() < Duration::from_secs(30) {
            for eyes in &mut eyes {
                let told: (String, u16) = tell(eyes, &format!("SENTINEL GET-MASTER-ADDR-BY-NAME {MASTER}")).unwrap();
                if ports.contains(&told.1) {
                    return Instant::now();
                }
            }
            std::thread::sleep(ms(3));
        }
        panic!("no new master is named")
    });
    asking.await.unwrap()
}

/// How long after `writable` the first grant came.
async fn first_grant(load: &Load, since: Instant, writable: Instant, of: impl Fn(&str) -> bool) -> Duration {
    let began = Instant::now();
    loop {
        if let Some(at) = load.seen.first_after(since, &of) {
            return at.saturating_duration_since(writable);
        }
        assert!(began.elapsed() < Duration::from_secs(20), "no grant after the failover");
        tokio::time::sleep(ms(5)).await;
    }
}

async fn sentinels_are_followed(end: End, within: Duration, rounds: usize) {
    if skipped("sentinels", Flavour::Redis) {
        return;
    }
    let mut watched = Watched::start(Flavour::Redis);
    let client = Client::builder().lease(ms(3_000)).connect(watched.url(0)).await.unwrap();
    let names: Vec<String> = (0..8).map(|number| format!("m{number}")).collect();
    let load = Load::start(&client, &names, 2);
    let (mut took, mut since_written) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        tokio::time::sleep(ms(300)).await;
        let master = watched.master().expect("a master");
        let others: Vec<u16> =
            watched.servers.iter().enumerate().filter(|(index, _)| *index != master).map(|(_, server)| server.port).collect();
        let sentinels: Vec<u16> = watched.sentinels.iter().map(|sentinel| sentinel.port).collect();
        let killed = Instant::now();
        end.of(&mut watched.servers[master]);
        let (writable, named) = tokio::join!(writable(others.clone(), "probe".to_owned()), named(sentinels, others));
        took.push(first_grant(&load, killed + SOONEST, named, |_| true).await);
        since_written.push(first_grant(&load, killed + SOONEST, writable, |_| true).await);
        watched = tokio::task::spawn_blocking(move || {
            match end {
                End::Killed => watched.bring_back(master),
                End::Frozen => {
                    watched.servers[master].thaw();
                    watched.settle();
                }
            }
            watched
        })
        .await
        .unwrap();
    }
    load.end().await;
    println!("first grant after a sentinel named the new master: {took:?}; after it first took a write: {since_written:?}");
    assert!(took.iter().all(|took| *took < within), "{took:?}");
    assert!(since_written.iter().all(|took| *took < within + SENTINELS_LOOK), "{since_written:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_killed_under_load_is_replaced() {
    sentinels_are_followed(End::Killed, BEARABLE, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo xtask faults"]
async fn twenty_masters_killed_under_load_are_replaced_within_a_second_of_the_new_one() {
    sentinels_are_followed(End::Killed, PROMISED, 20).await;
}

async fn a_cluster_is_followed(flavour: Flavour, end: End, within: Duration, rounds: usize) {
    if skipped("cluster", flavour) {
        return;
    }
    let mut cluster = Cluster::start(flavour);
    let client = Client::builder().lease(ms(3_000)).connect(cluster.url()).await.unwrap();
    // Tags whose slots lie in the three parts: 5061, 12182, and 1584 by the server's rule.
    let slots = [("bar", 5_061), ("foo", 12_182), ("x0", slot_of(&cluster, "x0"))];
    let names: Vec<String> = slots.iter().flat_map(|(tag, _)| (0..3).map(move |number| format!("{{{tag}}}:{number}"))).collect();
    let load = Load::start(&client, &names, 2);
    let (mut took, mut gaps) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        tokio::time::sleep(ms(300)).await;
        let (tag, slot) = slots[round % slots.len()];
        let master = cluster.master_of(slot).expect("a master");
        let hit = |name: &str| {
            slots.iter().any(|(tag, slot)| name.starts_with(&format!("{{{tag}}}")) && cluster_serves(&cluster, master, *slot))
        };
        let hit: Vec<String> = names.iter().filter(|name| hit(name)).cloned().collect();
        let others =
            cluster.servers.iter().enumerate().filter(|(index, _)| *index != master).map(|(_, server)| server.port).collect();
        let killed = Instant::now();
        end.of(&mut cluster.servers[master]);
        let writable = writable(others, format!("{{{tag}}}:probe")).await;
        took.push(first_grant(&load, killed + SOONEST, writable, |name| hit.iter().any(|hit| hit == name)).await);
        gaps.push(load.seen.longest_gap(killed, Instant::now(), |name| hit.iter().all(|hit| hit != name)));
        cluster = tokio::task::spawn_blocking(move || {
            match end {
                End::Killed => cluster.servers[master].start_again(),
                End::Frozen => cluster.servers[master].thaw(),
            }
            cluster.settle();
            cluster
        })
        .await
        .unwrap();
    }
    load.end().await;
    println!("first grant after a master was writable: {took:?}; nobody served of the others for {gaps:?}");
    assert!(took.iter().all(|took| *took < within), "{took:?}");
    assert!(gaps.iter().all(|gap| *gap < within), "{gaps:?}");
}

/// Names of the shards that are well can be locked by who comes only now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_can_connect_while_a_shard_is_down() {
    if skipped("a shard is down", Flavour::Redis) {
        return;
    }
    let mut cluster = tokio::task::spawn_blocking(|| Cluster::start(Flavour::Redis)).await.unwrap();
    // Its replica first: nobody takes its place.
    for server in [3, 0] {
        cluster.servers[server].kill();
    }
    let client = Client::connect(cluster.url()).await.unwrap();
    client.mutex("foo").lock().timeout(Duration::from_secs(5)).await.unwrap().release().await.unwrap();
    let error = client.mutex("bar").lock().timeout(ms(500)).await.map(drop).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error:?}");
}

fn slot_of(cluster: &Cluster, key: &str) -> u16 {
    tell(&mut crate::harness::eyes(cluster.servers[0].port), &format!("CLUSTER KEYSLOT {key}")).unwrap()
}

fn cluster_serves(cluster: &Cluster, server: usize, slot: u16) -> bool {
    cluster.master_of(slot) == Some(server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_killed_under_load_comes_back_and_the_others_keep_serving() {
    a_cluster_is_followed(Flavour::Redis, End::Killed, BEARABLE, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo xtask faults"]
async fn twenty_shards_killed_under_load_come_back_and_the_others_keep_serving() {
    a_cluster_is_followed(Flavour::Redis, End::Killed, PROMISED, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo xtask faults"]
async fn shards_of_valkey_killed_under_load_come_back_and_the_others_keep_serving() {
    a_cluster_is_followed(Flavour::Valkey, End::Killed, PROMISED, 6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo xtask faults"]
async fn masters_that_fall_silent_under_load_are_replaced() {
    // Those who asked the silent one wait for the command timeout.
    let within = Duration::from_secs(4);
    sentinels_are_followed(End::Frozen, within, 3).await;
    a_cluster_is_followed(Flavour::Redis, End::Frozen, within, 3).await;
}
