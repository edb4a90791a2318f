//! Keys that were deleted, left over or of a wrong type: nobody is let in beside a holder, and the store finds its way back.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Claim, Count, CountOp, CounterOp, VoteRequest, Voter};
use lockkeeper::fence::Gate;
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisGate, RedisStore};
use lockkeeper::{Client, ErrorKind};
use redis::{Commands, Connection};

use crate::cost::own;

const LONG: Duration = Duration::from_secs(60);

fn ask(runtime: &Runtime, claim: Claim, owner: WireOwner) -> Acquire {
    Acquire::new(Name::new("rw").unwrap(), claim, owner, LONG).with_times(runtime.now(), runtime.now().plus(LONG))
}

fn locks(eyes: &mut Connection) -> Vec<String> {
    let mut keys: Vec<String> = eyes.keys("*").unwrap();
    keys.retain(|key| !key.starts_with("lockkeeper:"));
    keys
}

/// The hash is gone (deleted, or freed by force), and a writer has come. The key of the old read hold lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_hold_that_outlives_its_hash_lets_nobody_in_beside_a_writer() {
    let Some((server, _client, mut eyes)) = own("a read hold without a hash").await else { return };
    let runtime = Runtime::system();
    let store = RedisStore::connect(Config::parse(&server.url(0)).unwrap(), &runtime).await.unwrap();
    let owner = |number| WireOwner::new(runtime.client_id(), number);
    let (reader, writer) = (owner(1), owner(2));
    assert!(matches!(store.acquire(ask(&runtime, Claim::Read, reader)).await.unwrap(), Attempt::Granted(_)));
    eyes.del::<_, ()>("rw").unwrap();
    assert_eq!(locks(&mut eyes).len(), 1, "the hold's own key is left");
    assert!(matches!(store.acquire(ask(&runtime, Claim::Write, writer)).await.unwrap(), Attempt::Granted(_)));
    let again = store.acquire(ask(&runtime, Claim::Read, reader)).await.unwrap();
    assert!(matches!(again, Attempt::Busy(_)), "a reader beside a writer: {again:?}");
}

/// A hash never ends before a hold in it, however the leases come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hash_outlives_its_read_holds() {
    let Some((server, _client, mut eyes)) = own("ends of read holds").await else { return };
    let runtime = Runtime::system();
    let store = RedisStore::connect(Config::parse(&server.url(0)).unwrap(), &runtime).await.unwrap();
    let client = runtime.client_id();
    for number in 1..=300 {
        let lease = Duration::from_millis(20_000 + 7 * (number * 37 % 50));
        let request = ask(&runtime, Claim::Read, WireOwner::new(client, number)).with_lease(lease);
        assert!(matches!(store.acquire(request).await.unwrap(), Attempt::Granted(_)));
        // One script, so that both are read at one moment. It may be in the middle of a millisecond.
        let (hash, hold): (i64, i64) = redis::Script::new("return {redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[2])}")
            .key("rw")
            .key(format!("{{rw}}:{client}:{number}:rwlock_timeout:1"))
            .invoke(&mut eyes)
            .unwrap();
        assert!(hash >= hold, "the hash ends {hash} ms from now, the hold {hold}");
    }
}

/// Somebody deletes the number while permits are out: the permits count all the same, and the size comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_whose_number_was_deleted_comes_back() {
    let Some((_server, client, mut eyes)) = own("a deleted number").await else { return };
    let pool = client.semaphore("pool", 3);
    let two = pool.acquire_many(2).await.unwrap();
    eyes.del::<_, ()>("pool").unwrap();
    let one = pool.try_acquire().await.unwrap().expect("one of three is free");
    assert!(pool.try_acquire().await.unwrap().is_none(), "a fourth permit of three");
    eyes.del::<_, ()>("pool").unwrap();
    two.release().await.unwrap();
    one.release().await.unwrap();
    let all = client.semaphore("pool", 3).try_acquire_many(3).await.unwrap().expect("all are back");
    assert!(pool.try_acquire().await.unwrap().is_none());
    all.release().await.unwrap();
    assert_eq!(pool.available().await.unwrap(), 3);
}

/// What Java's `addPermits` does: waiters go on with the new size, and so does their handle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_that_java_adds_serve_those_who_wait() {
    let Some((_server, client, mut eyes)) = own("added permits").await else { return };
    let pool = client.semaphore("pool", 1);
    let first = pool.acquire().await.unwrap();
    // The last one has a handle of its own, and stands behind the other: it has not asked the store before permits are added.
    let mut waiters = Vec::new();
    for pool in [pool.clone(), client.semaphore("pool", 1)] {
        let mut wait = pool.acquire().timeout(Duration::from_secs(5));
        let first = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut wait).poll(cx))).await;
        assert!(first.is_pending(), "it has to wait");
        waiters.push(tokio::spawn(wait));
        crate::site::until("the first one waits", || {
            redis::cmd("PUBSUB").arg("NUMSUB").arg("redisson_sc:{pool}").query::<(String, u64)>(&mut eyes).unwrap().1 > 0
        })
        .await;
    }
    eyes.incr::<_, _, ()>("pool", 2).unwrap();
    eyes.publish::<_, _, ()>("redisson_sc:{pool}", 2).unwrap();
    for waiter in waiters {
        waiter.await.unwrap().expect("a permit that was added").release().await.unwrap();
    }
    let all = pool.acquire_many(2).timeout(Duration::from_secs(5)).await.unwrap();
    assert!(pool.try_acquire().await.unwrap().is_none());
    all.release().await.unwrap();
    first.release().await.unwrap();
    let error = client.semaphore("pool", 1).try_acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains('3'), "a new handle is checked: {error}");
}

/// Something else lies under the key that counts tokens: an error, and nothing is held, of any kind and by many at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_counter_of_a_wrong_type_leaves_nothing_held() {
    let Some((server, client, mut eyes)) = own("a counter of a wrong type").await else { return };
    eyes.lpush::<_, _, ()>("lockkeeper:token", "x").unwrap();
    assert!(client.mutex("m").try_lock().await.is_err());
    assert!(client.fair_mutex("f").try_lock().await.is_err());
    assert!(client.rwlock("r").try_read().await.is_err());
    assert!(client.rwlock("w").try_write().await.is_err());
    assert!(client.multi_lock(["a", "b"]).try_lock().await.is_err());
    let crowd: Vec<_> = (0..64)
        .map(|number| {
            let mutex = client.mutex(format!("n{number}"));
            tokio::spawn(async move { mutex.try_lock().await.map(drop) })
        })
        .collect();
    for one in crowd {
        assert!(one.await.unwrap().is_err());
    }
    assert_eq!(locks(&mut eyes), Vec::<String>::new());
    // With a counter per name the second of two may be the wrong one.
    let per_name = Client::connect(format!("{}?tokens=redisson", server.url(0))).await.unwrap();
    eyes.lpush::<_, _, ()>("redisson_lock_token:{b}", "x").unwrap();
    assert!(per_name.multi_lock(["a", "b"]).try_lock().await.is_err());
    assert!(!eyes.exists::<_, bool>("a").unwrap());
}

/// The same of a vote for a majority, also on a server that is out of memory: the token comes before the vote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_without_a_token_is_not_given() {
    let Some((server, _client, mut eyes)) = own("a vote without a token").await else { return };
    let runtime = Runtime::system();
    let store = RedisStore::connect(Config::parse(&server.url(0)).unwrap(), &runtime).await.unwrap();
    let max_lease = Duration::from_secs(60);
    store.admit(max_lease).await.unwrap();
    let vote = |number| {
        let acquire = ask(&runtime, Claim::Mutex, WireOwner::new(runtime.client_id(), number));
        store.vote(VoteRequest::new(acquire, 0, max_lease))
    };
    eyes.lpush::<_, _, ()>("lockkeeper:token", "x").unwrap();
    vote(1).await.unwrap_err();
    assert_eq!(locks(&mut eyes), Vec::<String>::new(), "a counter of a wrong type");
    eyes.del::<_, ()>("lockkeeper:token").unwrap();
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut eyes).unwrap();
    vote(2).await.unwrap_err();
    assert_eq!(locks(&mut eyes), Vec::<String>::new(), "no memory");
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).exec(&mut eyes).unwrap();
    vote(3).await.unwrap();
    assert_eq!(locks(&mut eyes), ["rw"], "a vote is given where it can be");
}

/// Writers that died while waiting leave no marks for as long as others wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_of_dead_writers_go_away() {
    let Some((server, client, mut eyes)) = own("marks of dead writers").await else { return };
    let reader = client.rwlock("rw").read().await.unwrap();
    for number in 0..100 {
        eyes.hset::<_, _, _, ()>("lockkeeper:pending:{rw}", format!("dead:{number}"), "1000 2000").unwrap();
    }
    let other = Client::connect(server.url(0)).await.unwrap();
    for _ in 0..200 {
        let waited = other.rwlock("rw").write().timeout(Duration::from_millis(1)).await;
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Timeout);
        if eyes.hlen::<_, u64>("lockkeeper:pending:{rw}").unwrap() < 5 {
            break;
        }
    }
    let left: Vec<String> = eyes.hkeys("lockkeeper:pending:{rw}").unwrap();
    assert!(left.len() < 5, "{left:?}");
    eyes.hset::<_, _, _, ()>("lockkeeper:pending:{rw}", "dead:1", "1000 2000").unwrap();
    client.rwlock("rw").read().await.unwrap().release().await.unwrap();
    assert!(!eyes.hexists::<_, _, bool>("lockkeeper:pending:{rw}", "dead:1").unwrap(), "a reader removes it, too");
    reader.release().await.unwrap();
}

/// A server that is out of memory grants nothing of any kind, also where there is something to tidy up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_no_kind_is_granted() {
    let Some((_server, client, mut eyes)) = own("no memory for anything").await else { return };
    let owner = "8d5b1c6e-0a3f-4f0e-9d1b-6b1b2f3c4d5e:33";
    // A dead reader, a mark of a writer, a permit that ended.
    eyes.hset_multiple::<_, _, _, ()>("dead", &[("mode", "read"), (owner, "1")]).unwrap();
    eyes.pexpire::<_, ()>("dead", 600_000).unwrap();
    eyes.hset::<_, _, _, ()>("lockkeeper:pending:{marked}", "dead:1", "1000 2000").unwrap();
    eyes.set::<_, _, ()>("pool", 0).unwrap();
    eyes.zadd::<_, _, _, ()>("{pool}:timeout", [7_u8; 16].as_slice(), 1_000).unwrap();
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut eyes).unwrap();
    let refused = [
        client.mutex("m").try_lock().await.map(drop),
        client.fair_mutex("f").try_lock().await.map(drop),
        client.rwlock("r").try_read().await.map(drop),
        client.rwlock("w").try_write().await.map(drop),
        client.rwlock("dead").try_write().await.map(drop),
        client.rwlock("marked").try_read().await.map(drop),
        client.rwlock("marked").try_write().await.map(drop),
        client.semaphore("new", 2).try_acquire().await.map(drop),
        client.semaphore("pool", 1).try_acquire().await.map(drop),
        client.multi_lock(["m", "n"]).try_lock().await.map(drop),
    ];
    for (at, refused) in refused.into_iter().enumerate() {
        assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::Unavailable), "{at}");
    }
}

/// The server's clock was set back, and the client does not know yet: its latest time lies far ahead there. Until then it is remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counting_request_is_remembered_until_it_must_be_late() {
    let Some((server, _client, mut eyes)) = own("memory of requests").await else { return };
    let runtime = Runtime::system();
    let store = RedisStore::connect(Config::parse(&server.url(0)).unwrap(), &runtime).await.unwrap();
    let client = runtime.client_id();
    let count = |number, not_after| {
        Count::new(
            Name::new("jobs").unwrap(),
            WireOwner::new(client, number),
            CountOp::Counter(CounterOp::Give(1)),
            Duration::from_secs(2),
        )
        .with_not_after(not_after)
    };
    let mut left =
        |number| -> i64 { eyes.pttl(format!("lockkeeper:request:{{jobs}}:{}", WireOwner::new(client, number))).unwrap() };
    store.count(count(1, runtime.now().plus(Duration::from_secs(90)))).await.unwrap();
    assert!((85_000..=90_100).contains(&left(1)), "{} ms", left(1));
    // One whose time is short is remembered for as long as it says, and so is one without a latest time.
    store.count(count(2, runtime.now().plus(Duration::from_secs(1)))).await.unwrap();
    store.count(count(3, lockkeeper::runtime::Instant::NEVER)).await.unwrap();
    for number in [2, 3] {
        assert!((1..=2_000).contains(&left(number)), "{number}: {} ms", left(number));
    }
}

/// A token that has entered at the master alone could enter a second time after a failover: it has not entered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_waits_for_replicas_where_it_is_told_to() {
    let Some((server, client, _eyes)) = own("a gate and replicas").await else { return };
    let token = client.mutex("m").lock().await.unwrap().token().expect("a token");
    let gate = |options: &str| RedisGate::new(Config::parse(&format!("{}{options}", server.url(0))).unwrap(), &Runtime::system());
    gate("").enter("file", token).await.unwrap();
    let error = gate("?replicas=1&durable_within=200ms").enter("file", token).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreplicated, "{error}");
}
