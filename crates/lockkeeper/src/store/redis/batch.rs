//! Requests for mutexes travel in batches where they would otherwise queue: one script call acquires and releases up to 64 mutexes, each for
//! itself.
//!
//! One request at a time goes out by itself and at once. While it is under way others collect, for one turn of the executor: those whose
//! answers came together ask together again. So a busy server is asked less often for the same work, an idle one answers as fast as
//! ever, and no request waits for another's round trip.
//!
//! A batch has members of one executor only, and a task of that executor sends it. So no member depends on an executor that has stopped or
//! does not run, and a caller that goes away leaves the others their answers.

use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use super::config::Durability;
use super::locks::{registered, text};
use super::request::{Request, Site};
use super::transport::Transport;
use super::{error, millis, names, parsed, script};
use crate::backend::{Kind, Register};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::sync::{Mutex, MutexGuard, Notify};
use crate::runtime::{self, Executor, Instant, Runtime};

/// The most members of a batch: more would keep the server from others for too long.
const MOST: usize = 64;

/// So many batches may be under way: enough that one waits only where the server cannot keep up.
const UNDER_WAY: usize = 16;

/// As many where the server waits for replicas after each batch before it answers anything behind it: more would only queue, and be smaller.
const UNDER_WAY_DURABLE: usize = 2;

/// The longest that a batch waits for another to be answered.
const MOMENT: Duration = Duration::from_millis(1);

/// The script's code for a member that has to be sent by itself.
const SINGLE: i64 = -9;

/// The script's code for a member that was granted.
const GRANTED: i64 = 1;

/// The script's code for a member that came too late.
const LATE: i64 = -1;

/// What is wanted of one mutex.
pub(super) struct Step {
    pub(super) name: Name,
    pub(super) owner: WireOwner,
    pub(super) want: Want,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Acquire { lease: Duration, not_after: Instant, register: Register },
    Release,
}

/// How a request goes out.
pub(super) enum Route<'a> {
    /// By itself; it is under way until the permit is dropped.
    Single(Option<SemaphorePermit<'a>>),
    /// It went in a batch, and this is what the script says of it.
    Batched([i64; 2]),
}

pub(super) struct Batcher {
    single: Semaphore,
    batches: Semaphore,
    /// Where grants must be before they count.
    durable: Durability,
    /// The batches that can still be joined: at most one per executor.
    open: Mutex<Vec<(Executor, Arc<Batch>)>>,
}

/// What the script says of one step; `None`: send it by itself.
type Answer = Result<Option<[i64; 2]>>;

type Members = Vec<(Step, oneshot::Sender<Answer>)>;

/// What carries batches to the servers. A trait, so that schedules of a batch can be explored without a server.
pub(super) trait Carrier: Send + Sync + 'static {
    fn runtime(&self) -> &Runtime;

    /// Two numbers per step, or none at all where each has to be sent by itself; and why grants among them do not count.
    fn ask(&self, steps: &[Step], durable: Durability) -> impl Future<Output = Result<(Vec<i64>, Option<Error>)>> + Send;
}

impl Carrier for Transport {
    fn runtime(&self) -> &Runtime {
        self.runtime()
    }

    async fn ask(&self, steps: &[Step], durable: Durability) -> Result<(Vec<i64>, Option<Error>)> {
        let keys: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        let arguments = |site: &Site<'_>| arguments(steps, site);
        let request = Request::script(&script::MUTEX_MANY, &keys, &arguments).durable(durable);
        let (answer, doubt) = match self.send(keys[0], &request).await {
            Ok(answer) => (answer, None),
            Err(failed) => match failed.doubtful() {
                // The server refuses the whole call for one key. The script itself never fails on a missing right.
                Err(error) if error.kind() == ErrorKind::Denied => return Ok((Vec::new(), None)),
                doubtful => doubtful?,
            },
        };
        let numbers: Vec<i64> = parsed(answer)?;
        if numbers.len() == 2 * steps.len() { Ok((numbers, doubt)) } else { Err(error::too_few()) }
    }
}

#[derive(Default)]
struct Batch {
    members: Mutex<Members>,
    full: Notify,
}

impl Batcher {
    pub(super) fn new(durable: Durability) -> Arc<Self> {
        let under_way = if durable == Durability::Master { UNDER_WAY } else { UNDER_WAY_DURABLE };
        Arc::new(Self { single: Semaphore::new(1), batches: Semaphore::new(under_way), durable, open: Mutex::default() })
    }

    /// Finds a route for a step; waits for its answer if that is a batch.
    pub(super) async fn route(self: &Arc<Self>, transport: &Arc<impl Carrier>, step: Step) -> Result<Route<'_>> {
        if let Ok(slot) = self.single.try_acquire() {
            return Ok(Route::Single(Some(slot)));
        }
        let Some(executor) = runtime::executor() else { return Ok(Route::Single(None)) };
        match self.join(transport, executor, step).await {
            Ok(answer) => Ok(answer?.map_or(Route::Single(None), Route::Batched)),
            // The executor is gone, and the batch with it.
            Err(_) => Ok(Route::Single(None)),
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<(Executor, Arc<Batch>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join<C: Carrier>(self: &Arc<Self>, transport: &Arc<C>, executor: Executor, step: Step) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        let mut open = self.open();
        let at = open.iter().position(|(ours, _)| *ours == executor).unwrap_or_else(|| {
            open.push((executor, Arc::default()));
            open.len() - 1
        });
        let batch = Arc::clone(&open[at].1);
        let mut members = batch.members();
        members.push((step, answer));
        let count = members.len();
        drop(members);
        if count == MOST {
            open.swap_remove(at);
            batch.full.notify_one();
        }
        drop(open);
        if count == 1 {
            let sending = Sending { batcher: Arc::clone(self), batch };
            let transport = Arc::clone(transport);
            runtime::spawn_if_possible(async move { sending.run(&*transport).await });
        }
        answered
    }

    /// Nobody joins it from here on.
    fn close(&self, batch: &Arc<Batch>) -> Members {
        self.open().retain(|(_, open)| !Arc::ptr_eq(open, batch));
        std::mem::take(&mut *batch.members())
    }
}

impl Batch {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that sends a batch. If it is dropped before, with its executor, the members are told and send by themselves.
struct Sending {
    batcher: Arc<Batcher>,
    batch: Arc<Batch>,
}

impl Drop for Sending {
    fn drop(&mut self) {
        drop(self.batcher.close(&self.batch));
    }
}

impl Sending {
    async fn run(self, transport: &impl Carrier) {
        // All that can run now runs before us, and joins.
        tokio::task::yield_now().await;
        let _slot = tokio::select! {
            biased;
            slot = self.batcher.batches.acquire() => slot.ok(),
            () = self.batch.full.notified() => None,
            () = transport.runtime().sleep_until(transport.runtime().now().plus(MOMENT)) => None,
        };
        let mut members = self.batcher.close(&self.batch);
        // What was given up before it was sent is not sent.
        members.retain(|(step, answer)| step.want == Want::Release || !answer.is_closed());
        let (steps, mut answers): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        let told = if steps.len() > 1 {
            tokio::select! {
                biased;
                told = Box::pin(transport.ask(&steps, self.batcher.durable)) => told,
                // A batch lives for as long as a member waits for it: on a silent connection it would hold its slot for ever.
                () = abandoned(&mut answers) => return,
            }
        } else {
            Ok((Vec::new(), None))
        };
        for (at, answer) in answers.into_iter().enumerate() {
            let told = match &told {
                Ok((numbers, doubt)) => match (numbers.get(2 * at..2 * at + 2), doubt) {
                    (Some(&[GRANTED, _]), Some(doubt)) if steps[at].want != Want::Release => Err(doubt.clone()),
                    // By itself it is sent again, once the server's clock was measured.
                    (Some(&[LATE, _]), _) if steps[at].want != Want::Release => Ok(None),
                    (Some(&[code, value]), _) if code != SINGLE => Ok(Some([code, value])),
                    _ => Ok(None),
                },
                Err(error) => Err(error.clone()),
            };
            // A member that went away needs no answer; what it may have acquired is being released.
            let _ = answer.send(told);
        }
    }
}

/// Ends when no member waits any more.
async fn abandoned(answers: &mut [oneshot::Sender<Answer>]) {
    std::future::poll_fn(|cx| {
        // The first that still waits keeps the batch alive, and wakes us when it goes.
        if answers.iter_mut().all(|answer| answer.poll_closed(cx).is_ready()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn arguments(steps: &[Step], site: &Site<'_>) -> Vec<Vec<u8>> {
    let mut arguments = Vec::with_capacity(3 + 3 * steps.len());
    arguments.push(steps.first().map_or_else(Vec::new, |step| site.tokens(&step.name, false)));
    let latest = steps.iter().filter_map(|step| match step.want {
        Want::Acquire { not_after, .. } => Some(not_after),
        Want::Release => None,
    });
    arguments.push(latest.min().map_or_else(|| b"9007199254740991".to_vec(), |earliest| site.micros(earliest)));
    let registers = |step: &Step| match step.want {
        Want::Acquire { register, .. } => register,
        Want::Release => Register::No,
    };
    let none = steps.iter().all(|step| registers(step) == Register::No);
    arguments.push(if none { Vec::new() } else { steps.iter().map(|step| b'0' + registered(registers(step))).collect() });
    for Step { name, owner, want } in steps {
        arguments.push(text(owner));
        arguments.extend(match want {
            Want::Acquire { lease, not_after, .. } => [millis(*lease), site.micros(*not_after)],
            Want::Release => [b"0".to_vec(), names::channel(name, Kind::Mutex, None).into_bytes()],
        });
    }
    arguments
}

#[cfg(lockkeeper_shuttle)]
#[path = "../../../../../verify/schedules/scenarios/batch.rs"]
pub(crate) mod schedules;
