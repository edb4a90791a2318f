//! Calls that are cancelled all the time, as handlers of HTTP requests are.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use lockkeeper::Client;

use crate::cost::own;
use crate::site::ms;

/// The undo of a cancelled call may overtake its request. Nobody waits until the request can no longer arrive, which takes three seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_calls_block_a_free_name_for_nobody() {
    waits_beside(2_000).await;
}

/// The same for longer, on a machine that does nothing else: all but one wait in a thousand end within 50 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a quiet machine: cargo xtask faults"]
async fn ten_thousand_cancelled_calls_block_a_free_name_for_nobody() {
    let waits = waits_beside(10_000).await;
    let Some(at) = (waits.len() * 999 / 1_000).checked_sub(1) else { return };
    assert!(waits[at] < ms(50), "99.9 % of {} waits took up to {:?}", waits.len(), waits[at]);
}

/// The waits of another client beside so many cancelled calls, the shortest first.
async fn waits_beside(calls: u32) -> Vec<Duration> {
    let Some((server, ours, _eyes)) = own("cancelled calls").await else { return Vec::new() };
    let theirs = Client::connect(server.url(0)).await.unwrap();
    let cancelling = tokio::spawn(async move {
        let mutex = ours.mutex("m");
        for _ in 0..calls {
            if let Ok(guard) = tokio::time::timeout(ms(1), mutex.lock().into_future()).await {
                guard.unwrap().release().await.unwrap();
            }
        }
    });
    let mut waits = Vec::new();
    while !cancelling.is_finished() {
        let began = Instant::now();
        let guard = theirs.mutex("m").lock().await.unwrap();
        waits.push(began.elapsed());
        guard.release().await.unwrap();
        tokio::time::sleep(ms(1)).await;
    }
    cancelling.await.unwrap();
    waits.sort_unstable();
    let longest = waits[waits.len() - 1];
    let [most, nearly] = [99, 999].map(|part| waits[waits.len() * part / if part == 99 { 100 } else { 1_000 }]);
    let long = waits.iter().filter(|wait| **wait > ms(50)).count();
    println!("{} waits, {long} over 50 ms; 99 %: {most:?}, 99.9 %: {nearly:?}, longest {longest:?}", waits.len());
    // On a loaded machine a wait may take long for other reasons, but not as long as an undo that has to be repeated at the end.
    assert!(longest < Duration::from_millis(2_500), "a wait of {longest:?}");
    waits
}
