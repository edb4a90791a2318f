//! What breaks quorums: servers that forget, servers that die, and clients that see different ones.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Claim, Decision, LossReason, Release, Renew, Renewed, VoteRequest, Voter};
use lockkeeper::layer::Quorum;
use lockkeeper::name::Name;
use lockkeeper::owner::{ClientId, WireOwner};
use lockkeeper::runtime::Runtime;
use lockkeeper::{ErrorKind, Result};
use tokio::time::{Instant, sleep, timeout};

use crate::sick::{Illness, MAX_LEASE, Ward};

pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) fn ask(runtime: &Runtime, number: u64) -> Acquire {
    let now = runtime.now();
    Acquire::new(Name::new("m").unwrap(), Claim::Mutex, WireOwner::new(ClientId::from_bits(1), number), LEASE)
        .with_times(now, now.plus(Duration::from_secs(2)))
}

pub(crate) fn granted(attempt: Result<Attempt>) -> Option<u64> {
    match attempt {
        Ok(Attempt::Granted(grant)) => grant.token,
        _ => None,
    }
}

/// A holder with the votes of the first three of five, a rival that sees only the last three, and the one between them that forgets.
/// Gives whether the rival got it too.
async fn two_holders(forgets: fn(&Ward), rivals_server: Illness) -> bool {
    let runtime = Runtime::simulated();
    let ours = Ward::new(5, &runtime);
    let holder = ours.quorum().await;
    for server in [3, 4] {
        ours.fall_ill(server, Illness::Dead);
    }
    assert!(granted(holder.acquire(ask(&runtime, 1)).await).is_some());
    forgets(&ours);
    let theirs = ours.elsewhere();
    for server in [0, 1] {
        theirs.fall_ill(server, Illness::Dead);
    }
    theirs.fall_ill(2, rivals_server);
    let rival = theirs.newcomers(MAX_LEASE);
    granted(rival.acquire(ask(&runtime, 2)).await).is_some()
}

/// A restart that lost the data.
fn empties(ward: &Ward) {
    ward.stores[2].restart();
    ward.stores[2].forget();
}

/// A flush: the same run, no data.
fn flushes(ward: &Ward) {
    ward.stores[2].forget();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarts_empty_or_is_flushed_makes_no_second_holder() {
    assert!(!two_holders(empties, Illness::None).await);
    assert!(!two_holders(flushes, Illness::None).await);
    assert!(!two_holders(|_| {}, Illness::None).await);
}

/// The control: without quarantine each of these attacks makes two holders.
#[tokio::test(start_paused = true)]
async fn without_quarantine_there_are_two_holders() {
    assert!(two_holders(empties, Illness::Forgetful).await);
    assert!(two_holders(flushes, Illness::Forgetful).await);
}

/// A restart that kept the data may have lost the last of it: it waits as well, and the holder keeps what it has there.
#[tokio::test(start_paused = true)]
async fn a_restart_with_data_is_in_quarantine_too() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(3, &runtime);
    let quorum = ward.quorum().await;
    ward.stores.iter().for_each(|store| store.restart());
    let error = quorum.acquire(ask(&runtime, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    sleep(MAX_LEASE).await;
    assert!(granted(quorum.acquire(ask(&runtime, 2)).await).is_some());
}

/// A holder does not lose its lock because servers forgot it, one after the other, all of them: each gives the vote again.
#[tokio::test(start_paused = true)]
async fn a_holder_gets_forgotten_votes_again() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(5, &runtime);
    let client = ward.client(LEASE).await;
    let guard = client.mutex("m").lock().await.unwrap();
    for server in 0..5 {
        ward.stores[server].forget();
        sleep(LEASE / 2).await;
        assert!(guard.is_valid());
    }
    ward.stores.iter().for_each(|store| store.forget());
    sleep(LEASE * 2).await;
    assert!(guard.is_valid(), "all at once");
    guard.release().await.unwrap();
    ward.left_clean(0..5, Duration::from_secs(1)).await;
}

/// But what was taken away by force is not given again, and neither is what has ended.
#[tokio::test(start_paused = true)]
async fn force_and_time_are_not_undone_by_a_renewal() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(5, &runtime);
    let client = ward.client(LEASE).await;
    let guard = client.mutex("m").lock().await.unwrap();
    assert_eq!(client.force_release("m").await.unwrap().from.len(), 1);
    assert_eq!(timeout(LEASE, guard.lost()).await.unwrap(), LossReason::Gone);
    drop(guard);
    // A renewal that is answered after the end of the hold keeps nothing, though servers in quarantine would give votes.
    let quorum = ward.quorum().await;
    let request = ask(&runtime, 1);
    assert!(granted(quorum.acquire(request.clone()).await).is_some());
    sleep(LEASE).await;
    ward.stores.iter().for_each(|store| store.forget());
    let renew = Renew::new(request.name, Claim::Mutex, request.owner, Some(LEASE));
    assert!(quorum.renew(vec![renew]).await.unwrap()[0].is_err());
}

/// Servers that know of nothing wait, and the error names each of them, why, and the option for a first deployment. That admits them once:
/// not when one of them has voted before.
#[tokio::test(start_paused = true)]
async fn a_first_deployment_is_admitted_on_purpose_only() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(3, &runtime);
    let quorum = ward.newcomers(MAX_LEASE);
    let error = quorum.acquire(ask(&runtime, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    for words in ["0 of 3", "server-0: in quarantine", "server-2: in quarantine", "admit=new"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    // They have begun their quarantine by now: too late to call them new.
    quorum.admit_new().await.unwrap();
    assert!(quorum.acquire(ask(&runtime, 1)).await.is_err());
    ward.stores.iter().for_each(|store| store.forget());
    quorum.admit_new().await.unwrap();
    assert!(granted(quorum.acquire(ask(&runtime, 1)).await).is_some());
    // One forgot: it is not new.
    ward.stores[0].forget();
    quorum.admit_new().await.unwrap();
    ward.fall_ill(1, Illness::Dead);
    let error = quorum.acquire(ask(&runtime, 2)).await.map(|attempt| assert!(!matches!(attempt, Attempt::Granted(_))));
    assert!(error.is_err_and(|error| error.to_string().contains("server-0: in quarantine")));
}

/// Three of five dead, or frozen: a typed error that names each, in time, and nothing left on the two that live.
#[tokio::test(start_paused = true)]
async fn without_a_majority_nothing_is_left_behind() {
    let runtime = Runtime::simulated();
    for (illness, kind) in [(Illness::Dead, ErrorKind::Unavailable), (Illness::Frozen, ErrorKind::Indeterminate)] {
        let ward = Ward::new(5, &runtime);
        let client = ward.client(LEASE).await;
        (2..5).for_each(|server| ward.fall_ill(server, illness));
        let (began, wait) = (Instant::now(), Duration::from_secs(5));
        let error = client.mutex("m").lock().timeout(wait).await.unwrap_err();
        assert!(began.elapsed() <= wait + Duration::from_millis(500), "{illness:?}: told after {:?}", began.elapsed());
        assert_eq!(error.kind(), kind, "{error}");
        for server in 2..5 {
            assert!(error.to_string().contains(&format!("server-{server}: ")), "{error}");
        }
        ward.left_clean(0..2, Duration::from_secs(1)).await;
    }
}

/// What a slow or mute server carries out later is not left there.
#[tokio::test(start_paused = true)]
async fn late_votes_are_taken_back() {
    let runtime = Runtime::simulated();
    for illness in [Illness::Slow(Duration::from_millis(1_500)), Illness::Mute] {
        let ward = Ward::new(5, &runtime);
        let quorum = ward.quorum().await;
        ward.fall_ill(3, illness);
        ward.fall_ill(4, illness);
        // Granted and given back before they answer.
        let request = ask(&runtime, 1);
        let began = Instant::now();
        assert!(granted(quorum.acquire(request.clone()).await).is_some());
        assert!(began.elapsed() < Duration::from_millis(5), "a slow server delayed the grant");
        let release = Release::new(request.name, Claim::Mutex, request.owner);
        assert!(quorum.release(release).await.unwrap().held);
        assert!(began.elapsed() < Duration::from_millis(50), "a slow server delayed the release");
        sleep(Duration::from_secs(3)).await;
        (3..5).for_each(|server| ward.fall_ill(server, Illness::None));
        ward.left_clean(0..5, Duration::from_secs(5)).await;
        // Not granted: two votes are not enough.
        (0..3).for_each(|server| ward.fall_ill(server, Illness::Dead));
        ward.fall_ill(3, illness);
        assert!(granted(quorum.acquire(ask(&runtime, 2)).await).is_none());
        sleep(Duration::from_secs(3)).await;
        (0..5).for_each(|server| ward.fall_ill(server, Illness::None));
        ward.left_clean(0..5, Duration::from_secs(5)).await;
    }
}

/// P2: tokens grow though each grant is given by other servers, whose counters differ.
#[tokio::test(start_paused = true)]
async fn tokens_grow_from_one_majority_to_the_next() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(5, &runtime);
    let mut last = 0;
    for round in 0..50_u64 {
        // A client of its own: it knows nothing of earlier tokens.
        let quorum = ward.newcomers(MAX_LEASE);
        quorum.admit_new().await.unwrap();
        let down = [(round % 5) as usize, (round / 5 % 5) as usize];
        down.iter().for_each(|server| ward.fall_ill(*server, Illness::Dead));
        // Servers that gave out tokens of their own meanwhile.
        let request = ask(&runtime, round).with_name(Name::new("other").unwrap());
        let vote = VoteRequest::new(request.clone(), last + 1_000, MAX_LEASE);
        let vote = ward.stores[(round * 3 % 5) as usize].vote(vote).await.unwrap();
        assert!(matches!(vote.decision, Decision::Cast(Attempt::Granted(_))), "{vote:?}");
        let token = granted(quorum.acquire(ask(&runtime, 1_000 + round)).await).expect("three of five live");
        assert!(token > last, "{token} after {last}");
        last = token;
        let give_back = |name: &Name, owner| Release::new(name.clone(), Claim::Mutex, owner);
        let mine = ask(&runtime, 1_000 + round);
        quorum.release(give_back(&mine.name, mine.owner)).await.unwrap();
        ward.stores[(round * 3 % 5) as usize].release(give_back(&request.name, request.owner)).await.unwrap();
        down.iter().for_each(|server| ward.fall_ill(*server, Illness::None));
    }
    assert_eq!(ward.occupied(), 0);
}

/// A renewal without a majority is an error, releases nothing, and the next one may succeed.
#[tokio::test(start_paused = true)]
async fn a_failed_extension_never_releases() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(5, &runtime);
    let client = ward.client(LEASE).await;
    let guard = client.mutex("m").lock().await.unwrap();
    for illness in [Illness::Dead, Illness::Frozen] {
        (0..3).for_each(|server| ward.fall_ill(server, illness));
        assert!(guard.extend(LEASE).await.is_err());
        assert!(guard.is_valid());
        assert_eq!(ward.occupied(), 5, "a failed extension released something");
        sleep(LEASE / 4).await;
        (0..3).for_each(|server| ward.fall_ill(server, Illness::None));
        sleep(LEASE * 2).await;
        assert!(guard.is_valid());
    }
    guard.release().await.unwrap();
    ward.left_clean(0..5, Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_quorum_that_cannot_be_one_is_refused() {
    let runtime = Runtime::simulated();
    assert_eq!(Quorum::new(Vec::new(), MAX_LEASE, runtime.clone()).unwrap_err().kind(), ErrorKind::Config);
    let ward = Ward::new(3, &runtime);
    let client = ward.client(LEASE).await;
    let error = client.mutex("m").lock().lease(MAX_LEASE * 2).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(client.fair_mutex("m").lock().await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(client.rwlock("m").read().await.unwrap_err().kind(), ErrorKind::Unsupported);
    let (renewed, request) = (ward.quorum().await, ask(&runtime, 1));
    let look = Renew::new(request.name, Claim::Mutex, request.owner, None);
    assert!(matches!(renewed.renew(vec![look]).await.unwrap()[0], Ok(Renewed::Gone)));
}

/// Clients that name the servers in another order, and reach some of them slowly, mean the same store.
#[tokio::test(start_paused = true)]
async fn the_identity_does_not_depend_on_order_or_speed() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(3, &runtime);
    let mut seen = std::collections::BTreeSet::new();
    for (order, slow) in [([0, 1, 2], 0), ([2, 0, 1], 1), ([1, 2, 0], 2)] {
        let here = ward.elsewhere();
        here.fall_ill(slow, Illness::Slow(Duration::from_millis(400)));
        let server = |index: &usize| (format!("server-{index}"), Arc::new(here.server(*index)) as Arc<dyn Voter>);
        let quorum = Quorum::new(order.iter().map(server).collect(), MAX_LEASE, runtime.clone()).unwrap();
        seen.insert(quorum.identity().await.unwrap());
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
}

/// One server under three names would be a majority by itself.
#[tokio::test(start_paused = true)]
async fn one_server_under_several_names_is_refused() {
    let runtime = Runtime::simulated();
    let ward = Ward::new(2, &runtime);
    let quorum = |of: &[usize]| {
        let server = |(at, index): (usize, &usize)| (format!("name-{at}"), Arc::new(ward.server(*index)) as Arc<dyn Voter>);
        Quorum::new(of.iter().enumerate().map(server).collect(), MAX_LEASE, runtime.clone()).unwrap()
    };
    let error = quorum(&[0, 1, 0]).check_distinct().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("name-0 and name-2 are the same server"), "{error}");
    quorum(&[0, 1]).check_distinct().await.unwrap();
    // A server that is down cannot be compared.
    ward.fall_ill(1, Illness::Dead);
    quorum(&[0, 1]).check_distinct().await.unwrap();
}
