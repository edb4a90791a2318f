//! Where a fault is met: a server of the test's own, a proxy before it, and clients through the proxy, sound or broken on purpose. An
//! assertion is a function of a site; its test runs it on a sound one, its negative control on a broken one.

use lockkeeper_testkit::poll::async_until_within;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use lockkeeper::{Builder, Client};
use redis::{Commands, Connection};

use crate::flaw::{Flaw, Flawed};
use crate::proxy::Proxy;
use crate::server::{Flavour, Server};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) struct Site {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    flaw: Option<Flaw>,
}

impl Site {
    /// With sound clients. `None`: skipped, and said so.
    pub(crate) async fn sound(test: &str) -> Option<Self> {
        Self::on(test, &[], None).await
    }

    pub(crate) async fn broken(flaw: Flaw) -> Option<Self> {
        Self::on("a negative control", &[], Some(flaw)).await
    }

    /// On a server with more options than the usual ones.
    pub(crate) async fn on(test: &str, options: &[&str], flaw: Option<Flaw>) -> Option<Self> {
        if let Some(why) = Server::missing(Flavour::Redis) {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        Some(Self::before(Server::start_with(Flavour::Redis, options), flaw).await)
    }

    pub(crate) async fn before(server: Server, flaw: Option<Flaw>) -> Self {
        let proxy = Proxy::start(server.port).await;
        Self { server, proxy, flaw }
    }

    /// The way through the proxy.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.proxy.port)
    }

    /// A client through the proxy, with the flaw of the site.
    pub(crate) async fn client(&self, builder: Builder) -> Client {
        self.client_at(builder, &self.url()).await
    }

    pub(crate) async fn client_at(&self, builder: Builder, url: &str) -> Client {
        let client = match self.flaw {
            None => builder.connect(url).await.expect("a connection"),
            Some(flaw) => {
                let store = RedisStore::connect(Config::parse(url).unwrap(), &Runtime::system()).await.expect("a connection");
                builder.with_backend(Arc::new(Flawed::new(store, flaw, self.server.url(0)))).unwrap()
            }
        };
        // The server has the scripts already, and all is well so far.
        client.mutex("warm").lock().await.unwrap().release().await.unwrap();
        client
    }

    /// A sound client beside the proxy.
    pub(crate) async fn other(&self) -> Client {
        Client::connect(self.server.url(0)).await.unwrap()
    }

    /// A plain connection beside the proxy.
    pub(crate) fn eyes(&self) -> Connection {
        plain_connection(&self.server.url(0))
    }

    /// Tells the server something.
    pub(crate) fn tell(&self, line: &str) {
        let mut words = line.split(' ');
        redis::cmd(words.next().unwrap()).arg(words.collect::<Vec<_>>()).exec(&mut self.eyes()).unwrap();
    }
}

pub(crate) fn plain_connection(url: &str) -> Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    async_until_within(Duration::from_secs(10), what, || std::future::ready(condition())).await;
}

/// Who holds the mutex, and how often.
pub(crate) fn holders(eyes: &mut Connection, name: &str) -> Vec<(String, i64)> {
    eyes.hgetall(name).unwrap()
}

/// How many scripts the server has run, or refused to.
pub(crate) fn scripts_run(eyes: &mut Connection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(eyes).unwrap();
    let of = |command: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(command))?;
        line.split(',').find_map(|part| part.strip_prefix("calls="))?.parse::<u64>().ok()
    };
    of("cmdstat_evalsha:").unwrap_or(0) + of("cmdstat_eval:").unwrap_or(0)
}
