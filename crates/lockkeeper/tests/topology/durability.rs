//! A grant that replicas or the disk must have counts only when they have it; else it is refused, undone, and told.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lockkeeper::backend::{Acquire, Attempt, Backend as _, Claim, Release, Released};
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use lockkeeper::{Client, Error, ErrorKind};

use crate::harness::{eyes, ms, skipped, tell, until};
use crate::load::Load;
use crate::sentinels::Watched;
use crate::server::{Flavour, Server};
use lockkeeper_testkit::cluster::Cluster;

/// A deployment, and a client whose grants both replicas must have.
async fn with_all_replicas(test: &str, lease: Duration) -> Option<(Watched, Client)> {
    if skipped(test, Flavour::Redis) {
        return None;
    }
    let watched = tokio::task::spawn_blocking(|| Watched::start(Flavour::Redis)).await.unwrap();
    let url = format!("{}?replicas=2&durable_within=300ms", watched.url(0));
    let client = Client::builder().lease(lease).connect(url).await.unwrap();
    Some((watched, client))
}

fn free(port: u16, name: &str) -> bool {
    tell::<i64>(&mut eyes(port), &format!("EXISTS {name}")).unwrap() == 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_a_replica_does_not_have_is_refused_undone_and_told() {
    let Some((watched, client)) = with_all_replicas("replicas", Duration::from_secs(30)).await else { return };
    let master = watched.servers[0].port;
    client.mutex("m").lock().await.unwrap().release().await.unwrap();
    let held = client.mutex("held").lock().await.unwrap();
    watched.servers[2].freeze();
    let wait = Duration::from_secs(5);
    for (name, error) in [
        ("mutex", client.mutex("mutex").lock().timeout(wait).await.map(drop).unwrap_err()),
        ("fair", client.fair_mutex("fair").lock().timeout(wait).await.map(drop).unwrap_err()),
        ("read", client.rwlock("read").read().timeout(wait).await.map(drop).unwrap_err()),
        ("write", client.rwlock("write").write().timeout(wait).await.map(drop).unwrap_err()),
        ("one", client.multi_lock(["one", "two"]).lock().timeout(wait).await.map(drop).unwrap_err()),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unreplicated, "{name}: {error:?}");
        assert!(error.to_string().contains("1 of 2 replicas"), "{name}: {error}");
        until("it is given back", || free(master, name));
    }
    until("it is given back", || free(master, "two"));
    let error = client.semaphore("permits", 2).acquire().timeout(wait).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreplicated, "{error:?}");
    let error = held.extend(Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreplicated, "a longer lease that a replica does not know: {error:?}");
    assert!(held.is_valid(), "what it had it has");
    held.release().await.expect("a release needs no replica");
    watched.servers[2].thaw();
    until("the replica is back", || {
        tell::<String>(&mut eyes(master), "INFO replication").unwrap().matches("state=online").count() == 2
    });
    let began = Instant::now();
    let guard = loop {
        match client.mutex("mutex").lock().timeout(wait).await {
            Ok(guard) => break guard,
            // It has much to catch up.
            Err(error) if error.kind() == ErrorKind::Unreplicated => assert!(began.elapsed() < Duration::from_secs(20)),
            Err(error) => panic!("{error:?}"),
        }
    };
    guard.release().await.unwrap();
    assert_eq!(client.semaphore("permits", 2).available().await.unwrap(), 2, "the permit was given back");
}

/// A mutex is granted, and then kept inside the process for another owner: the answer to that.
async fn kept(url: &str, replica: &Server) -> Result<Released, Error> {
    let runtime = Runtime::system();
    let store = RedisStore::connect(Config::parse(url).unwrap(), &runtime).await.unwrap();
    let client = runtime.client_id();
    let ask = |number| {
        let owner = WireOwner::new(client, number);
        let now = runtime.now();
        Acquire::new(Name::new("kept").unwrap(), Claim::Mutex, owner, Duration::from_secs(30))
            .with_times(now, now.plus(Duration::from_secs(30)))
    };
    let first = ask(1);
    assert!(matches!(store.acquire(first.clone()).await, Ok(Attempt::Granted(_))), "{url}");
    replica.freeze();
    let kept = store.release(Release::of(&first).with_then(ask(2)).with_if_alone()).await;
    replica.thaw();
    // It may be held by either of them.
    for number in 1..=2 {
        store.release(Release::of(&ask(number))).await.unwrap();
    }
    kept
}

/// Without replicas that are asked for it is granted at once: this is what the other half of the test would not see if a keep did not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_is_kept_for_the_next_waiter_counts_when_replicas_have_it() {
    let Some((watched, _client)) = with_all_replicas("holds that are kept", Duration::from_secs(30)).await else { return };
    let url = watched.url(0);
    let waited = kept(&format!("{url}?replicas=2&durable_within=300ms"), &watched.servers[2]).await.unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::Indeterminate, "{waited:?}");
    let granted = kept(&url, &watched.servers[2]).await.unwrap();
    assert!(matches!(granted.next, Some(Attempt::Granted(_))), "{granted:?}");
    let both = format!("{url}?replicas=1&durable_within=10000ms");
    let granted = kept(&both, &watched.servers[2]).await.unwrap();
    assert!(matches!(granted.next, Some(Attempt::Granted(_))), "one replica has it: {granted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_replicas_do_not_have_lengthens_nothing() {
    let Some((watched, client)) = with_all_replicas("renewals", ms(1_500)).await else { return };
    let guard = client.mutex("m").lock().await.unwrap();
    tokio::time::sleep(ms(2_000)).await;
    assert!(guard.is_valid(), "renewed");
    let stopped = Instant::now();
    watched.servers[1..].iter().for_each(Server::freeze);
    let lost = tokio::time::timeout(Duration::from_secs(5), guard.lost()).await.expect("told");
    assert!(stopped.elapsed() < ms(2_500), "told after {:?}: {lost:?}", stopped.elapsed());
    assert!(!guard.is_valid());
    watched.servers[1..].iter().for_each(Server::thaw);
}

async fn masters_are_killed(rounds: usize) {
    let Some((mut watched, client)) = with_all_replicas("never two holders", ms(1_500)).await else { return };
    let second =
        Client::builder().lease(ms(1_500)).connect(format!("{}?replicas=2&durable_within=300ms", watched.url(0))).await.unwrap();
    let names: Vec<String> = (0..4).map(|number| format!("m{number}")).collect();
    let load = Load::start(&client, &names, 2);
    let other = Load::beside(Arc::clone(&load.seen), &second, &names, 2, ms(100));
    for _ in 0..rounds {
        tokio::time::sleep(ms(500)).await;
        let master = watched.master().expect("a master");
        watched.servers[master].kill();
        watched = tokio::task::spawn_blocking(move || {
            until("there is a new master", || watched.master().is_some());
            watched.bring_back(master);
            watched
        })
        .await
        .unwrap();
        let back = Instant::now();
        while load.seen.first_after(back, |_| true).is_none() {
            assert!(back.elapsed() < Duration::from_secs(15), "no grant when all replicas are back");
            tokio::time::sleep(ms(10)).await;
        }
    }
    let seen = Arc::clone(&load.seen);
    load.end().await;
    other.end().await;
    assert_eq!(seen.doubles.load(Ordering::SeqCst), 0, "two held it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_replicas_a_killed_master_makes_no_second_holder() {
    masters_are_killed(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo xtask faults"]
async fn with_all_replicas_ten_killed_masters_make_no_second_holder() {
    masters_are_killed(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_each_shard_waits_for_its_own_replica() {
    if skipped("replicas of shards", Flavour::Redis) {
        return;
    }
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(Flavour::Redis)).await.unwrap();
    let client = Client::connect(format!("{}?replicas=1&durable_within=300ms", cluster.url())).await.unwrap();
    // Slots 5061 and 12182: the first and the third part.
    for name in ["bar", "foo"] {
        client.mutex(name).lock().await.unwrap().release().await.unwrap();
    }
    cluster.servers[3].freeze();
    let error = client.mutex("bar").lock().timeout(Duration::from_secs(5)).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreplicated, "{error:?}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    client.mutex("foo").lock().await.expect("its replica is well").release().await.unwrap();
    until("it is given back", || free(cluster.servers[0].port, "bar"));
    cluster.servers[3].thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_can_be_waited_for_where_the_server_can() {
    if skipped("the disk", Flavour::Valkey) || skipped("the disk", Flavour::Redis) {
        return;
    }
    let old = Server::start(Flavour::Redis);
    let error = Client::connect(format!("{}?aof=required", old.url(0))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("7.2"), "{error}");
    let server = Server::start_with(Flavour::Valkey, &["--appendonly", "yes"]);
    let client = Client::connect(format!("{}?aof=required", server.url(0))).await.unwrap();
    client.mutex("m").lock().await.unwrap().release().await.unwrap();
    tell::<()>(&mut eyes(server.port), "CONFIG SET appendonly no").unwrap();
    let error = client.mutex("m").lock().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreplicated, "{error:?}");
    assert!(error.to_string().contains("0 of 1 disks"), "{error}");
    until("it is given back", || free(server.port, "m"));
}
