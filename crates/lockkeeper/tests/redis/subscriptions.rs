//! Subscriptions are what is listened to: nothing is left behind by waits that end early, and nobody waits behind those that leave.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Instant;

use lockkeeper::Client;
use lockkeeper::backend::{Backend, Kind, Watch};
use lockkeeper::name::Name;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use tokio::time::timeout;

use crate::site::{Site, ms, until};

async fn store(site: &Site) -> Arc<RedisStore> {
    RedisStore::connect(Config::parse(&site.url()).unwrap(), &Runtime::system()).await.expect("a connection through the proxy")
}

fn watch(name: &str) -> Watch {
    let owner = "00000000-0000-0000-0000-000000000001:1".parse().unwrap();
    Watch::number(Name::new(name).unwrap(), Kind::Mutex, owner)
}

/// How many channels of mutexes the server has subscribers for.
fn subscribed(site: &Site) -> usize {
    let mut channels = redis::cmd("PUBSUB");
    channels.arg("CHANNELS").arg("redisson_lock__channel:*").query::<Vec<String>>(&mut site.eyes()).unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_while_subscribing_leaves_no_subscription() {
    let Some(site) = Site::sound("cancelled subscriptions").await else { return };
    let store = store(&site).await;
    site.proxy.delay_answers(ms(30));
    for number in 0..40 {
        let ended = timeout(ms(5), store.watch(watch(&format!("n{number}")))).await;
        assert!(ended.is_err(), "the server was too fast: nothing was tested");
    }
    // Another channel makes the round after theirs.
    let kept = store.watch(watch("kept")).await.unwrap();
    until("only the channel that is listened to is left", || subscribed(&site) == 1).await;
    drop(kept);
    until("no channel is left", || subscribed(&site) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_many_channels_does_not_hold_up_a_new_listener() {
    let Some(site) = Site::sound("leaving many channels").await else { return };
    let store = store(&site).await;
    let mut left = Vec::new();
    for number in 0..200 {
        left.push(store.watch(watch(&format!("n{number}"))).await.unwrap());
    }
    // One after the other they would take six seconds.
    site.proxy.delay_answers(ms(30));
    drop(left);
    tokio::time::sleep(ms(10)).await;
    let began = Instant::now();
    let _new = timeout(ms(5_000), store.watch(watch("new"))).await.expect("in time").unwrap();
    assert!(began.elapsed() < ms(1_000), "it listened after {:?}", began.elapsed());
    site.proxy.delay_answers(ms(0));
    until("the others are left", || subscribed(&site) == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_is_left_and_listened_to_again_is_heard() {
    let Some(site) = Site::sound("leave and listen").await else { return };
    let store = store(&site).await;
    site.proxy.delay_answers(ms(10));
    for round in 0..20 {
        let first = store.watch(watch("m")).await.unwrap();
        drop(first);
        if round % 2 == 0 {
            // The server is being told that nobody listens.
            tokio::time::sleep(ms(5)).await;
        }
        let again = store.watch(watch("m")).await.unwrap();
        assert_eq!(subscribed(&site), 1, "round {round}: confirmed, and not subscribed");
        redis::cmd("PUBLISH").arg("redisson_lock__channel:{m}").arg("0").exec(&mut site.eyes()).unwrap();
        timeout(ms(2_000), again.notified()).await.unwrap_or_else(|_| panic!("round {round}: not heard"));
    }
}

/// Taken away from outside, by Redisson's `forceUnlock` or by ours, while another task of the holder's process waits: both learn of it at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_is_told_at_once_where_another_task_of_the_process_waits() {
    let Some(site) = Site::sound("a forced release beside a local waiter").await else { return };
    let (client, other) = (site.client(Client::builder()).await, site.other().await);
    let (mut told, mut served) = (Vec::new(), Vec::new());
    for round in 0..6 {
        let name = format!("m{round}");
        let guard = client.mutex(&name).lock().await.unwrap();
        let waiting = tokio::spawn(client.mutex(&name).lock().into_future());
        until("the waiter listens", || subscribed(&site) > 0).await;
        if round % 2 == 0 {
            assert_eq!(other.force_release(&name).await.unwrap().from.len(), 1);
        } else {
            let channel = format!("redisson_lock__channel:{{{name}}}");
            redis::pipe().atomic().del(&name).cmd("PUBLISH").arg(&channel).arg("0").exec(&mut site.eyes()).unwrap();
        }
        let began = Instant::now();
        timeout(ms(5_000), guard.lost()).await.expect("the holder is told");
        told.push(began.elapsed());
        let next = timeout(ms(5_000), waiting).await.expect("the next one is served").unwrap().unwrap();
        served.push(began.elapsed());
        next.release().await.unwrap();
        until("nobody listens", || subscribed(&site) == 0).await;
    }
    // One or two may have met a busy machine.
    told.sort();
    served.sort();
    assert!(told[3] <= ms(200) && served[3] <= ms(200), "told after {told:?}, served after {served:?}");
}
