//! The floors: the least that a lock on Redis costs with one request to acquire and one to release.
//!
//! One multiplexed connection through the same driver, the same tasks, and the shortest scripts that acquire and release a hash: no token,
//! no keeper, no lateness, no batches. And below it two PINGs, which do nothing.

use bench_course::Lock;
use redis::Script;
use redis::aio::MultiplexedConnection;

const TAKE: &str = "if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], ARGV[1], 1) \
                    redis.call('PEXPIRE', KEYS[1], 30000) return 1 end return 0";
const GIVE: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then redis.call('DEL', KEYS[1]) \
                    redis.call('PUBLISH', ARGV[2], '0') return 1 end return 0";

#[derive(Clone)]
pub(crate) struct Floor {
    connection: MultiplexedConnection,
    take: Script,
    give: Script,
}

impl Floor {
    pub(crate) async fn connect(url: &str) -> Self {
        let client = redis::Client::open(format!("{url}?protocol=resp3")).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await.expect("a server");
        Self { connection, take: Script::new(TAKE), give: Script::new(GIVE) }
    }

    pub(crate) fn named(&self, name: &str) -> Bare {
        Bare { floor: self.clone(), name: name.to_owned(), owner: format!("owner:{name}"), channel: format!("channel:{name}") }
    }
}

pub(crate) struct Bare {
    floor: Floor,
    name: String,
    owner: String,
    channel: String,
}

impl Lock for Bare {
    type Guard = ();

    async fn take(&self) {
        let mut connection = self.floor.connection.clone();
        let taken: i64 = self.floor.take.key(&self.name).arg(&self.owner).invoke_async(&mut connection).await.expect("an answer");
        assert_eq!(taken, 1, "the floor cannot wait");
    }

    async fn give(&self, (): ()) {
        let mut connection = self.floor.connection.clone();
        let given: i64 = self
            .floor
            .give
            .key(&self.name)
            .arg(&self.owner)
            .arg(&self.channel)
            .invoke_async(&mut connection)
            .await
            .expect("an answer");
        assert_eq!(given, 1, "it was ours");
    }
}

pub(crate) struct TwoPings(pub(crate) Floor);

impl Lock for TwoPings {
    type Guard = ();

    async fn take(&self) {
        redis::cmd("PING").exec_async(&mut self.0.connection.clone()).await.expect("an answer");
    }

    async fn give(&self, (): ()) {
        redis::cmd("PING").exec_async(&mut self.0.connection.clone()).await.expect("an answer");
    }
}
