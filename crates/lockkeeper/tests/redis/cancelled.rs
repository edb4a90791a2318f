//! Calls that are cancelled all the time, as handlers of HTTP requests are.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use lockkeeper::Client;

use crate::cost::own;
use crate::site::ms;

/// The undo of a cancelled call may overtake its request. Nobody waits until the request can no longer arrive, which takes three seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_calls_block_a_free_name_for_nobody() {
    let Some((server, ours, _eyes)) = own("cancelled calls").await else { return };
    let theirs = Client::connect(server.url(0)).await.unwrap();
    let cancelling = tokio::spawn(async move {
        let mutex = ours.mutex("m");
        for _ in 0..2_000 {
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
    let (longest, long) = (waits[waits.len() - 1], waits.iter().filter(|wait| **wait > ms(50)).count());
    println!("{} waits, {long} of them over 50 ms, the longest {longest:?}", waits.len());
    // On a loaded machine a wait may take long for other reasons, but not as long as an undo that has to be repeated at the end.
    assert!(longest < Duration::from_millis(2_500), "a wait of {longest:?}");
}
