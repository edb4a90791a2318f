//! Requests that arrive twice, as behind a pooler that sends a statement again on another connection: a copy neither grants again nor brings a hold back,
//! whenever it comes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Backend, Claim, Release, Renew};
use lockkeeper::name::Name;
use lockkeeper_testkit::proxy::Proxy;

use super::bench::{Bench, POLLING, connect, is_granted, on_the_wire, owner};

const LEASE: Duration = Duration::from_secs(60);

struct Doubled {
    bench: Bench,
    proxy: Proxy,
    /// Behind the proxy. Its statements are not prepared, so that they mean the same on another connection.
    store: Arc<dyn Backend>,
    name: Name,
    claim: Claim,
}

/// One step: the version before it, and the request as it was sent.
struct Step {
    before: Option<i64>,
    request: Vec<u8>,
}

impl Doubled {
    async fn open(test: &str) -> Option<Self> {
        let bench = Bench::open(test).await?;
        let proxy = Proxy::start(bench.server.port).await;
        let url = bench.url.replace(&format!(":{}/", bench.server.port), &format!(":{}/", proxy.port));
        let store = connect(&format!("{url}{POLLING}"), &bench.runtime).await;
        Some(Self { bench, proxy, store, name: Name::new("m").unwrap(), claim: Claim::Mutex })
    }

    fn acquire(&self, number: u64) -> Acquire {
        let now = self.bench.runtime.now();
        Acquire::new(self.name.clone(), self.claim, owner(number), LEASE).with_times(now, now.plus(LEASE))
    }

    fn release(&self, number: u64) -> Release {
        Release::new(self.name.clone(), self.claim, owner(number))
    }

    /// The version of the row, if there is one.
    async fn version(&self) -> Option<i64> {
        self.bench.version(self.name.as_str()).await
    }

    /// Does one step through the proxy, which keeps a copy of its request.
    async fn step(&self, step: impl Future<Output = bool>) -> Step {
        let before = self.version().await;
        self.proxy.copy_requests(on_the_wire(self.name.as_str()));
        assert!(step.await, "the step is carried out");
        Step { before, request: self.proxy.copy().expect("the request passed the proxy") }
    }

    async fn acquired(&self, number: u64) -> Step {
        self.step(async { is_granted(self.store.acquire(self.acquire(number)).await.unwrap()) }).await
    }

    async fn renewed(&self, number: u64) -> Step {
        let renewal = Renew::new(self.name.clone(), self.claim, owner(number), Some(LEASE * 2));
        self.step(async { self.store.renew(vec![renewal]).await.unwrap().remove(0).unwrap().is_kept() }).await
    }

    async fn released(&self, number: u64) -> Step {
        self.step(async { self.store.release(self.release(number)).await.unwrap().held }).await
    }

    async fn holders(&self) -> Vec<String> {
        let seen = self.bench.store.inspect(self.name.clone()).await.unwrap();
        seen.map(|seen| seen.holders.into_iter().map(|holder| holder.owner).collect()).unwrap_or_default()
    }

    /// Sends copies again; nothing may come of them.
    async fn nothing_comes_of(&self, copies: &[&Step], when: &str) {
        let before = (self.version().await, self.holders().await);
        for (number, copy) in copies.iter().enumerate() {
            self.bench.send_copy(&copy.request).await;
            let after = (self.version().await, self.holders().await);
            assert_eq!(after, before, "{:?}: copy {number} {when}", self.claim);
        }
    }

    /// The control: the copy of a step has its effect where the row has the version that it was computed on.
    async fn control(&self, copy: &Step) -> Vec<String> {
        match copy.before {
            Some(version) => self.bench.set_version(self.name.as_str(), version).await,
            None => self.bench.remove_rows().await,
        }
        self.bench.send_copy(&copy.request).await;
        self.holders().await
    }
}

#[tokio::test]
async fn a_statement_that_arrives_twice_has_one_effect() {
    let Some(mut doubled) = Doubled::open("doubled statements").await else { return };
    for (kind, claim) in [Claim::Mutex, Claim::Fair, Claim::Write, Claim::Permits { take: 1, of: 2 }].into_iter().enumerate() {
        (doubled.name, doubled.claim) = (Name::new(format!("doubled{kind}")).unwrap(), claim);
        // A name that has no row, and one that has.
        for first in [10, 20] {
            let acquired = doubled.acquired(first).await;
            assert_eq!(acquired.before.is_none(), first == 10);
            doubled.nothing_comes_of(&[&acquired], "at once").await;
            let renewed = doubled.renewed(first).await;
            doubled.nothing_comes_of(&[&renewed, &acquired], "while it is held").await;
            let released = doubled.released(first).await;
            assert!(doubled.holders().await.is_empty());
            doubled.nothing_comes_of(&[&released, &acquired, &renewed], "after the release").await;
            assert!(is_granted(doubled.bench.store.acquire(doubled.acquire(first + 1)).await.unwrap()));
            doubled.nothing_comes_of(&[&released, &renewed, &acquired], "while another one holds it").await;
            assert_eq!(doubled.holders().await, [owner(first + 1).to_string()]);
            assert!(doubled.bench.store.release(doubled.release(first + 1)).await.unwrap().held);
        }
    }
}

/// The versions are what keeps copies out. A statement also has a time limit of about a second, so a slow machine may need several attempts.
#[tokio::test]
async fn without_versions_a_copy_grants_again_and_releases_what_another_holds() {
    let Some(doubled) = Doubled::open("doubled statements without versions").await else { return };
    let (mut granted, mut freed) = (false, false);
    for number in (0..20).map(|turn| turn * 10) {
        let acquired = doubled.acquired(number).await;
        assert!(doubled.store.release(doubled.release(number)).await.unwrap().held);
        granted = granted || doubled.control(&acquired).await == [owner(number).to_string()];
        let _ = doubled.bench.store.release(doubled.release(number)).await;
        doubled.acquired(number + 1).await;
        let released = doubled.released(number + 1).await;
        assert!(is_granted(doubled.bench.store.acquire(doubled.acquire(number + 2)).await.unwrap()));
        freed = freed || doubled.control(&released).await.is_empty();
        let _ = doubled.bench.store.release(doubled.release(number + 2)).await;
        if granted && freed {
            return;
        }
    }
    panic!("a copy never had an effect (granted: {granted}, freed: {freed}): the other test shows nothing");
}
