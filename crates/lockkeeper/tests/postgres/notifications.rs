//! NOTIFY takes a lock of the whole database at commit. So it is sent only where somebody waits.

use std::time::Duration;

use lockkeeper::Client;
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::postgres::Postgres;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, NoTls};

use crate::bench::Bench;

const LONG: Duration = Duration::from_secs(20);

/// A plain connection that listens on the channel of a store.
struct Ear {
    database: tokio_postgres::Client,
    channel: String,
    heard: UnboundedReceiver<String>,
    asked: u32,
}

impl Ear {
    async fn open(bench: &Bench) -> Self {
        let id: String = bench.plain().await.query_one("SELECT id FROM lockkeeper_store", &[]).await.unwrap().get(0);
        let config = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", bench.server.port);
        let (database, mut connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
        let (tell, heard) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(told) = message {
                    let _ = tell.send(told.payload().to_owned());
                }
            }
        });
        let channel = format!("lockkeeper_{}", id.replace('-', ""));
        database.batch_execute(&format!("LISTEN {channel}")).await.unwrap();
        Self { database, channel, heard, asked: 0 }
    }

    /// What was sent since the last call. Notifications come in the order of commits, so all of it comes before one that is sent now.
    async fn heard(&mut self) -> Vec<String> {
        self.asked += 1;
        let mark = format!("mark {}", self.asked);
        self.database.batch_execute(&format!("NOTIFY {}, '{mark}'", self.channel)).await.unwrap();
        let mut heard = Vec::new();
        loop {
            let told = tokio::time::timeout(LONG, self.heard.recv()).await.expect("the mark comes").unwrap();
            if told == mark {
                return heard;
            }
            heard.push(told);
        }
    }
}

/// All that is done to one name while nobody waits for it.
async fn use_alone(ours: &Client, theirs: &Client, name: &str) {
    for client in [ours, theirs, ours] {
        let guard = client.mutex(name).lock().await.unwrap();
        assert!(ours.mutex(name).try_lock().await.unwrap().is_none());
        assert!(theirs.mutex(name).try_lock().await.unwrap().is_none());
        guard.extend(LONG * 2).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_notification_is_sent_only_where_somebody_waits() {
    let Some(bench) = Bench::open("who is notified").await else { return };
    let mut ear = Ear::open(&bench).await;
    let builder = || Client::builder().lease(LONG);
    let (ours, theirs) = (builder().connect(&bench.url).await.unwrap(), builder().connect(&bench.url).await.unwrap());
    use_alone(&ours, &theirs, "m").await;
    ours.fair_mutex("f").lock().await.unwrap().release().await.unwrap();
    ours.rwlock("rw").read().await.unwrap().release().await.unwrap();
    ours.semaphore("s", 2).acquire().await.unwrap().release().await.unwrap();
    assert_eq!(ear.heard().await, [""; 0], "nobody waited");

    let plain = bench.plain().await;
    let marked = "SELECT 1 FROM lockkeeper_head WHERE watched > 0 OR others > 0";
    for (name, fair) in [("m", false), ("f", true)] {
        let mutex = |client: &Client| if fair { client.fair_mutex(name).lock() } else { client.mutex(name).lock() };
        let guard = mutex(&ours).await.unwrap();
        let waiting = tokio::spawn(mutex(&theirs).timeout(LONG));
        let places = "SELECT 1 FROM lockkeeper_head WHERE name = $1 AND watched > 0
            UNION ALL SELECT 1 FROM lockkeeper_part WHERE name = $1";
        let waits = async || !plain.query(places, &[&name.as_bytes()]).await.unwrap().is_empty();
        async_until_within(LONG, "somebody waits", waits).await;
        guard.extend(LONG * 2).await.unwrap();
        assert_eq!(ear.heard().await, [""; 0], "{name}: a renewal frees nothing");
        guard.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        let heard = ear.heard().await;
        assert_eq!(heard.len(), 1, "{name}: {heard:?} for one release that somebody waited for");
        next.release().await.unwrap();
        // Nobody waits any more. A mark that is still there costs a notification and is removed then; a client that backs off for others waits as well.
        let end = tokio::time::Instant::now() + LONG;
        loop {
            use_alone(&ours, &theirs, "m").await;
            let unmarked = plain.query(marked, &[]).await.unwrap().is_empty();
            if ear.heard().await.is_empty() && unmarked {
                break;
            }
            assert!(tokio::time::Instant::now() < end, "{name}: still notified although nobody waits");
        }
        for _ in 0..3 {
            use_alone(&ours, &theirs, "m").await;
        }
        assert_eq!(ear.heard().await, [""; 0], "{name}: nobody waits any more");
    }
    // The control: a row that says that somebody waits, whether it is so or not.
    plain.batch_execute("UPDATE lockkeeper_head SET watched = 9000000000000000, watcher = 1 WHERE name = 'm'").await.unwrap();
    ours.mutex("m").lock().await.unwrap().release().await.unwrap();
    assert_eq!(ear.heard().await.len(), 1, "a notification for nobody is heard");
}

/// A mark does not wait for the disk, so a crash may forget it. Clients notice that their connections broke, and mark anew before they would by
/// themselves, which is seven seconds after they did.
#[tokio::test]
async fn a_client_that_listens_again_marks_anew_what_it_waits_for() {
    if let Some(why) = Postgres::missing() {
        return lockkeeper::conformance::skip("marks after a crash", &why);
    }
    let server = Postgres::start(&[]);
    let (ours, theirs) = (Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
    let config = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", server.port);
    let (plain, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiting = tokio::spawn(theirs.mutex("m").lock().timeout(LONG));
    let marked = async || !plain.query("SELECT 1 FROM lockkeeper_head WHERE watched > 0", &[]).await.unwrap().is_empty();
    async_until_within(LONG, "somebody waits", marked).await;
    plain.batch_execute("UPDATE lockkeeper_head SET watched = 0, others = 0").await.unwrap();
    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
    assert!(!plain.query(others, &[]).await.unwrap().is_empty());
    async_until_within(Duration::from_secs(5), "it is marked anew", marked).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().expect("its turn").release().await.unwrap();
}
