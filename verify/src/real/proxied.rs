//! A server behind a proxy that does to its connections what networks do: nothing passes for a while, connections are reset, or die without a word, and
//! answers are late. The server itself runs on and forgets nothing.

use std::sync::mpsc;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::postgres::Postgres;
use lockkeeper_testkit::proxy::Proxy;
use lockkeeper_testkit::server::Server;
use tokio::sync::oneshot;

use super::topology::{Fault, LEASE, fault};

/// What stands behind the proxy.
#[derive(Debug)]
pub(super) enum Behind {
    Redis(Server),
    Postgres(Postgres),
    Etcd(Etcd),
}

impl Behind {
    fn port(&self) -> u16 {
        match self {
            Self::Redis(server) => server.port,
            Self::Postgres(server) => server.port,
            Self::Etcd(server) => server.port(0),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(0),
            Self::Postgres(server) => server.url(),
            Self::Etcd(server) => format!("etcd://{}?session={}s", server.hosts(), LEASE.as_secs()),
        }
    }
}

/// A server, and the only way to it.
#[derive(Debug)]
pub(super) struct Proxied {
    pub(super) behind: Behind,
    proxy: Proxy,
    /// Dropped, it ends the thread that carries the connections.
    ends: Option<oneshot::Sender<()>>,
    carrier: Option<JoinHandle<()>>,
}

impl Proxied {
    pub(super) fn start(behind: Behind) -> Result<Self, String> {
        let (ends, ended) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let port = behind.port();
        let carrier = spawn(move || {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an executor");
            executor.block_on(async move {
                // Nobody listens if the start was given up.
                let _ = tell.send(Proxy::start(port).await);
                let _ = ended.await;
            });
        });
        let proxy = told.recv().map_err(|_| "the proxy did not start".to_owned())?;
        Ok(Self { behind, proxy, ends: Some(ends), carrier: Some(carrier) })
    }

    pub(super) fn url(&self) -> String {
        self.behind.url().replace(&format!(":{}", self.behind.port()), &format!(":{}", self.proxy.port))
    }

    /// Disturbs the connections for so long.
    pub(super) fn disturb(&self, pause: Duration, chance: &mut fastrand::Rng) -> Fault {
        match chance.u8(0..4) {
            0 => fault("network silent", || {
                self.proxy.fall_silent(true);
                sleep(pause);
                self.proxy.fall_silent(false);
            }),
            1 => fault("connections reset", || self.proxy.reset_present_connections()),
            2 => fault("connections dead without a word", || self.proxy.kill_present_connections_silently()),
            _ => fault("answers late", || {
                self.proxy.delay_answers(Duration::from_millis(chance.u64(20..600)));
                sleep(pause);
                self.proxy.delay_answers(Duration::ZERO);
            }),
        }
    }
}

impl Drop for Proxied {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(carrier) = self.carrier.take() {
            let _ = carrier.join();
        }
    }
}
