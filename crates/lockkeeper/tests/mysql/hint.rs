//! Named locks of the server say when to look, and nothing else.

use std::future::IntoFuture as _;
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper_testkit::poll::async_until_within;

use super::bench::{Bench, Plain};

const LIMIT: Duration = Duration::from_secs(30);

/// Statements that queue for a named lock, in the database of the bench.
async fn queued(bench: &Bench, plain: &Plain) -> Vec<String> {
    let sql = "SELECT info FROM information_schema.processlist WHERE info LIKE 'SELECT GET_LOCK(%' AND db = ";
    plain.all(format!("{sql}'{}'", bench.database)).await
}

/// Waits for the lock in a task.
async fn waiter(url: &str) -> tokio::task::JoinHandle<()> {
    let client = Client::connect(url).await.unwrap();
    tokio::spawn(async move {
        let guard = client.mutex("m").lock().timeout(LIMIT).await.expect("its turn comes");
        guard.release().await.unwrap();
    })
}

/// The first waiter has the named lock at once, the others queue for it. Without the hint nobody does.
#[tokio::test]
async fn waiters_queue_for_a_named_lock_unless_told_otherwise() {
    let Some(bench) = Bench::open("the hint").await else { return };
    let plain = bench.plain().await;
    for hint in ["on", "off"] {
        let url = format!("{}&hint={hint}", bench.url);
        let holder = Client::connect(&url).await.unwrap();
        let guard = holder.mutex("m").lock().await.unwrap();
        let waiters = [waiter(&url).await, waiter(&url).await, waiter(&url).await];
        if hint == "on" {
            async_until_within(LIMIT, "two queue", || async { queued(&bench, &plain).await.len() == 2 }).await;
            let asked = queued(&bench, &plain).await;
            let name = asked[0].split('\'').nth(1).expect("a name in quotes");
            assert!(name.starts_with("lockkeeper:") && name.len() <= 64, "{asked:?}");
        } else {
            // Enough for many looks.
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(queued(&bench, &plain).await, Vec::<String>::new());
        }
        guard.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
    }
}

/// Several readers, and several holders of permits, come in together: they wait for nobody's turn.
#[tokio::test]
async fn readers_and_permits_queue_for_no_named_lock() {
    let Some(bench) = Bench::open("the hint of readers").await else { return };
    let plain = bench.plain().await;
    let (holder, other) = (Client::connect(&bench.url).await.unwrap(), Client::connect(&bench.url).await.unwrap());
    let (writer, permit) = (holder.rwlock("r").write().await.unwrap(), holder.semaphore("s", 1).acquire().await.unwrap());
    let reader = tokio::spawn(other.rwlock("r").read().timeout(LIMIT).into_future());
    let taker = tokio::spawn(other.semaphore("s", 1).acquire().timeout(LIMIT).into_future());
    // Enough for many looks.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(queued(&bench, &plain).await, Vec::<String>::new());
    writer.release().await.unwrap();
    permit.release().await.unwrap();
    reader.await.unwrap().unwrap().release().await.unwrap();
    taker.await.unwrap().unwrap().release().await.unwrap();
}

/// A named lock that somebody else has forever: waiters get their turn by looking, and nobody takes it for a lock of ours.
#[tokio::test]
async fn a_stranger_with_the_named_lock_keeps_nobody_out() {
    let Some(bench) = Bench::open("a stranger with the hint").await else { return };
    let (plain, stranger) = (bench.plain().await, bench.plain().await);
    let holder = Client::connect(&bench.url).await.unwrap();
    let guard = holder.mutex("m").lock().await.unwrap();
    let waiters = [waiter(&bench.url).await, waiter(&bench.url).await];
    async_until_within(LIMIT, "one queues", || async { queued(&bench, &plain).await.len() == 1 }).await;
    let asked = queued(&bench, &plain).await.remove(0);
    let name = asked.split('\'').nth(1).expect("a name in quotes").to_owned();
    for waiter in waiters {
        waiter.abort();
    }
    assert_eq!(stranger.first::<i64>(format!("SELECT GET_LOCK('{name}', 30)")).await, Some(1));
    let waiting = waiter(&bench.url).await;
    async_until_within(LIMIT, "it queues behind the stranger", || async { queued(&bench, &plain).await.len() == 1 }).await;
    guard.release().await.unwrap();
    waiting.await.unwrap();
    holder.mutex("m").try_lock().await.unwrap().expect("it is free; the named lock does not count").release().await.unwrap();
}

/// A client that waits has three connections, and no more; the third is closed when it is not needed.
#[tokio::test]
async fn a_client_that_waits_for_many_names_has_three_connections() {
    let Some(bench) = Bench::open("connections of a waiter").await else { return };
    let plain = bench.plain().await;
    plain.run("CREATE USER counted@'%'").await;
    plain.run(format!("GRANT ALL ON {}.* TO counted@'%'", bench.database)).await;
    let holder = Client::connect(&bench.url).await.unwrap();
    let ours = Client::connect(&bench.url.replace("root@", "counted@")).await.unwrap();
    let kept = ours.mutex("kept").lock().await.unwrap();
    let (mut guards, mut waiters) = (Vec::new(), Vec::new());
    for number in 0..20 {
        let name = format!("m{number}");
        guards.push(holder.mutex(&name).lock().await.unwrap());
        let waits = ours.mutex(&name);
        waiters.push(tokio::spawn(async move { waits.lock().timeout(LIMIT).await.unwrap().release().await.unwrap() }));
    }
    let count = || async {
        let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'counted'";
        plain.first::<i64>(sql).await.unwrap()
    };
    bench.until_waited_for("m19").await;
    async_until_within(LIMIT, "the hint has its connection", || async { count().await >= 2 }).await;
    for _ in 0..20 {
        let count = count().await;
        assert!(count <= 3, "{count} connections");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    for waiter in waiters {
        waiter.await.unwrap();
    }
    kept.release().await.unwrap();
}
