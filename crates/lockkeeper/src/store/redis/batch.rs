//! Requests travel in batches where they would otherwise queue: one script call carries out up to 64 steps, each for itself.
//!
//! One request at a time goes out by itself and at once. While it is under way others collect, for one turn of the executor: those whose
//! answers came together ask together again. So a busy server is asked less often for the same work, an idle one answers as fast as
//! ever, and no request waits for another's round trip.
//!
//! A batch has members of one executor only, and a task of that executor sends it. So no member depends on an executor that has stopped or
//! does not run, and a caller that goes away leaves the others their answers.

use std::ops::Deref;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use super::config::Durability;
use super::request::Site;
use super::script::Lua;
use crate::backend::Register;
use crate::error::{Error, Result};
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

/// The scripts' code for a member that was granted.
const GRANTED: i64 = 1;

/// The scripts' code for a member that came too late.
const LATE: i64 = -1;

/// What is wanted of one name.
pub(super) struct Step {
    pub(super) name: Name,
    pub(super) want: Want,
}

pub(super) enum Want {
    /// A mutex.
    Acquire { owner: WireOwner, lease: Duration, not_after: Instant, register: Register },
    /// A mutex.
    Release { owner: WireOwner },
    /// What any other script for one step does.
    Call { what: What, script: &'static Lua, arguments: Made },
}

/// Makes the arguments of a script for the server that gets them.
pub(super) type Made = Box<dyn Fn(&Site<'_>) -> Vec<Vec<u8>> + Send + Sync>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Acquires,
    Releases,
    Counts,
}

impl Step {
    pub(super) const fn what(&self) -> What {
        match self.want {
            Want::Acquire { .. } => What::Acquires,
            Want::Release { .. } => What::Releases,
            Want::Call { what, .. } => what,
        }
    }
}

/// The reply to one step: what the script for it alone replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers([i64; 3], usize);

impl Numbers {
    /// `None`: more than any such script replies.
    pub(super) fn new(numbers: &[i64]) -> Option<Self> {
        let mut of = [0; 3];
        of.get_mut(..numbers.len())?.copy_from_slice(numbers);
        Some(Self(of, numbers.len()))
    }
}

impl Deref for Numbers {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.0[..self.1]
    }
}

/// How a request goes out.
pub(super) enum Route<'a> {
    /// By itself; it is under way until the permit is dropped.
    Single(Option<SemaphorePermit<'a>>),
    /// It went in a batch, and this is what the script says of it.
    Batched(Numbers),
}

pub(super) struct Batcher {
    single: Semaphore,
    batches: Semaphore,
    /// Where grants must be before they count.
    durable: Durability,
    /// The batches that can still be joined: at most one per executor.
    open: Mutex<Vec<(Executor, Arc<Batch>)>>,
}

/// What became of one step; `None`: send it by itself.
pub(super) type Answer = Result<Option<Numbers>>;

type Members = Vec<(Step, oneshot::Sender<Answer>)>;

/// What carries batches to the servers. A trait, so that schedules of a batch can be explored without a server.
pub(super) trait Carrier: Send + Sync + 'static {
    fn runtime(&self) -> &Runtime;

    /// An answer per step, or none at all where each has to be sent by itself; and why grants among them do not count.
    fn ask(&self, steps: &[Step], durable: Durability) -> impl Future<Output = Result<(Vec<Answer>, Option<Error>)>> + Send;
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

    /// Finds a route for a step; waits for its answer if that is a batch. `behind`: it must not overtake those of its executor that gather.
    pub(super) async fn route(
        self: &Arc<Self>,
        transport: &Arc<impl Carrier>,
        behind: bool,
        step: impl FnOnce() -> Step,
    ) -> Result<Route<'_>> {
        let overtakes = behind && self.is_gathering();
        if let Ok(slot) = self.single.try_acquire()
            && !overtakes
        {
            return Ok(Route::Single(Some(slot)));
        }
        let Some(executor) = runtime::executor() else { return Ok(Route::Single(None)) };
        match self.join(transport, executor, step()).await {
            Ok(answer) => Ok(answer?.map_or(Route::Single(None), Route::Batched)),
            // The executor is gone, and the batch with it.
            Err(_) => Ok(Route::Single(None)),
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<(Executor, Arc<Batch>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a batch of this executor has not been sent yet.
    fn is_gathering(&self) -> bool {
        runtime::executor().is_some_and(|ours| self.open().iter().any(|(executor, _)| *executor == ours))
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
        members.retain(|(step, answer)| step.what() == What::Releases || !answer.is_closed());
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
        let mut told = told.map(|(answers, doubt)| (answers.into_iter(), doubt));
        for (step, answer) in steps.iter().zip(answers) {
            let told = match &mut told {
                Ok((answers, doubt)) => match (answers.next().unwrap_or(Ok(None)), doubt, step.what()) {
                    (Ok(Some(numbers)), Some(doubt), What::Acquires) if numbers.first() == Some(&GRANTED) => Err(doubt.clone()),
                    // By itself it is sent again, once the server's clock was measured.
                    (Ok(Some(numbers)), _, What::Acquires | What::Counts) if numbers.first() == Some(&LATE) => Ok(None),
                    (answer, ..) => answer,
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

#[cfg(lockkeeper_shuttle)]
#[path = "../../../../../verify/schedules/scenarios/batch.rs"]
pub(crate) mod schedules;
