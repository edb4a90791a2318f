//! How the store stands to its server: what it refuses when connecting, what still works when memory is out, and what tokens survive.

use std::time::Duration;

use lockkeeper::fence::Gate;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisGate};
use lockkeeper::{Client, ErrorKind};
use redis::{Commands, Connection};

use crate::server::{Flavour, Server};

/// A server of the test's own, and a plain connection to it. `None`: skipped, and said so.
fn own(test: &str, options: &[&str]) -> Option<(Server, Connection)> {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let server = Server::start_with(Flavour::Redis, options);
    let eyes = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
    Some((server, eyes))
}

fn tell(eyes: &mut Connection, words: &str) {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    command.exec(eyes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_evicts_locks_is_refused_unless_accepted() {
    let Some((server, mut eyes)) = own("eviction", &[]) else { return };
    tell(&mut eyes, "CONFIG SET maxmemory-policy volatile-ttl");
    let error = Client::connect(server.url(0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("volatile-ttl") && error.to_string().contains("noeviction"), "{error}");
    Client::connect(format!("{}?eviction=accept", server.url(0))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_refused() {
    let Some((server, mut eyes)) = own("replica", &[]) else { return };
    tell(&mut eyes, "REPLICAOF 127.0.0.1 1");
    let error = Client::connect(server.url(0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("replica"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_missing_right_is_named() {
    let Some((server, mut eyes)) = own("rights", &[]) else { return };
    let url = format!("redis://worker:secret@127.0.0.1:{}", server.port);
    for right in ["hset", "hdel", "pexpire", "zadd", "rpush", "publish", "subscribe", "evalsha", "time", "del"] {
        tell(&mut eyes, &format!("ACL SETUSER worker reset on >secret ~* &* +@all -{right}"));
        let error = Client::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{right}: {error}");
        assert!(error.to_string().to_lowercase().contains(right), "{right}: {error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
    tell(&mut eyes, "ACL SETUSER worker reset on >secret ~* +@all resetchannels");
    let error = Client::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    // The rights that the page on Redis tells are enough, for every object.
    let page = include_str!("../../../../docs/backends/redis.md");
    let rule = page.lines().find(|line| line.starts_with("ACL SETUSER worker ")).unwrap();
    tell(&mut eyes, "ACL SETUSER worker reset");
    tell(&mut eyes, &rule.replace("PASSWORD", "secret"));
    let client = Client::connect(&url).await.unwrap().with_prefix("app:");
    client.mutex("m").lock().await.unwrap().release().await.unwrap();
    let holder = client.fair_mutex("f").lock().await.unwrap();
    let moment = Duration::from_millis(50);
    assert_eq!(client.fair_mutex("f").lock().wait(moment).await.unwrap_err().kind(), ErrorKind::Timeout);
    holder.release().await.unwrap();
    let reader = client.rwlock("rw").read().await.unwrap();
    assert_eq!(client.rwlock("rw").write().wait(moment).await.unwrap_err().kind(), ErrorKind::Timeout);
    reader.release().await.unwrap();
    client.semaphore("s", 2).acquire().await.unwrap().release().await.unwrap();
    client.counting_semaphore("c").release(1).await.unwrap();
    client.latch("l").try_set(1).await.unwrap();
    assert_eq!(client.list("*").await.unwrap().len(), 2, "the semaphore and the latch");
    let error = Client::connect(format!("redis://worker:wrong@127.0.0.1:{}", server.port)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_is_as_good_as_a_port() {
    let socket = std::env::temp_dir().join(format!("lockkeeper-{}.sock", std::process::id()));
    let Some((_server, mut eyes)) = own("socket", &["--unixsocket", socket.to_str().unwrap()]) else { return };
    let client = Client::connect(format!("redis+unix://{}?db=0", socket.display())).await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    assert!(eyes.exists::<_, bool>("m").unwrap());
    guard.release().await.unwrap();
}

/// What gives back must pass when nothing can be taken any more, or the server never recovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_everything_can_be_given_back_and_kept() {
    let Some((server, mut eyes)) = own("out of memory", &[]) else { return };
    let client = Client::connect(server.url(0)).await.unwrap();
    let mutex = client.mutex("mutex").lock().await.unwrap();
    let fair = client.fair_mutex("fair").lock().await.unwrap();
    let read = client.rwlock("read").read().await.unwrap();
    let write = client.rwlock("write").write().await.unwrap();
    let permits = client.semaphore("permits", 3).acquire_many(2).await.unwrap();
    let latch = client.latch("latch");
    latch.try_set(2).await.unwrap();
    tell(&mut eyes, "CONFIG SET maxmemory 1");

    let error = client.mutex("more").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for guard in [&*mutex, &*fair, &*read, &*write, &*permits] {
        guard.extend(Duration::from_secs(60)).await.unwrap();
    }
    assert_eq!(latch.count_down().await.unwrap(), 1);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    mutex.release().await.unwrap();
    fair.release().await.unwrap();
    read.release().await.unwrap();
    write.release().await.unwrap();
    permits.release().await.unwrap();
    assert_eq!(client.list("*").await.unwrap().iter().map(|found| found.holders.len()).sum::<usize>(), 0);
}

async fn token(url: &str, name: &str) -> u64 {
    let client = Client::connect(url).await.unwrap();
    let guard = client.mutex(name).lock().lease(Duration::from_secs(1)).await.unwrap();
    let number = guard.token().number();
    guard.release().await.unwrap();
    number
}

/// P2 across everything that makes a server forget its counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_across_flush_lost_counter_restart_promotion_and_failback() {
    let Some((mut server, mut eyes)) = own("tokens", &[]) else { return };
    let url = server.url(0);
    let mut tokens = vec![token(&url, "m").await, token(&url, "m").await];
    tell(&mut eyes, "FLUSHALL");
    tokens.push(token(&url, "m").await);
    tell(&mut eyes, "DEL lockkeeper:token");
    tokens.push(token(&url, "m").await);
    server.restart_empty();
    tokens.push(token(&url, "m").await);

    let replica = Server::start_with(Flavour::Redis, &["--replicaof", "127.0.0.1", &server.port.to_string()]);
    let mut replica_eyes = redis::Client::open(replica.url(0)).unwrap().get_connection().unwrap();
    let began = std::time::Instant::now();
    while !redis::cmd("INFO").query::<String>(&mut replica_eyes).unwrap().contains("master_link_status:up") {
        assert!(began.elapsed() < Duration::from_secs(20), "the replica did not come up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokens.push(token(&url, "m").await);
    tell(&mut replica_eyes, "REPLICAOF NO ONE");
    tokens.push(token(&replica.url(0), "m").await);
    tokens.push(token(&url, "m").await);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_in_redis_decides_as_every_gate() {
    let Some((server, mut eyes)) = own("gate", &[]) else { return };
    let client = Client::connect(server.url(0)).await.unwrap();
    let gate = RedisGate::new(Config::parse(&server.url(0)).unwrap(), &Runtime::system());
    let (older, newer) = (client.mutex("m").lock().await.unwrap(), client.mutex("n").lock().await.unwrap());
    assert_eq!(gate.check("r", older.token()).await.unwrap_err().kind(), ErrorKind::Lost, "it did not enter");
    gate.enter("r", older.token()).await.unwrap();
    gate.enter("r", older.token()).await.unwrap();
    gate.check("r", older.token()).await.unwrap();
    gate.enter_shared("r", newer.token()).await.unwrap();
    gate.check("r", older.token()).await.expect("a reader raises nothing");
    gate.enter("r", newer.token()).await.unwrap();
    for refused in
        [gate.check("r", older.token()).await, gate.enter("r", older.token()).await, gate.enter_shared("r", older.token()).await]
    {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Lost);
    }
    let twin = lockkeeper::Token::new(newer.token().number(), older.owner());
    assert_eq!(gate.enter("r", twin).await.unwrap_err().kind(), ErrorKind::Lost, "an equal number from another owner");
    gate.check("r", newer.token()).await.unwrap();
    let keys: Vec<String> = eyes.keys("lockkeeper:fence:*").unwrap();
    assert_eq!(keys, ["lockkeeper:fence:{r}"]);
}
