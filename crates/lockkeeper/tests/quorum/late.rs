//! Requests that arrive late and answers that are lost: no vote outlives the release, and servers that come back vote again.

use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper::backend::{Backend, Claim, KeepVotes, Release, Renew, Renewed, Voter};
use lockkeeper::runtime::Runtime;
use tokio::time::sleep;

use crate::attacks::{LEASE, ask, granted};
use crate::sick::{Illness, MAX_LEASE, Sort, Ward};

fn release(request: &lockkeeper::backend::Acquire) -> Release {
    Release::new(request.name.clone(), Claim::Mutex, request.owner)
}

/// The request that makes servers agree on a token takes the vote if it arrives after the attempt was given up.
#[tokio::test(start_paused = true)]
async fn a_vote_that_arrives_after_the_attempt_failed_is_withdrawn() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(3, &runtime);
    let quorum = ward.quorum().await;
    ward.fall_ill(2, Illness::Dead);
    // Server 1 answers a smaller token, is asked to raise it, and gets that request when it is too late for the attempt.
    ward.set_clock_ahead(0, 5_000);
    ward.carry_late(1, Sort::Vote, [None, Some(Duration::from_millis(1_900))]);
    let error = quorum.acquire(ask(&runtime, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    sleep(Duration::from_millis(150)).await;
    assert!(!ward.stores[1].is_empty(), "the late request took the vote");
    ward.left_clean(0..3, Duration::from_secs(5)).await;
}

/// A renewal that was under way when the lock was released arrives at a server that has forgotten the vote, and gets it again.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_arrives_after_the_release_is_withdrawn() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(3, &runtime);
    let quorum = ward.quorum().await;
    let request = ask(&runtime, 1);
    assert!(granted(quorum.acquire(request.clone()).await).is_some());
    ward.stores[2].forget();
    ward.carry_late(2, Sort::Renewal, [Some(Duration::from_millis(200))]);
    let renew = Renew::new(request.name.clone(), Claim::Mutex, request.owner, Some(LEASE));
    assert!(matches!(quorum.renew(vec![renew]).await.unwrap()[0], Ok(Renewed::Kept { .. })));
    assert!(quorum.release(release(&request)).await.unwrap().held);
    sleep(Duration::from_millis(250)).await;
    assert!(!ward.stores[2].is_empty(), "the late renewal took the vote");
    ward.left_clean(0..3, Duration::from_secs(5)).await;
}

/// After its time a renewal gives no forgotten vote again, so that the follow-up above is the last word.
#[tokio::test(start_paused = true)]
async fn a_late_renewal_gives_no_vote_again() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(1, &runtime);
    let request = ask(&runtime, 1);
    let renew = Renew::new(request.name.clone(), Claim::Mutex, request.owner, Some(LEASE));
    let keep = |not_after| KeepVotes::new(vec![renew.clone()], not_after, MAX_LEASE);
    let not_after = runtime.now();
    sleep(Duration::from_millis(1)).await;
    assert!(ward.stores[0].keep_votes(keep(not_after)).await.unwrap()[0].is_err(), "in quarantine, and late");
    assert!(ward.stores[0].is_empty());
    let in_time = ward.stores[0].keep_votes(keep(runtime.now())).await.unwrap();
    assert!(matches!(in_time[0], Ok(Renewed::Kept { .. })), "in quarantine, and in time");
}

/// A server that was down when the lock was acquired votes for it after the next renewal. Then another one may fail.
#[tokio::test(start_paused = true)]
async fn a_hold_regains_the_votes_of_servers_that_come_back() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(3, &runtime);
    let client = ward.client(LEASE).await;
    ward.fall_ill(2, Illness::Dead);
    let guard = client.mutex("m").lock().await.unwrap();
    assert_eq!(ward.occupied(), 2);
    ward.fall_ill(2, Illness::None);
    sleep(LEASE).await;
    assert_eq!(ward.occupied(), 3, "the third server votes for the holder");
    ward.fall_ill(0, Illness::Dead);
    sleep(LEASE * 3).await;
    assert!(guard.is_valid(), "two servers of three have the vote");
    ward.fall_ill(0, Illness::None);
    guard.release().await.unwrap();
    ward.left_clean(0..3, LEASE * 2).await;
}

/// But a vote that another owner has is left alone.
#[tokio::test(start_paused = true)]
async fn a_hold_takes_no_vote_of_another_owner() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(3, &runtime);
    let quorum = ward.quorum().await;
    let other = ask(&runtime, 9);
    assert!(granted(ward.stores[2].acquire(other.clone()).await).is_some());
    let request = ask(&runtime, 1);
    assert!(granted(quorum.acquire(request.clone()).await).is_some());
    let renew = Renew::new(request.name.clone(), Claim::Mutex, request.owner, Some(LEASE));
    assert!(matches!(quorum.renew(vec![renew]).await.unwrap()[0], Ok(Renewed::Kept { .. })));
    sleep(Duration::from_secs(5)).await;
    assert!(quorum.release(release(&request)).await.unwrap().held);
    let holder = ward.stores[2].inspect(other.name.clone()).await.unwrap().expect("still held").holders.remove(0);
    assert_eq!(holder.owner, other.owner.to_string());
}
