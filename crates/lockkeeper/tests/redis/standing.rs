//! How the store stands to its server: what it refuses when connecting, what still works when memory is out, and what tokens survive.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use lockkeeper::fence::Gate;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisGate};
use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::poll::async_until_within;
use redis::{Commands, Connection};

use crate::server::{Flavour, Server};
use crate::site::{Site, ms, plain_connection, scripts_run, until};

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

/// Every command that a script of ours calls.
fn commands_in_scripts() -> BTreeSet<String> {
    let scripts = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/scripts"));
    let files = [scripts.to_owned(), scripts.join("lib")].map(|folder| std::fs::read_dir(folder).unwrap());
    let mut found = BTreeSet::new();
    for file in files.into_iter().flatten().map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(file).unwrap();
        for call in text.split("redis.").skip(1) {
            let name = call.strip_prefix("call('").or_else(|| call.strip_prefix("pcall('"));
            found.extend(name.and_then(|name| name.split('\'').next()).map(str::to_lowercase));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_missing_right_is_named() {
    let Some((server, mut eyes)) = own("rights", &[]) else { return };
    let url = format!("redis://worker:secret@127.0.0.1:{}", server.port);
    // Without these a lock works as well: it is released where it could be kept inside a process, and an end is computed that `pexpiretime` tells.
    let optional = |command: &String| ["pubsub", "pexpiretime"].contains(&command.as_str());
    let mut rights: Vec<String> = commands_in_scripts().into_iter().filter(|command| !optional(command)).collect();
    assert!(rights.len() > 25, "{rights:?}");
    rights.extend(["subscribe", "evalsha"].map(str::to_owned));
    for right in &rights {
        tell(&mut eyes, &format!("ACL SETUSER worker reset on >secret ~* &* +@all -{right}"));
        let error = Client::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{right}: {error}");
        assert!(error.to_string().to_lowercase().contains(right.as_str()), "{right}: {error}");
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
    for forbidden in ["FLUSHALL", "FLUSHDB", "KEYS *", "SCRIPT KILL", "SCRIPT FLUSH", "CONFIG GET *", "SWAPDB 0 1"] {
        let mut words = forbidden.split(' ');
        let command = redis::cmd(words.next().unwrap()).arg(words.collect::<Vec<_>>()).to_owned();
        let answer = command.exec(&mut plain_connection(&url));
        assert_eq!(answer.unwrap_err().code(), Some("NOPERM"), "the rule allows {forbidden}");
    }
    // Waiting for replicas needs a right of its own.
    let error = Client::connect(format!("{url}?replicas=1")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("+wait"), "{error}");
    let client = Client::connect(&url).await.unwrap().with_prefix("app:");
    client.mutex("m").lock().await.unwrap().release().await.unwrap();
    let holder = client.fair_mutex("f").lock().await.unwrap();
    let moment = Duration::from_millis(50);
    assert_eq!(client.fair_mutex("f").lock().timeout(moment).await.unwrap_err().kind(), ErrorKind::Timeout);
    holder.release().await.unwrap();
    let reader = client.rwlock("rw").read().await.unwrap();
    assert_eq!(client.rwlock("rw").write().timeout(moment).await.unwrap_err().kind(), ErrorKind::Timeout);
    reader.release().await.unwrap();
    client.semaphore("s", 2).acquire().await.unwrap().release().await.unwrap();
    client.counting_semaphore("c").release(1).await.unwrap();
    client.latch("l").try_set(1).await.unwrap();
    // What the waiters that timed out have left is removed in the background.
    let only_two = async || client.list("*").await.unwrap().len() == 2;
    async_until_within(Duration::from_secs(10), "the semaphore and the latch are left", only_two).await;
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
    let number = guard.token().unwrap().number();
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
    server.restart(|_| {});
    tokens.push(token(&url, "m").await);

    let replica = Server::start_with(Flavour::Redis, &["--replicaof", "127.0.0.1", &server.port.to_string()]);
    let mut replica_eyes = redis::Client::open(replica.url(0)).unwrap().get_connection().unwrap();
    let began = Instant::now();
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
    assert_eq!(gate.check("r", older.token().unwrap()).await.unwrap_err().kind(), ErrorKind::Lost, "it did not enter");
    gate.enter("r", older.token().unwrap()).await.unwrap();
    gate.enter("r", older.token().unwrap()).await.unwrap();
    gate.check("r", older.token().unwrap()).await.unwrap();
    gate.enter_shared("r", newer.token().unwrap()).await.unwrap();
    gate.check("r", older.token().unwrap()).await.expect("a reader raises nothing");
    gate.enter("r", newer.token().unwrap()).await.unwrap();
    for refused in [
        gate.check("r", older.token().unwrap()).await,
        gate.enter("r", older.token().unwrap()).await,
        gate.enter_shared("r", older.token().unwrap()).await,
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Lost);
    }
    let twin = lockkeeper::Token::new(newer.token().unwrap().number(), older.owner());
    assert_eq!(gate.enter("r", twin).await.unwrap_err().kind(), ErrorKind::Lost, "an equal number from another owner");
    gate.check("r", newer.token().unwrap()).await.unwrap();
    let keys: Vec<String> = eyes.keys("lockkeeper:fence:*").unwrap();
    assert_eq!(keys, ["lockkeeper:fence:{r}"]);
}

/// The server drops a lock, and then its counter, to make room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_lock_is_told_to_its_holder_and_tokens_still_grow() {
    let Some((server, mut eyes)) = own("evicted", &["--maxmemory-policy", "allkeys-random"]) else { return };
    let client = Client::builder().lease(ms(1_200)).connect(format!("{}?eviction=accept", server.url(0))).await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    tell(&mut eyes, "CONFIG SET maxmemory 1");
    until("both are evicted", || {
        // Each write makes the server look for room.
        let _ = redis::cmd("SET").arg("filler").arg("x").exec(&mut eyes);
        !eyes.exists::<_, bool>("m").unwrap() && !eyes.exists::<_, bool>("lockkeeper:token").unwrap()
    })
    .await;
    tell(&mut eyes, "CONFIG SET maxmemory 0");
    let told = tokio::time::timeout(ms(4_000), guard.lost()).await.expect("told");
    assert_eq!(told, lockkeeper::backend::LossReason::Gone);
    let next = client.mutex("m").lock().timeout(ms(5_000)).await.unwrap();
    assert!(next.token().unwrap().number() > guard.token().unwrap().number());
    next.release().await.unwrap();
}

/// Something else lies under the name, of every object: told at once, also to one who may wait for ever, and to one who looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_key_is_a_typed_error_of_every_object_and_of_inspect() {
    let Some((server, mut eyes)) = own("foreign keys", &[]) else { return };
    let client = Client::connect(server.url(0)).await.unwrap();
    let found = [("SET k text", "a string"), ("LPUSH k a", "a list"), ("SADD k a", "a set"), ("HSET k somebody 1", "a hash")];
    for (make, found) in found {
        tell(&mut eyes, "DEL k");
        tell(&mut eyes, make);
        let refusals = tokio::time::timeout(ms(5_000), async {
            [
                client.mutex("k").lock().await.err(),
                client.fair_mutex("k").lock().await.err(),
                client.rwlock("k").read().await.err(),
                client.rwlock("k").write().await.err(),
                client.semaphore("k", 2).acquire().await.err(),
                client.counting_semaphore("k").acquire(1).await.err(),
                client.latch("k").wait().await.err(),
                client.inspect("k").await.err(),
            ]
        });
        let refusals = refusals.await.unwrap_or_else(|_| panic!("{make}: somebody waits for ever"));
        for (at, error) in refusals.into_iter().enumerate() {
            assert_eq!(error.as_ref().map(lockkeeper::Error::kind), Some(ErrorKind::ForeignKey), "{make}, {at}: {error:?}");
            assert!(error.as_ref().is_some_and(|error| error.to_string().contains(found)), "{make}, {at}: {error:?}");
        }
        let there: String = redis::cmd("TYPE").arg("k").query(&mut eyes).unwrap();
        assert_ne!(there, "none", "{make}: it is not ours to remove");
    }
    assert!(client.list("*").await.unwrap().is_empty(), "no lock is there");
}

/// The holder may not publish any more. Its release is one all the same, and who waits finds out within a second (P6).
pub(crate) async fn a_release_that_nobody_hears_of_reaches_a_waiter(site: &Site) {
    site.tell("ACL SETUSER mute on >secret ~* &* +@all");
    let mute = Client::connect(format!("redis://mute:secret@127.0.0.1:{}", site.server.port)).await.unwrap();
    let client = site.client(Client::builder()).await;
    let holder = mute.mutex("m").lock().await.unwrap();
    let before = scripts_run(&mut site.eyes());
    let waiter = tokio::spawn({
        let mutex = client.mutex("m");
        async move { mutex.lock().await }
    });
    let channel = "redisson_lock__channel:{m}";
    let listeners = || redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query::<(String, u64)>(&mut site.eyes()).unwrap().1;
    // It asks once more when it listens; after that only a message or its own patience brings it back.
    until("it listens and has asked again", || listeners() == 1 && scripts_run(&mut site.eyes()) >= before + 2).await;
    site.tell("ACL SETUSER mute -publish");
    holder.release().await.expect("a publish that is refused does not keep the lock");
    let turn = tokio::time::timeout(ms(2_000), waiter).await;
    let guard = turn.unwrap_or_else(|_| panic!("two seconds after the release it still waits")).unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_may_not_publish_is_one_and_reaches_a_waiter() {
    let Some(site) = Site::sound("mute release").await else { return };
    a_release_that_nobody_hears_of_reaches_a_waiter(&site).await;
}

/// Trouble that passes is told for what it is, not as held by others; who may wait for longer than it lasts does not even see it.
async fn passes_by_itself(client: &Client, code: &str, end: impl FnOnce()) {
    let error = client.mutex("m").lock().timeout(ms(200)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(code), "{code}: {error}");
    let waiter = tokio::spawn({
        let mutex = client.mutex("m");
        async move { mutex.lock().timeout(ms(10_000)).await }
    });
    tokio::time::sleep(ms(100)).await;
    assert!(!waiter.is_finished(), "{code}: it is not over yet");
    end();
    waiter.await.unwrap().unwrap_or_else(|error| panic!("{code}: {error}")).release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misconf_is_typed_and_waited_for() {
    let Some((server, mut eyes)) = own("misconf", &[]) else { return };
    let client = Client::connect(server.url(0)).await.unwrap();
    // A directory where the dump should go: saving fails, and then writing is refused.
    let dump = server.directory().join("dump.rdb");
    std::fs::create_dir(&dump).unwrap();
    redis::cmd("CONFIG").arg("SET").arg("save").arg("900 1").exec(&mut eyes).unwrap();
    tell(&mut eyes, "BGSAVE");
    until("saving has failed", || {
        redis::cmd("INFO").arg("persistence").query::<String>(&mut eyes).unwrap().contains("rdb_last_bgsave_status:err")
    })
    .await;
    passes_by_itself(&client, "MISCONF", || {
        std::fs::remove_dir(&dump).unwrap();
        redis::cmd("CONFIG").arg("SET").arg("stop-writes-on-bgsave-error").arg("no").exec(&mut eyes).unwrap();
    })
    .await;
}

/// A server that reads its data says so to everything; connections can be made meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_is_typed_and_waited_for() {
    let Some((server, mut eyes)) = own("loading", &["--loading-process-events-interval-bytes", "1024"]) else { return };
    let client = Client::connect(server.url(0)).await.unwrap();
    let mut fill = redis::pipe();
    (0..3_000).for_each(|key| {
        fill.set(format!("filler{key}"), "some text").ignore();
    });
    fill.exec(&mut eyes).unwrap();
    tell(&mut eyes, "CONFIG SET key-load-delay 1000");
    let mut reloaded = plain_connection(&server.url(0));
    let reloading = std::thread::spawn(move || redis::cmd("DEBUG").arg("RELOAD").exec(&mut reloaded));
    until("it loads", || eyes.get::<_, Option<String>>("filler1").is_err_and(|error| error.code() == Some("LOADING"))).await;
    passes_by_itself(&client, "LOADING", || {}).await;
    reloading.join().unwrap().unwrap();
}

/// A password that is asked for later: not waited for, since waiting does not help; and the words say what is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noauth_and_wrongpass_are_typed_and_told_at_once() {
    let Some((server, mut eyes)) = own("noauth", &[]) else { return };
    let client = Client::connect(server.url(0)).await.unwrap();
    client.mutex("m").lock().await.unwrap().release().await.unwrap();
    tell(&mut eyes, "CONFIG SET requirepass hunter2");
    // Connecting tried a subscription. Until the server has ended it, the connection is of the other type.
    tell(&mut eyes, "CLIENT KILL TYPE normal SKIPME yes");
    tell(&mut eyes, "CLIENT KILL TYPE pubsub SKIPME yes");
    let began = Instant::now();
    let error = client.mutex("m").lock().timeout(ms(20_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(began.elapsed() < ms(5_000), "told after {:?}", began.elapsed());
    for wrong in [server.url(0), format!("redis://:hunter3@127.0.0.1:{}", server.port)] {
        let error = Client::connect(&wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter"), "{error:?}");
        let remedy = if wrong.contains('@') { "user name or password" } else { ":PASSWORD@" };
        assert!(error.to_string().contains(remedy), "{error}");
    }
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("").exec(&mut eyes).unwrap();
    let began = Instant::now();
    while client.mutex("m").try_lock().await.is_err() {
        assert!(began.elapsed() < ms(5_000), "not let in again");
        tokio::time::sleep(ms(20)).await;
    }
}

/// Replicas that are waited for longer than a request may take: no grant could be told from a lost one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_replicas_longer_than_the_command_timeout_is_refused() {
    let builder = || Client::builder().command_timeout(ms(400));
    for option in ["replicas=1", "aof=required", "replicas=1&durable_within=400ms"] {
        let error = builder().connect(format!("redis://127.0.0.1:1?{option}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{option}: {error}");
        assert!(error.to_string().contains("durable_within"), "{error}");
    }
    let error = builder().connect("redis://127.0.0.1:1?replicas=1&durable_within=100ms").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
