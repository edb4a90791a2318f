//! Users that may do all that locks need, and not all that waiting takes at its best: it works, and `doctor` says what is missing.

use std::time::{Duration, Instant};

use lockkeeper::Client;
use lockkeeper::backend::{Finding, Verdict};
use redis::Commands as _;
use tokio::time::sleep;

use crate::site::{Site, ms, until};

const WAITING: &str = "lockkeeper:waiting:{m}";
const CHANNEL: &str = "redisson_lock__channel:{m}";
/// A client that listens and never asks.
const NOBODY: &str = "00000000-0000-0000-0000-0000000000ff";

/// A server with a user that lacks `rights`, and the user's URL.
async fn lacking(test: &str, rights: &str) -> Option<(Site, String)> {
    let site = Site::sound(test).await?;
    site.tell(&format!("ACL SETUSER worker reset on >secret ~* {rights}"));
    let url = format!("redis://worker:secret@127.0.0.1:{}", site.server.port);
    Some((site, url))
}

/// What is doubtful at the server for this user.
async fn doubtful(url: &str) -> Vec<Finding> {
    let found = Client::examine(url).await.unwrap().findings;
    assert!(!found.iter().any(|finding| matches!(finding.verdict, Verdict::Unfit(_))), "{found:?}");
    found.into_iter().filter(|finding| finding.verdict == Verdict::Doubtful).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_do_everything_lacks_nothing() {
    let Some((_site, url)) = lacking("all rights", "&* +@all").await else { return };
    let doubtful = doubtful(&url).await;
    assert!(doubtful.is_empty(), "{doubtful:?}");
}

/// Nobody waits 20 ms for clients of Redisson that are not there, and those that are there are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_count_listeners_a_release_wakes_at_once_and_tells_redisson() {
    let Some((site, url)) = lacking("a user that counts no listeners", "&* +@all -pubsub").await else { return };
    let doubtful = doubtful(&url).await;
    assert!(doubtful.iter().any(|finding| finding.says.contains("+pubsub|numsub")), "{doubtful:?}");
    let (client, mut eyes, mut listener) = (Client::connect(&url).await.unwrap(), site.eyes(), site.eyes());
    let mut listening = listener.as_pubsub();
    let turn = format!("redisson_lockkeeper_turn:{{m}}:{NOBODY}");
    listening.subscribe(&[turn.as_str(), CHANNEL]).unwrap();
    listening.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for _ in 0..20 {
        let holder = client.mutex("m").lock().await.unwrap();
        eyes.zadd::<_, _, _, ()>(WAITING, NOBODY, 0).unwrap();
        holder.release().await.unwrap();
        for (channel, expected) in [(turn.as_str(), "0 1"), (CHANNEL, "00")] {
            let message = listening.get_message().expect("each release is told");
            let said: String = message.get_payload().unwrap();
            assert_eq!((message.get_channel_name(), said.as_str()), (channel, expected));
        }
    }
}

/// Where only Redisson's channels are allowed a waiter listens as Redisson does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_no_channels_but_those_of_redisson_a_waiter_is_notified() {
    let rights = "+@all resetchannels &redisson_lock__channel:*";
    let Some((site, url)) = lacking("a user with the channels of redisson", rights).await else { return };
    let doubtful = doubtful(&url).await;
    assert!(doubtful.iter().any(|finding| finding.says.contains("&redisson_*")), "{doubtful:?}");
    let (ours, other, mut eyes) = (Client::connect(&url).await.unwrap(), site.other().await, site.eyes());
    for _ in 0..5 {
        let holder = other.mutex("m").lock().await.unwrap();
        let mutex = ours.mutex("m");
        let waiter = tokio::spawn(async move {
            let guard = mutex.lock().timeout(Duration::from_secs(20)).await.expect("a turn");
            (guard, Instant::now())
        });
        // Only a client that listens asks to be woken in turn; it is not reached there.
        until("it listens", || eyes.zcard::<_, u64>(WAITING).unwrap() == 1).await;
        sleep(ms(50)).await;
        let released = Instant::now();
        holder.release().await.unwrap();
        let (guard, got) = waiter.await.unwrap();
        // Less than a waiter takes that polls.
        assert!(got - released < ms(300), "after {:?}", got - released);
        guard.release().await.unwrap();
    }
}
