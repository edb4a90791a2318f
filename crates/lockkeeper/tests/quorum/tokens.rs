//! Tokens of a quorum follow its servers' clocks: they never run away from them, and never go back when servers forget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Claim, Decision, Release, VoteRequest, Voter};
use lockkeeper::layer::Quorum;
use lockkeeper::name::Name;
use lockkeeper::owner::{ClientId, WireOwner};
use lockkeeper::runtime::Runtime;
use tokio::time::sleep;

use crate::attacks::{LEASE, ask, granted};
use crate::sick::{Illness, Ward};

const SECOND: u64 = 1_000_000;
const MINUTE: Duration = Duration::from_secs(60);

/// What the fastest clock of these servers says.
async fn clock(ward: &Ward, runtime: &Runtime) -> u64 {
    let mut latest = 0;
    for index in 0..ward.stores.len() {
        let late = ask(runtime, 0).with_times(lockkeeper::runtime::Instant::default(), lockkeeper::runtime::Instant::default());
        let vote = ward.server(index).vote(VoteRequest::new(late, 0, MINUTE)).await.unwrap();
        assert_eq!(vote.decision, Decision::Cast(Attempt::Late));
        latest = latest.max(vote.clock);
    }
    latest
}

/// Grants by several clients on names of their own, all at once. Returns by how much a token was ahead of the fastest clock, at most.
async fn furthest_ahead(ward: &Ward, runtime: &Runtime, clients: u64, grants: u64) -> u64 {
    const TASKS: u64 = 32;
    let furthest = Arc::new(AtomicU64::new(0));
    let fastest = {
        // Simulated time is the same for all, so the clock is known without asking.
        let (then, at) = (clock(ward, runtime).await, runtime.now());
        let runtime = runtime.clone();
        move || then + u64::try_from(runtime.now().since(at).as_micros()).unwrap()
    };
    let mut tasks = Vec::new();
    for client in 0..clients {
        let quorum = Arc::new(ward.newcomers(MINUTE));
        for task in 0..TASKS {
            let (quorum, runtime, furthest, fastest) =
                (Arc::clone(&quorum), runtime.clone(), Arc::clone(&furthest), fastest.clone());
            tasks.push(tokio::spawn(async move {
                let name = Name::new(format!("m-{client}-{task}")).unwrap();
                let mut last = 0;
                for number in 1..=grants / clients / TASKS {
                    let owner = WireOwner::new(ClientId::from_bits(u128::from(client + 1)), task << 32 | number);
                    let request = ask(&runtime, number).with_name(name.clone()).with_owner(owner);
                    let token = granted(quorum.acquire(request).await).expect("nobody else wants it");
                    assert!(token > last, "{token} after {last}");
                    last = token;
                    furthest.fetch_max(token.saturating_sub(fastest()), Ordering::Relaxed);
                    let release = Release::new(name.clone(), Claim::Mutex, owner);
                    quorum.release(release).await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    furthest.load(Ordering::Relaxed)
}

/// Three servers with clocks of their own, and a network whose delays vary.
async fn servers(runtime: &Runtime, illness: Illness) -> Ward {
    let ward = Ward::new(3, runtime);
    // All of them are ten minutes behind this machine's wall clock, and a little apart.
    for (server, ahead) in [0, 40_000, -250_000].into_iter().enumerate() {
        ward.set_clock_ahead(server, ahead - 600 * SECOND as i64);
    }
    ward.newcomers(MINUTE).admit_new().await.unwrap();
    (0..3).for_each(|server| ward.fall_ill(server, illness));
    ward
}

const NETWORK: Illness = Illness::Jittery(Duration::from_millis(2));

/// P2, over 100,000 grants by four clients: tokens stay within a second of the servers' clocks. This machine's wall clock, which is ten minutes
/// ahead of them, moves nothing.
#[tokio::test(start_paused = true)]
async fn tokens_stay_close_to_the_clocks_of_the_servers() {
    let runtime = Runtime::simulated();
    let ward = servers(&runtime, NETWORK).await;
    let ahead = furthest_ahead(&ward, &runtime, 4, 100_000).await;
    println!("100,000 grants: at most {ahead} µs ahead of the fastest clock");
    assert!(ahead < SECOND, "{ahead} µs ahead of the fastest clock");
}

/// The control: clients that learn the lead from tokens are found. Their own head start comes back to them and grows.
#[tokio::test(start_paused = true)]
async fn a_lead_learned_from_tokens_is_found() {
    let runtime = Runtime::simulated();
    let ward = servers(&runtime, Illness::ClockFromTokens).await;
    let ahead = furthest_ahead(&ward, &runtime, 4, 10_000).await;
    assert!(ahead > SECOND, "only {ahead} µs ahead of the fastest clock");
}

/// All servers are flushed, and vote again after the quarantine: tokens are larger than before, though they were ahead of the clocks.
#[tokio::test(start_paused = true)]
async fn tokens_grow_after_all_servers_forgot_everything() {
    let runtime = Runtime::simulated();
    let ward = servers(&runtime, NETWORK).await;
    furthest_ahead(&ward, &runtime, 2, 2_000).await;
    // The worst that a client can do: it asks each server for the largest token that it accepts.
    let mut last = 0;
    for server in 0..3 {
        let request = ask(&runtime, 1).with_name(Name::new("worst").unwrap());
        let request = VoteRequest::new(request, u64::MAX / 4, MINUTE);
        let vote = ward.server(server).vote(request).await.unwrap();
        let Decision::Cast(Attempt::Granted(grant)) = vote.decision else { panic!("{vote:?}") };
        let token = grant.token.unwrap();
        assert!(token <= vote.clock + 31 * SECOND, "server {server} was moved by {} µs", token - vote.clock);
        last = last.max(token);
    }
    let before: Quorum = ward.newcomers(MINUTE);
    let attempt = before.acquire(ask(&runtime, 2)).await;
    last = last.max(granted(attempt.clone()).unwrap_or_else(|| panic!("{attempt:?}")));
    ward.stores.iter().for_each(|store| store.flush());
    let after = ward.newcomers(MINUTE);
    assert!(after.acquire(ask(&runtime, 3)).await.is_err(), "in quarantine");
    sleep(MINUTE).await;
    let token = granted(after.acquire(ask(&runtime, 4)).await).expect("the quarantine is over");
    assert!(token > last, "{token} after {last}");
}

/// A server whose clock is far ahead of the others does not move their tokens. The others decide; without them there is no majority.
#[tokio::test(start_paused = true)]
async fn a_server_whose_clock_is_wrong_does_not_move_the_others() {
    for wrong in [600, -600_i64] {
        let runtime = Runtime::simulated();
        let ward = Ward::new(3, &runtime);
        ward.newcomers(MINUTE).admit_new().await.unwrap();
        ward.set_clock_ahead(1, wrong * SECOND as i64);
        (0..3).for_each(|server| ward.fall_ill(server, NETWORK));
        let quorum = ward.newcomers(MINUTE);
        let mut last = 0;
        for number in 1..=200 {
            let request = ask(&runtime, number).with_lease(LEASE);
            let attempt = quorum.acquire(request.clone()).await;
            let Some(token) = granted(attempt.clone()) else { panic!("{wrong} s, request {number}: {attempt:?}") };
            assert!(token > last, "{token} after {last}");
            last = token;
            let release = Release::new(request.name, Claim::Mutex, request.owner);
            quorum.release(release).await.unwrap();
        }
        let truth = runtime.wall_micros();
        assert!(last < truth + SECOND, "{wrong} s: {} µs ahead", last - truth);
        ward.fall_ill(0, Illness::Dead);
        let error = quorum.acquire(ask(&runtime, 1_000)).await.unwrap_err();
        assert!(error.to_string().contains("the other servers'; set its clock right"), "{error}");
    }
}

/// Clocks that were set back leave counters ahead of them. The servers still agree, and tokens grow.
#[tokio::test(start_paused = true)]
async fn servers_whose_counters_are_ahead_of_their_clocks_still_agree() {
    let runtime = Runtime::simulated();
    let before = Ward::new(3, &runtime);
    let quorum = before.newcomers(MINUTE);
    quorum.admit_new().await.unwrap();
    let release = |request: &Acquire| {
        let Acquire { name, owner, .. } = request.clone();
        Release::new(name, Claim::Mutex, owner)
    };
    sleep(2 * MINUTE).await;
    let request = ask(&runtime, 100);
    let granted_before = granted(quorum.acquire(request.clone()).await).expect("a grant");
    quorum.release(release(&request)).await.unwrap();
    // The clock of a new runtime is where that of the first one was two minutes ago. The counters are a second apart.
    let runtime = Runtime::simulated();
    let ward = Ward::new(3, &runtime);
    (0..3).for_each(|server| ward.stores[server].restore(&before.stores[server].save()));
    (0..3).for_each(|server| ward.set_clock_ahead(server, server as i64 * SECOND as i64));
    let fastest = clock(&ward, &runtime).await;
    assert!(fastest + 117 * SECOND < granted_before, "the test moved the clocks by {} µs", granted_before - fastest);
    let (quorum, mut last) = (ward.newcomers(MINUTE), granted_before);
    for number in 1..=50 {
        let request = ask(&runtime, number);
        let attempt = quorum.acquire(request.clone()).await;
        let token = granted(attempt.clone()).unwrap_or_else(|| panic!("request {number}: {attempt:?}"));
        assert!(token > last, "{token} after {last}");
        last = token;
        quorum.release(release(&request)).await.unwrap();
    }
}
