//! Faults on the wire: a request or an answer that is lost, cut, garbled or late must neither leave a lock behind nor take one twice.

use std::time::{Duration, Instant};

use lockkeeper::{Builder, Client, ErrorKind};
use redis::Commands;
use tokio::time::{sleep, timeout};

use crate::proxy::Fault;
use crate::site::{Site, holders, ms, scripts_run, until};

/// Keepers' requests that renew a mutex have this in them, and no others.
const RENEWAL: &str = "\r\nhash\r\n";

fn quick() -> Builder {
    Client::builder().command_timeout(ms(1_000))
}

/// The answer to an acquire is lost: it is asked again by the same owner, held once, and its token is not smaller.
pub(crate) async fn a_lost_grant_is_asked_for_again_and_held_once(site: &Site) {
    let (client, mut eyes) = (site.client(quick()).await, site.eyes());
    let before: u64 = eyes.get("lockkeeper:token").unwrap();
    site.proxy.next("EVALSHA", Fault::LoseReply);
    let guard = client.mutex("m").lock().timeout(ms(2_000)).await;
    assert!(site.proxy.met(), "the fault was not met: nothing was tested");
    let guard = guard.unwrap_or_else(|error| panic!("it was ours all the time: {error}"));
    assert_eq!(holders(&mut eyes, "m"), [(guard.owner().to_string(), 1)], "one owner, once");
    assert!(guard.token().unwrap().number() > before, "a token from before");
    guard.release().await.unwrap();
    assert!(!eyes.exists::<_, bool>("m").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_whose_answer_is_lost_is_asked_again_and_held_once() {
    let Some(site) = Site::sound("acquire reply lost").await else { return };
    a_lost_grant_is_asked_for_again_and_held_once(&site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_whose_answer_is_lost_finds_its_own_grant() {
    let Some(site) = Site::sound("try reply lost").await else { return };
    let client = site.client(quick()).await;
    site.proxy.next("EVALSHA", Fault::LoseReply);
    let guard = client.mutex("m").try_lock().await.unwrap();
    assert!(site.proxy.met() && guard.is_some(), "the lock was ours all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_is_lost_is_sent_again() {
    let Some(site) = Site::sound("acquire lost").await else { return };
    let (client, mut eyes) = (site.client(quick()).await, site.eyes());
    site.proxy.next("EVALSHA", Fault::LoseRequest);
    let guard = client.mutex("m").lock().timeout(ms(5_000)).await.unwrap();
    assert!(site.proxy.met());
    assert_eq!(holders(&mut eyes, "m"), [(guard.owner().to_string(), 1)]);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_answer_is_lost_is_a_success() {
    let Some(site) = Site::sound("release reply lost").await else { return };
    let (client, mut eyes) = (site.client(quick()).await, site.eyes());
    for fault in [Fault::LoseReply, Fault::LoseRequest] {
        let guard = client.mutex("m").lock().await.unwrap();
        site.proxy.next("EVALSHA", fault);
        guard.release().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(site.proxy.met());
        assert!(!eyes.exists::<_, bool>("m").unwrap(), "{fault:?}");
    }
}

/// The deadline stands, and the next renewal comes early: after one lease the hold would be over without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_whose_answer_is_lost_keeps_the_old_deadline_and_is_tried_again_early() {
    let Some(site) = Site::sound("renew reply lost").await else { return };
    let lease = ms(1_500);
    let client = site.client(Client::builder().lease(lease)).await;
    for fault in [Fault::LoseReply, Fault::LoseRequest] {
        site.proxy.next(RENEWAL, fault);
        let guard = client.mutex("m").lock().await.unwrap();
        let mut most = guard.remaining();
        until("the renewal was lost", || {
            assert!(site.proxy.met() || guard.remaining() <= most, "a deadline that moved without an answer");
            most = guard.remaining();
            site.proxy.met()
        })
        .await;
        let lost = Instant::now();
        until("it is renewed", || guard.remaining() > most).await;
        assert!(lost.elapsed() < lease, "{fault:?}: only after {:?}", lost.elapsed());
        assert!(guard.is_valid(), "{fault:?}");
        guard.release().await.unwrap();
    }
}

/// At every byte of it. The server sees half a request and forgets it; we do not know, and ask again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_cut_at_any_byte_is_sent_again() {
    let Some(site) = Site::sound("cut requests").await else { return };
    let (client, mut eyes) = (site.client(quick()).await, site.eyes());
    let (mut at, mut length) = (0, 1);
    while at <= length {
        // Each with a name of its own: what is given back once more in the background must not meet the next one's fault.
        let name = format!("cut{at}");
        site.proxy.next(&name, Fault::CutRequest(at));
        let guard = client.mutex(&name).lock().timeout(ms(5_000)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(site.proxy.met());
        assert_eq!(holders(&mut eyes, &name), [(guard.owner().to_string(), 1)]);
        length = site.proxy.cut_of();
        site.proxy.next(&name, Fault::CutRequest(at));
        guard.release().await.unwrap_or_else(|error| panic!("release of {name}: {error}"));
        assert!(site.proxy.met() && holders(&mut eyes, &name).is_empty(), "release of {name}");
        // All bytes at both ends, where the frame is; of those between, some.
        at += if (40..length.saturating_sub(40)).contains(&at) { 5 } else { 1 };
    }
    assert!(length > 100, "{length} bytes are no acquire");
}

/// At every byte of it. Half an answer is no answer: of the grant, of its release, and of a request that counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_an_answer_cut_at_any_byte_is_no_answer() {
    let Some(site) = Site::sound("cut answers").await else { return };
    let (client, mut eyes) = (site.client(quick()).await, site.eyes());
    let permits = client.counting_semaphore("count");
    let (mut at, mut length, mut counted) = (0, 1, 0);
    while at <= length {
        let name = format!("cut{at}");
        site.proxy.next(&name, Fault::CutReply(at));
        let guard = client.mutex(&name).lock().timeout(ms(5_000)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(site.proxy.met());
        length = site.proxy.cut_of();
        assert_eq!(holders(&mut eyes, &name), [(guard.owner().to_string(), 1)]);
        site.proxy.next(&name, Fault::CutReply(at));
        guard.release().await.unwrap_or_else(|error| panic!("release of {name}: {error}"));
        assert!(site.proxy.met() && holders(&mut eyes, &name).is_empty(), "release of {name}");
        site.proxy.next("count", Fault::CutReply(at));
        permits.release(1).await.unwrap_or_else(|error| panic!("count cut at {at}: {error}"));
        counted += 1;
        assert!(site.proxy.met());
        assert_eq!(eyes.get::<_, i64>("count").unwrap(), counted, "cut at {at}: counted twice, or not at all");
        at += 1;
    }
    assert!(length > 20, "{length} bytes are no answer with a token");
}

/// What is no answer of the protocol ends the connection; the outcome is open, and asked for again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_for_an_answer_drops_the_connection_and_is_asked_again() {
    let Some(site) = Site::sound("garbage").await else { return };
    let (client, mut eyes) = (site.client(quick()).await, site.eyes());
    let all = [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\x00\xff\xfe\r\n", b":12x\r\n", b"$99999999999\r\n"];
    for (number, garbage) in all.into_iter().enumerate() {
        let shown = String::from_utf8_lossy(garbage);
        let name = format!("garbled{number}");
        site.proxy.next(&name, Fault::Garble(garbage));
        let guard = client.mutex(&name).lock().timeout(ms(5_000)).await;
        assert!(site.proxy.met());
        let guard = guard.unwrap_or_else(|error| panic!("{shown:?}: {error:?}"));
        assert_eq!(holders(&mut eyes, &name), [(guard.owner().to_string(), 1)], "{shown:?}");
        guard.release().await.unwrap();
    }
}

/// A well-formed answer that no script of ours gives: told as that, and what may have been taken is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_senseless_answer_is_told_and_leaves_nothing() {
    let Some(site) = Site::sound("senseless answers").await else { return };
    let (client, mut eyes) = (site.client(quick()).await, site.eyes());
    for (number, answer) in [&b"+OK\r\n"[..], b"*0\r\n", b"*1\r\n:77\r\n", b"_\r\n"].into_iter().enumerate() {
        let name = format!("senseless{number}");
        site.proxy.next(&name, Fault::Garble(answer));
        let error = client.mutex(&name).lock().lease(Duration::from_secs(60)).timeout(ms(5_000)).await.unwrap_err();
        assert!(site.proxy.met());
        assert_eq!(error.kind(), ErrorKind::Protocol, "{name}: {error}");
        until("it is given back", || !eyes.exists::<_, bool>(&name).unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_costs_the_wait_limit_and_leaves_nothing() {
    let Some(site) = Site::sound("silent server").await else { return };
    let (client, mut eyes) = (site.client(quick()).await, site.eyes());
    let mutex = client.mutex("m");
    site.proxy.fall_silent(true);
    let began = Instant::now();
    let error = mutex.lock().timeout(ms(700)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "not held by others: {error:?}");
    assert!(began.elapsed() < ms(3_000), "took {:?}", began.elapsed());
    site.proxy.fall_silent(false);
    let guard = mutex.lock().timeout(ms(5_000)).await.expect("the client recovers by itself");
    guard.release().await.unwrap();
    assert!(!eyes.exists::<_, bool>("m").unwrap());
}

/// The first attempt is stuck in the network; the second is granted and released; then the first arrives, too late.
pub(crate) async fn a_request_that_comes_after_its_time_takes_nothing(site: &Site) {
    let (client, mut eyes) = (site.client(Client::builder().command_timeout(ms(600))).await, site.eyes());
    site.proxy.next("EVALSHA", Fault::Hold);
    // A lease so long that only a refusal explains a free name.
    let guard = client.mutex("m").lock().lease(Duration::from_secs(60)).timeout(ms(5_000)).await.unwrap();
    assert!(site.proxy.met());
    guard.release().await.unwrap();
    // Its time has come, and that of whoever looks after what got no answer.
    sleep(ms(1_000)).await;
    assert!(!eyes.exists::<_, bool>("m").unwrap());
    let before = scripts_run(&mut eyes);
    site.proxy.let_go();
    until("the late request has arrived", || scripts_run(&mut eyes) > before).await;
    assert!(!eyes.exists::<_, bool>("m").unwrap(), "a request that its sender gave up holds the lock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_request_let_go_after_its_sender_gave_up_is_refused() {
    let Some(site) = Site::sound("late request").await else { return };
    a_request_that_comes_after_its_time_takes_nothing(&site).await;
}

/// It arrives within its time, but nobody waits for it any more: what it took is given back, long before the lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_arrives_when_its_sender_is_gone_is_undone() {
    let Some(site) = Site::sound("request of one who is gone").await else { return };
    let (client, mut eyes) = (site.client(Client::builder().command_timeout(ms(1_500))).await, site.eyes());
    site.proxy.next("EVALSHA", Fault::Hold);
    let mutex = client.mutex("m");
    let call = async { mutex.lock().lease(Duration::from_secs(60)).await };
    assert!(timeout(ms(300), call).await.is_err(), "it was not held up");
    let before = scripts_run(&mut eyes);
    site.proxy.let_go();
    until("the request has arrived", || scripts_run(&mut eyes) > before).await;
    until("it is undone", || !eyes.exists::<_, bool>("m").unwrap()).await;
}

/// A release is stuck in the network, is sent again, and the name taken again; then the first one arrives.
pub(crate) async fn a_stale_release_frees_nothing_newer(site: &Site) {
    let (client, mut eyes) = (site.client(Client::builder().command_timeout(ms(600))).await, site.eyes());
    let guard = client.mutex("m").lock().await.unwrap();
    site.proxy.next("EVALSHA", Fault::Hold);
    guard.release().await.unwrap();
    assert!(site.proxy.met());
    let newer = client.mutex("m").lock().await.unwrap();
    let before = (holders(&mut eyes, "m"), scripts_run(&mut eyes));
    site.proxy.let_go();
    until("the stale release has arrived", || scripts_run(&mut eyes) > before.1).await;
    assert_eq!(holders(&mut eyes, "m"), before.0, "a stale release freed a newer hold");
    newer.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_release_let_go_under_a_newer_hold_frees_nothing() {
    let Some(site) = Site::sound("stale release").await else { return };
    a_stale_release_frees_nothing_newer(&site).await;
}

/// A holder whose lease ended gives it back when somebody else has it.
pub(crate) async fn a_release_by_one_who_lost_it_frees_nobody(site: &Site) {
    let (client, other, mut eyes) = (site.client(quick()).await, site.other().await, site.eyes());
    let guard = client.mutex("m").lock().lease(ms(300)).await.unwrap();
    let theirs = other.mutex("m").lock().timeout(ms(5_000)).await.unwrap();
    let before = scripts_run(&mut eyes);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    until("it was given back all the same", || scripts_run(&mut eyes) > before).await;
    // A release may be more than one script: this waits for all of it.
    client.close().await.unwrap();
    assert_eq!(holders(&mut eyes, "m"), [(theirs.owner().to_string(), 1)], "freed what somebody else holds");
    theirs.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_after_the_lease_ended_frees_nobody() {
    let Some(site) = Site::sound("release after the lease").await else { return };
    a_release_by_one_who_lost_it_frees_nobody(&site).await;
}

/// Renewals are stuck in the network until the lease has ended and somebody else has the name; then they arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_told_at_the_deadline_and_what_arrives_after_it_revives_nothing() {
    let Some(site) = Site::sound("partition").await else { return };
    let lease = ms(900);
    let (client, other, mut eyes) = (site.client(Client::builder().lease(lease)).await, site.other().await, site.eyes());
    let guard = client.mutex("m").lock().await.unwrap();
    until("the keeper is connected", || !eyes.keys::<_, Vec<String>>("lockkeeper:client:*").unwrap().is_empty()).await;
    site.proxy.next(RENEWAL, Fault::Hold);
    site.proxy.fall_silent(true);
    until("a renewal is on its way", || site.proxy.met()).await;
    let (left, began) = (guard.remaining(), Instant::now());
    let reason = timeout(lease * 4, guard.lost()).await.expect("told");
    assert_eq!(reason, lockkeeper::backend::LossReason::Expired);
    assert!(
        began.elapsed() + ms(5) >= left,
        "unknown is not lost: told {:?} before the deadline",
        left.saturating_sub(began.elapsed())
    );
    assert!(!guard.is_valid());
    let theirs = other.mutex("m").lock().timeout(ms(5_000)).await.expect("free after at most the lease");
    let before = scripts_run(&mut eyes);
    site.proxy.fall_silent(false);
    site.proxy.let_go();
    until("the renewals have arrived", || scripts_run(&mut eyes) > before).await;
    assert!(!guard.is_valid(), "an old grant came back to life");
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(holders(&mut eyes, "m"), [(theirs.owner().to_string(), 1)]);
    theirs.release().await.unwrap();
    // And the client is as good as new.
    client.mutex("m").lock().timeout(ms(5_000)).await.unwrap().release().await.unwrap();
}
