//! Readers of ours yield to a waiting writer of ours, but only while that helps it: Java's readers do not yield, and keep it out all the same.

use std::time::{Duration, Instant};

use lockkeeper::backend::{Acquire, Attempt, Backend, Claim, Release};
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use redis::{Commands, Connection};

use crate::cost::own;

const JAVA: &str = "8d5b1c6e-0a3f-4f0e-9d1b-6b1b2f3c4d5e:33";
const JAVA_HOLD: &str = "{rw}:8d5b1c6e-0a3f-4f0e-9d1b-6b1b2f3c4d5e:33:rwlock_timeout:1";

/// For how long readers ask, again and again: longer than a period of yielding and coming in.
const WHILE: Duration = Duration::from_millis(3_500);

struct Sides {
    runtime: Runtime,
    store: std::sync::Arc<RedisStore>,
    last: u64,
}

impl Sides {
    async fn new(url: &str) -> Self {
        let runtime = Runtime::system();
        let store = RedisStore::connect(Config::parse(url).unwrap(), &runtime).await.unwrap();
        Self { runtime, store, last: 0 }
    }

    fn owner(&mut self) -> WireOwner {
        self.last += 1;
        WireOwner::new(self.runtime.client_id(), self.last)
    }

    fn request(&self, claim: Claim, owner: WireOwner, age: Duration) -> Acquire {
        let now = self.runtime.now();
        let since = lockkeeper::runtime::Instant::from_nanos(now.as_nanos() - age.as_nanos() as u64);
        let minute = Duration::from_secs(60);
        Acquire::new(Name::new("rw").unwrap(), claim, owner, minute)
            .with_times(since, now.plus(minute))
            .with_place(Duration::from_secs(20))
    }

    /// A writer that has waited for so long waits.
    async fn writer_waits(&mut self, age: Duration) -> WireOwner {
        let owner = self.owner();
        let answer = self.store.acquire(self.request(Claim::Write, owner, age)).await.unwrap();
        assert!(matches!(answer, Attempt::Busy(_)), "{answer:?}");
        owner
    }

    /// Readers come for a while, and those that come in leave at once: how many came in, and how many had to wait.
    async fn readers_come(&mut self) -> (u32, u32) {
        let (began, mut came_in, mut waited) = (Instant::now(), 0, 0);
        while began.elapsed() < WHILE {
            let owner = self.owner();
            match self.store.acquire(self.request(Claim::Read, owner, Duration::ZERO)).await.unwrap() {
                Attempt::Granted(_) => {
                    came_in += 1;
                    self.leaves(Claim::Read, owner).await;
                }
                _ => waited += 1,
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        (came_in, waited)
    }

    async fn leaves(&self, claim: Claim, owner: WireOwner) {
        let name = Name::new("rw").unwrap();
        self.store.release(Release::new(name, claim, owner)).await.unwrap();
    }
}

fn java_reads(eyes: &mut Connection) {
    eyes.hset_multiple::<_, _, _, ()>("rw", &[("mode", "read"), (JAVA, "1")]).unwrap();
    eyes.pexpire::<_, ()>("rw", 600_000).unwrap();
    eyes.pset_ex::<_, _, ()>(JAVA_HOLD, 1, 600_000).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_foreign_readers_ours_come_in_most_of_the_time() {
    let Some((server, _client, mut eyes)) = own("readers beside Java").await else { return };
    let mut sides = Sides::new(&server.url(0)).await;
    java_reads(&mut eyes);
    sides.writer_waits(Duration::from_secs(3)).await;
    let (came_in, waited) = sides.readers_come().await;
    assert!(came_in > waited, "{came_in} came in, {waited} had to wait");
    assert!(waited > 0, "nobody left the writer a chance");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_came_just_now_is_yielded_to() {
    let Some((server, _client, mut eyes)) = own("a new writer beside Java").await else { return };
    let mut sides = Sides::new(&server.url(0)).await;
    java_reads(&mut eyes);
    sides.writer_waits(Duration::ZERO).await;
    let reader = sides.owner();
    let answer = sides.store.acquire(sides.request(Claim::Read, reader, Duration::ZERO)).await.unwrap();
    let Attempt::Busy(busy) = answer else { panic!("{answer:?}") };
    assert!(busy.retry_in.is_some_and(|pause| pause <= Duration::from_secs(2)), "it is told when to ask again: {busy:?}");
}

/// Whoever reads: without Java among them all yield, and the writer comes in when they left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_foreign_readers_all_of_ours_yield() {
    let Some((server, _client, mut eyes)) = own("readers without Java").await else { return };
    let mut sides = Sides::new(&server.url(0)).await;
    java_reads(&mut eyes);
    let reader = sides.owner();
    let answer = sides.store.acquire(sides.request(Claim::Read, reader, Duration::ZERO)).await.unwrap();
    assert!(matches!(answer, Attempt::Granted(_)), "{answer:?}");
    let writer = sides.writer_waits(Duration::from_secs(3)).await;
    // Java leaves.
    eyes.hdel::<_, _, ()>("rw", JAVA).unwrap();
    eyes.del::<_, ()>(JAVA_HOLD).unwrap();
    let (came_in, waited) = sides.readers_come().await;
    assert!(came_in == 0 && waited > 0, "{came_in} came in before a writer that waited longer");
    sides.leaves(Claim::Read, reader).await;
    let answer = sides.store.acquire(sides.request(Claim::Write, writer, Duration::from_secs(3))).await.unwrap();
    assert!(matches!(answer, Attempt::Granted(_)), "{answer:?}");
}
