//! Slow networks, and connections that die without a word: what was to be had before must be had again, soon and by itself. No
//! server tells of such a death, so only what does not come can give it away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::backend::{Backend, Kind, Subscription, Watch};
use lockkeeper::name::Name;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use lockkeeper::{Builder, Client};
use tokio::time::{sleep, timeout};

use crate::proxy::Proxy;
use crate::server::{Flavour, Server};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A server, and a proxy before it.
struct Network {
    server: Server,
    proxy: Proxy,
}

impl Network {
    /// `None`: skipped, and said so.
    async fn new(test: &str) -> Option<Self> {
        if let Some(why) = Server::missing(Flavour::Redis) {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        let server = Server::start(Flavour::Redis);
        let proxy = Proxy::start(server.port).await;
        Some(Self { server, proxy })
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.proxy.port)
    }

    /// A client through the proxy.
    async fn client(&self, builder: Builder) -> Client {
        builder.connect(self.url()).await.expect("a connection through the proxy")
    }

    /// The store itself, through the proxy.
    async fn store(&self) -> Arc<RedisStore> {
        let config = Config::parse(&self.url()).expect("a good URL");
        RedisStore::connect(config, &Runtime::system()).await.expect("a connection through the proxy")
    }

    /// A plain connection beside the proxy.
    fn eyes(&self) -> redis::Connection {
        redis::Client::open(self.server.url(0)).unwrap().get_connection().unwrap()
    }

    /// The server closes all connections of this sort.
    fn kill(&self, sort: &str) {
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg(sort).exec(&mut self.eyes()).unwrap();
    }

    /// A release by others, as those who listen hear of it.
    fn publish(&self, name: &str) {
        redis::cmd("PUBLISH").arg(format!("redisson_lock__channel:{{{name}}}")).arg("0").exec(&mut self.eyes()).unwrap();
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn watch(text: &str) -> Watch {
    Watch::number(name(text), Kind::Mutex, "00000000-0000-0000-0000-000000000001:1".parse().unwrap())
}

/// Lets pass what a new connection rings for: that something may have been missed.
async fn settled(subscription: &Subscription) {
    while timeout(ms(100), subscription.notified()).await.is_ok() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_slow_answer_about_the_time_does_not_make_every_request_late() {
    let Some(network) = Network::new("slow time").await else { return };
    // More than a request of this lease may take: by the clock we believe in, the server is that much behind.
    network.proxy.delay_answers_to_time(ms(700));
    let client = network.client(Client::builder().lease(ms(2_000)).outage_timeout(ms(4_000))).await;
    network.proxy.delay_answers_to_time(ms(0));
    let began = Instant::now();
    drop(client.mutex("m").lock().await.unwrap());
    assert!(began.elapsed() < ms(2_000), "took {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_is_given_the_time_that_a_slow_network_takes() {
    let Some(network) = Network::new("slow try").await else { return };
    let client = network.client(Client::builder()).await;
    // The server has the scripts already.
    client.mutex("warm").lock().await.unwrap().release().await.unwrap();
    network.proxy.delay_answers(ms(60));
    let guard = client.mutex("m").try_lock().lease(ms(2_000)).await.unwrap();
    assert!(guard.is_some(), "nobody else wants it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_alone_find_out_that_the_connection_is_dead() {
    let Some(network) = Network::new("dead connection, tries").await else { return };
    let client = network.client(Client::builder()).await;
    client.mutex("warm").lock().await.unwrap().release().await.unwrap();
    network.proxy.kill_present_connections_silently();
    let began = Instant::now();
    while client.mutex("m").try_lock().await.is_err() {
        assert!(began.elapsed() < ms(4_000), "no new connection was made");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_of_short_leases_finds_out_that_its_connection_is_dead() {
    let Some(network) = Network::new("dead connection, keeper").await else { return };
    // One renewal may take less than the silence that condemns a connection.
    let client = network.client(Client::builder().lease(ms(1_200))).await;
    let guard = client.mutex("m").lock().await.unwrap();
    // Renewed once: the keeper has its connection.
    sleep(ms(600)).await;
    network.proxy.kill_present_connections_silently();
    sleep(ms(1_200)).await;
    // Whether this one survived is a matter of luck; the next one must be kept again.
    drop(guard);
    let guard = client.mutex("n").lock().timeout(ms(4_000)).await.unwrap();
    sleep(ms(1_500)).await;
    assert!(guard.is_valid(), "the keeper still speaks into the void");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_left_on_a_dead_connection_does_not_keep_others_from_listening() {
    let Some(network) = Network::new("dead connection, sweep").await else { return };
    let store = network.store().await;
    let subscription = store.watch(watch("a")).await.unwrap();
    network.proxy.kill_present_connections_silently();
    // The last listener goes: the server is told so, and does not hear it.
    drop(subscription);
    sleep(ms(50)).await;
    let began = Instant::now();
    let subscription = loop {
        assert!(began.elapsed() < ms(5_000), "nobody can listen any more");
        if let Ok(Ok(subscription)) = timeout(ms(5_000), store.watch(watch("b"))).await {
            break subscription;
        }
    };
    settled(&subscription).await;
    network.publish("b");
    timeout(ms(1_000), subscription.notified()).await.expect("it listens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_channels_do_not_keep_a_connection_from_being_made_again() {
    let Some(network) = Network::new("many channels").await else { return };
    let store = network.store().await;
    let mut subscriptions = Vec::new();
    for i in 0..200 {
        subscriptions.push(store.watch(watch(&format!("n{i}"))).await.unwrap());
    }
    // One after the other they would take five seconds.
    network.proxy.delay_answers(ms(25));
    network.kill("pubsub");
    let began = Instant::now();
    while !matches!(timeout(ms(2_000), store.inspect(name("n"))).await, Ok(Ok(_))) {
        assert!(began.elapsed() < ms(2_500), "no connection was made again");
    }
    for subscription in [&subscriptions[0], &subscriptions[199]] {
        settled(subscription).await;
    }
    network.publish("n199");
    timeout(ms(1_000), subscriptions[199].notified()).await.expect("it listens on the new connection too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_on_a_slow_network_renews_in_time_although_it_has_to_connect_first() {
    let Some(network) = Network::new("slow keeper").await else { return };
    // Connecting takes two answers and renewing one: half of the lease.
    network.proxy.delay_answers(ms(330));
    let client = network.client(Client::builder().lease(ms(2_000))).await;
    let guard = client.mutex("m").lock().await.unwrap();
    sleep(ms(2_300)).await;
    assert!(guard.is_valid(), "never renewed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_on_a_slow_network_connects_again_within_a_lease() {
    let Some(network) = Network::new("slow keeper, cut").await else { return };
    network.proxy.delay_answers(ms(100));
    let client = network.client(Client::builder().lease(ms(1_000))).await;
    let guard = client.mutex("m").lock().await.unwrap();
    sleep(ms(1_200)).await;
    assert!(guard.is_valid());
    network.kill("normal");
    sleep(ms(1_500)).await;
    assert!(guard.is_valid(), "lost although the server was there all the time");
    let next = client.mutex("n").lock().timeout(ms(4_000)).await.unwrap();
    assert!(next.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_on_a_connection_that_was_replaced_counts_for_nothing() {
    let Some(network) = Network::new("replaced connection").await else { return };
    let store = network.store().await;
    let listen = |text: &str| {
        let (store, watch) = (Arc::clone(&store), watch(text));
        tokio::spawn(async move { store.watch(watch).await })
    };
    network.proxy.delay_answers_of_present_connections(ms(1_000));
    let first = listen("a");
    sleep(ms(50)).await;
    let second = listen("b");
    // A request given up after such a silence takes the connection with it, and the next one makes another.
    let given_up = timeout(ms(600), store.inspect(name("z"))).await;
    assert!(given_up.is_err(), "the hiccup was not met: nothing was tested");
    store.inspect(name("z")).await.unwrap();
    assert_eq!(network.proxy.connections(), 2);
    for (task, text) in [(first, "a"), (second, "b")] {
        let subscription = match task.await.unwrap() {
            Ok(subscription) => subscription,
            Err(_) => store.watch(watch(text)).await.unwrap(),
        };
        let later = store.watch(watch(text)).await.unwrap();
        settled(&subscription).await;
        settled(&later).await;
        network.publish(text);
        for subscription in [subscription, later] {
            timeout(ms(1_000), subscription.notified()).await.unwrap_or_else(|_| panic!("nobody is subscribed to {text}"));
        }
    }
}
