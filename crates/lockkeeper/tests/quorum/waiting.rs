//! Many who want it, of several processes, while servers are down: no lost update, no two inside, no end of waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::runtime::Runtime;
use tokio::time::{Instant, sleep};

use crate::sick::{Illness, Ward};

const LEASE: Duration = Duration::from_secs(30);

/// Six tasks of three processes take it ten times each.
async fn crowd(ward: &Ward) -> Duration {
    let (inside, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = ward.client(LEASE).await;
        for _ in 0..2 {
            let (client, inside) = (client.clone(), Arc::clone(&inside));
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = client.mutex("m").lock().timeout(Duration::from_secs(600)).await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    sleep(Duration::from_millis(2)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_crowd_has_its_turns_whatever_minority_is_ill() {
    for illness in [Illness::None, Illness::Dead, Illness::Frozen, Illness::Mute, Illness::Slow(Duration::from_millis(300))] {
        let ward = Ward::new(5, &Runtime::simulated());
        // Admitted while they are well.
        ward.quorum().await;
        ward.fall_ill(1, illness);
        ward.fall_ill(3, illness);
        let took = crowd(&ward).await;
        // Sixty turns; each may cost a poll in the worst case.
        assert!(took < Duration::from_secs(60), "{illness:?}: {took:?}");
        println!("60 turns with two of five {illness:?}: {took:?}");
        (0..5).for_each(|server| ward.fall_ill(server, Illness::None));
        ward.left_clean(0..5, LEASE * 2).await;
    }
}

/// P6: a waiter of another process is woken by the subscriptions of a majority.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_by_push() {
    let ward = Ward::new(5, &Runtime::simulated());
    let (ours, theirs) = (ward.client(LEASE).await, ward.client(LEASE).await);
    ward.fall_ill(0, Illness::Frozen);
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiter = tokio::spawn(async move { theirs.mutex("m").lock().await.map(|guard| (guard, Instant::now())) });
    sleep(Duration::from_secs(5)).await;
    guard.release().await.unwrap();
    let released = Instant::now();
    let (guard, got) = waiter.await.unwrap().unwrap();
    assert!(got.saturating_duration_since(released) < Duration::from_millis(20), "{:?}", got.saturating_duration_since(released));
    guard.release().await.unwrap();
}
