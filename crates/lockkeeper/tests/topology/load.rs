//! Tasks that take and give back all the time, while something happens to the servers; what they saw is looked at afterwards.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use lockkeeper::{Client, ErrorKind, MutexGuard};
use tokio::task::JoinSet;

use crate::harness::ms;

/// One grant that a task got.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) name: String,
    asked: Instant,
    pub(crate) at: Instant,
    pub(crate) token: u64,
}

/// What the tasks saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) grants: Mutex<Vec<Got>>,
    /// Who holds what by its own word.
    holders: Mutex<HashMap<String, Weak<MutexGuard>>>,
    /// How often somebody got what another held by its own word.
    pub(crate) doubles: AtomicUsize,
    longest: Mutex<Duration>,
}

pub(crate) struct Load {
    pub(crate) seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

/// A call may wait so long.
const WAIT: Duration = Duration::from_secs(10);

/// More than a call may take beyond its wait: the command timeout, twice, on a busy machine.
const BEYOND: Duration = Duration::from_secs(7);

impl Load {
    /// `tasks` for each of the names.
    pub(crate) fn start(client: &Client, names: &[String], tasks: usize) -> Self {
        Self::beside(Arc::default(), client, names, tasks, ms(2))
    }

    /// The same for another client, whose tasks are seen by the same eyes and hold for a given time.
    pub(crate) fn beside(seen: Arc<Seen>, client: &Client, names: &[String], tasks: usize, held: Duration) -> Self {
        let (stop, mut set) = (Arc::<AtomicBool>::default(), JoinSet::new());
        for name in names.iter().flat_map(|name| std::iter::repeat_n(name, tasks)) {
            let (mutex, name, seen, stop) = (client.mutex(name), name.clone(), Arc::clone(&seen), Arc::clone(&stop));
            set.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let asked = Instant::now();
                    match mutex.lock().timeout(WAIT).await {
                        Ok(guard) => {
                            let got =
                                Got { name: name.clone(), asked, at: Instant::now(), token: guard.token().unwrap().number() };
                            seen.grants.lock().unwrap().push(got);
                            let guard = seen.enter(&name, guard);
                            tokio::time::sleep(held).await;
                            // What was lost in a failover is told, and no reason to stop.
                            if let Some(guard) = seen.leave(&name, guard) {
                                let _ = guard.release().await;
                            }
                        }
                        Err(error) => {
                            let passing =
                                [ErrorKind::Unavailable, ErrorKind::Indeterminate, ErrorKind::Timeout, ErrorKind::Unreplicated];
                            assert!(passing.contains(&error.kind()), "{name}: {error:?}");
                            tokio::time::sleep(ms(20)).await;
                        }
                    }
                    let mut longest = seen.longest.lock().unwrap();
                    *longest = longest.max(asked.elapsed());
                }
            });
        }
        Self { seen, stop, tasks: set }
    }

    /// Ends the tasks, and sees that no call hung and that tokens grew.
    pub(crate) async fn end(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = async {
            while let Some(done) = self.tasks.join_next().await {
                done.expect("a task failed");
            }
        };
        tokio::time::timeout(WAIT + BEYOND, ended).await.expect("a call hangs");
        let longest = *self.seen.longest.lock().unwrap();
        assert!(longest < WAIT + BEYOND, "a call took {longest:?}");
        self.seen.tokens_grow();
    }
}

impl Seen {
    fn enter(&self, name: &str, guard: MutexGuard) -> Arc<MutexGuard> {
        let guard = Arc::new(guard);
        let mut holders = self.holders.lock().unwrap();
        let other = holders.insert(name.to_owned(), Arc::downgrade(&guard)).and_then(|other| other.upgrade());
        if other.is_some_and(|other| other.is_valid() && guard.is_valid()) {
            self.doubles.fetch_add(1, Ordering::SeqCst);
        }
        guard
    }

    fn leave(&self, name: &str, guard: Arc<MutexGuard>) -> Option<MutexGuard> {
        let mut holders = self.holders.lock().unwrap();
        if holders.get(name).is_some_and(|holder| std::ptr::eq(holder.as_ptr(), Arc::as_ptr(&guard))) {
            holders.remove(name);
        }
        Arc::into_inner(guard)
    }

    /// When somebody got one of these first after `since`.
    pub(crate) fn first_after(&self, since: Instant, of: impl Fn(&str) -> bool) -> Option<Instant> {
        self.grants.lock().unwrap().iter().filter(|got| got.at > since && of(&got.name)).map(|got| got.at).min()
    }

    /// The longest time in which nobody got one of these.
    pub(crate) fn longest_gap(&self, from: Instant, to: Instant, of: impl Fn(&str) -> bool) -> Duration {
        let mut times: Vec<Instant> = vec![from, to];
        times.extend(
            self.grants.lock().unwrap().iter().filter(|got| of(&got.name)).map(|got| got.at).filter(|at| (from..to).contains(at)),
        );
        times.sort();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// Whoever asked after another had got it has the larger token.
    pub(crate) fn tokens_grow(&self) {
        let mut grants = self.grants.lock().unwrap().clone();
        grants.sort_by(|a, b| (&a.name, a.at).cmp(&(&b.name, b.at)));
        for of_one in grants.chunk_by(|a, b| a.name == b.name) {
            let mut by_asked: Vec<&Got> = of_one.iter().collect();
            by_asked.sort_by_key(|got| got.asked);
            let (mut before, mut largest) = (of_one.iter().peekable(), 0);
            for got in by_asked {
                while let Some(earlier) = before.next_if(|earlier| earlier.at < got.asked) {
                    largest = largest.max(earlier.token);
                }
                assert!(got.token > largest, "{}: token {} after {largest}", got.name, got.token);
            }
        }
    }
}
