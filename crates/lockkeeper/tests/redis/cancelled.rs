//! Calls that are cancelled all the time, as handlers of HTTP requests are.

use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper::Client;

use redis::Commands;

use crate::cost::own;
use crate::proxy::Fault;
use crate::site::{Site, ms, scripts_run, until};

/// No waiter waits longer than this for a name that nobody holds.
const LONGEST: Duration = ms(50);

/// The undo of a cancelled call may overtake its request. Nobody waits until the request can no longer arrive, which takes three seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_calls_block_a_free_name_for_nobody() {
    waits_beside(2_000).await;
}

/// The same for longer. With `LOCKKEEPER_REALTIME` set, and started with `chrt -r 1`, no other program takes the processor from it: then nothing is
/// subtracted from the waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute: cargo xtask faults"]
async fn ten_thousand_cancelled_calls_block_a_free_name_for_nobody() {
    waits_beside(10_000).await;
}

/// The request of a cancelled call is stuck in the network. The keeper repeats its undo on another connection, at ever longer intervals; when
/// the request arrives at last, a release is right behind it.
pub(crate) async fn a_release_follows_the_request_of_a_cancelled_call(site: &Site) {
    let (client, mut eyes) = (site.client(Client::builder()).await, site.eyes());
    let mutex = client.mutex("m");
    site.proxy.next("EVALSHA", Fault::Hold);
    let mut call = mutex.lock().lease(Duration::from_secs(60)).into_future();
    while !site.proxy.met() {
        assert!(tokio::time::timeout(ms(1), &mut call).await.is_err(), "it was not held up");
    }
    drop(call);
    let undone = scripts_run(&mut eyes) + 9;
    until("the undo was repeated", || scripts_run(&mut eyes) >= undone).await;
    let before = scripts_run(&mut eyes);
    site.proxy.let_go();
    until("the request has arrived", || scripts_run(&mut eyes) > before).await;
    assert!(!eyes.exists::<_, bool>("m").unwrap(), "held by a call that was cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_undo_of_a_cancelled_call_does_not_overtake_it() {
    let Some(site) = Site::sound("undo behind a request").await else { return };
    a_release_follows_the_request_of_a_cancelled_call(&site).await;
}

/// Another client acquires and releases all the time beside so many cancelled calls, and never waits for long.
async fn waits_beside(calls: u32) {
    let Some((server, _client, _eyes)) = own("cancelled calls").await else { return };
    let (url, over) = (server.url(0), Arc::new(AtomicBool::new(false)));
    let cancelling = on_its_own_thread({
        let (url, over) = (url.clone(), Arc::clone(&over));
        async move {
            let mutex = Client::connect(url).await.unwrap().mutex("m");
            let mut cancelled = 0;
            for _ in 0..calls {
                match tokio::time::timeout(ms(1), mutex.lock().into_future()).await {
                    Ok(guard) => guard.unwrap().release().await.unwrap(),
                    Err(_) => cancelled += 1,
                }
            }
            over.store(true, Ordering::SeqCst);
            cancelled
        }
    });
    let waiting = on_its_own_thread({
        // Those three whose work a wait consists of.
        let others = [cancelling.0, server.pid()];
        async move {
            let machine = Machine([others[0], others[1], this_thread()]);
            let mutex = Client::connect(url).await.unwrap().mutex("m");
            let mut waits = Vec::new();
            while !over.load(Ordering::SeqCst) {
                let (began, stalled) = (Instant::now(), machine.stalled());
                let guard = mutex.lock().await.unwrap();
                waits.push((began.elapsed(), machine.stalled() - stalled));
                guard.release().await.unwrap();
                tokio::time::sleep(ms(1)).await;
            }
            waits
        }
    });
    let (cancelled, waits) =
        tokio::task::spawn_blocking(|| (cancelling.1.join().unwrap(), waiting.1.join().unwrap())).await.unwrap();
    let long = waits.iter().filter(|(wait, _)| *wait > LONGEST).count();
    let (raw, longest) = described(waits.iter().map(|(wait, _)| *wait));
    let (net, ours) = described(waits.iter().map(|(wait, stalled)| wait.saturating_sub(*stalled)));
    let machine = waits.iter().find(|(wait, _)| *wait == longest).map(|(_, stalled)| *stalled).unwrap_or_default();
    println!("{cancelled} of {calls} cancelled; {} waits: {raw}; {long} over {LONGEST:?}", waits.len());
    println!("of the longest the machine took {machine:?}; all without that: {net}");
    let judged = if std::env::var_os("LOCKKEEPER_REALTIME").is_some() { longest } else { ours };
    assert!(judged < LONGEST, "a wait of {judged:?} in which all could run");
}

/// The distribution of these times in words, and the longest.
fn described(times: impl Iterator<Item = Duration>) -> (String, Duration) {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    let longest = *times.last().unwrap();
    (format!("median {:?}, 99 % {:?}, 99.9 % {:?}, longest {longest:?}", at(0.5), at(0.99), at(0.999)), longest)
}

/// Runs it on a thread with an executor of its own; the thread's id, and the thread.
fn on_its_own_thread<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> (u32, thread::JoinHandle<T>) {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        tell.send(this_thread()).unwrap();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    });
    (told.recv().unwrap(), thread)
}

fn this_thread() -> u32 {
    let path = std::fs::read_link("/proc/thread-self").unwrap();
    path.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// What a busy machine does to these threads.
struct Machine([u32; 3]);

impl Machine {
    /// For how long they could have run, and others ran, since they began.
    fn stalled(&self) -> Duration {
        let of = |thread: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap_or_default();
            stat.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
        };
        Duration::from_nanos(self.0.iter().map(of).sum())
    }
}
