//! Requests for mutexes travel together where they would otherwise queue: one call takes and gives back up to 64 of them, each for itself.
//!
//! One request at a time goes out alone and at once. While it is under way others gather, for one turn of the executor: those whose
//! answers came together ask together again. So a busy server is asked less often for the same work, an idle one answers as fast as
//! ever, and nobody waits for another's round trip.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};

use super::config::Durability;
use super::locks::text;
use super::request::{Request, Site};
use super::transport::Transport;
use super::{error, millis, names, parsed, script};
use crate::backend::Kind;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::{self, Instant};

/// At most so many in one call: more would keep the server from others for too long.
const MOST: usize = 64;

/// So many calls may be under way: enough that one waits only where the server cannot keep up.
const UNDER_WAY: usize = 16;

/// As many where each call has the server wait for others before anything behind it is answered: more would only queue, and carry less
/// each.
const UNDER_WAY_DURABLE: usize = 2;

/// The longest that a call waits for another to be answered.
const MOMENT: Duration = Duration::from_millis(1);

/// The script's word for one that has to be asked for by itself.
const ALONE: i64 = -9;

/// The script's word for one that was granted.
const GRANTED: i64 = 1;

/// What is wanted of one mutex.
pub(super) struct Step {
    pub(super) name: Name,
    pub(super) owner: WireOwner,
    pub(super) want: Want,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Acquire { lease: Duration, not_after: Instant },
    Release,
}

/// How a request goes out.
pub(super) enum Route<'a> {
    /// By itself; it is under way until the permit is dropped.
    Single(Option<SemaphorePermit<'a>>),
    /// It went with others, and this is what the script says of it.
    Batched([i64; 2]),
}

pub(super) struct Batcher {
    alone: Semaphore,
    calls: Semaphore,
    /// Where grants must be before they count.
    durable: Durability,
    /// The call that can still be joined.
    open: Mutex<Option<Arc<Batch>>>,
}

/// What the script says of one step; `None`: ask for it by itself.
type Answer = Result<Option<[i64; 2]>>;

#[derive(Default)]
struct Batch {
    steps: Mutex<Vec<(Step, oneshot::Sender<Answer>)>>,
    full: Notify,
}

impl Batcher {
    pub(super) fn new(durable: Durability) -> Arc<Self> {
        let under_way = if durable == Durability::Master { UNDER_WAY } else { UNDER_WAY_DURABLE };
        Arc::new(Self { alone: Semaphore::new(1), calls: Semaphore::new(under_way), durable, open: Mutex::default() })
    }

    /// Finds a way for a step; waits for its answer if that is together with others.
    pub(super) async fn route(self: &Arc<Self>, transport: &Arc<Transport>, step: Step) -> Result<Route<'_>> {
        if let Ok(slot) = self.alone.try_acquire() {
            return Ok(Route::Single(Some(slot)));
        }
        // The call is a task of its own: a caller that goes away leaves the others their answers. If its executor goes away, so does
        // every answer, and each asks by itself.
        match self.join(transport, step).await {
            Ok(answer) => Ok(answer?.map_or(Route::Single(None), Route::Batched)),
            Err(_) => Ok(Route::Single(None)),
        }
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<Batch>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(self: &Arc<Self>, transport: &Arc<Transport>, step: Step) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        let mut open = self.open();
        let call = Arc::clone(open.get_or_insert_default());
        let mut steps = call.steps();
        steps.push((step, answer));
        let members = steps.len();
        drop(steps);
        if members == MOST {
            *open = None;
            call.full.notify_one();
        }
        drop(open);
        if members == 1 {
            let (us, transport) = (Arc::clone(self), Arc::clone(transport));
            runtime::spawn_if_possible(async move { us.send(&transport, &call).await });
        }
        answered
    }

    async fn send(&self, transport: &Arc<Transport>, call: &Arc<Batch>) {
        // All that can run now runs before us, and joins.
        tokio::task::yield_now().await;
        let _slot = tokio::select! {
            biased;
            slot = self.calls.acquire() => slot.ok(),
            () = call.full.notified() => None,
            () = transport.runtime().sleep_until(transport.runtime().now().plus(MOMENT)) => None,
        };
        let (steps, answers): (Vec<_>, Vec<_>) = self.close(call).into_iter().unzip();
        let told = if steps.len() > 1 { self.ask(transport, &steps).await } else { Ok((Vec::new(), None)) };
        for (at, answer) in answers.into_iter().enumerate() {
            let told = match &told {
                Ok((numbers, doubt)) => match (numbers.get(2 * at..2 * at + 2), doubt) {
                    (Some(&[GRANTED, _]), Some(doubt)) if steps[at].want != Want::Release => Err(doubt.clone()),
                    (Some(&[code, value]), _) if code != ALONE => Ok(Some([code, value])),
                    _ => Ok(None),
                },
                Err(error) => Err(error.clone()),
            };
            // One who went away needs no answer; what it may have taken is being undone.
            let _ = answer.send(told);
        }
    }

    /// Two numbers per step, or none at all where each has to be asked for by itself; and why grants among them do not count.
    async fn ask(&self, transport: &Arc<Transport>, steps: &[Step]) -> Result<(Vec<i64>, Option<Error>)> {
        let keys: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        let arguments = |site: &Site<'_>| arguments(steps, site);
        let sent = Request::script(&script::MUTEX_MANY, &keys, &arguments).durable(self.durable);
        let (answer, doubt) = match transport.send(keys[0], &sent).await {
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

    /// Nobody joins it from here on.
    fn close(&self, call: &Arc<Batch>) -> Vec<(Step, oneshot::Sender<Answer>)> {
        let mut open = self.open();
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, call)) {
            *open = None;
        }
        std::mem::take(&mut *call.steps())
    }
}

impl Batch {
    fn steps(&self) -> MutexGuard<'_, Vec<(Step, oneshot::Sender<Answer>)>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn arguments(steps: &[Step], site: &Site<'_>) -> Vec<Vec<u8>> {
    let mut arguments = Vec::with_capacity(2 + 3 * steps.len());
    arguments.push(steps.first().map_or_else(Vec::new, |step| site.tokens(&step.name, false)));
    let latest = steps.iter().filter_map(|step| match step.want {
        Want::Acquire { not_after, .. } => Some(not_after),
        Want::Release => None,
    });
    arguments.push(latest.min().map_or_else(|| b"9007199254740991".to_vec(), |earliest| site.micros(earliest)));
    for Step { name, owner, want } in steps {
        arguments.push(text(owner));
        arguments.extend(match want {
            Want::Acquire { lease, not_after } => [millis(*lease), site.micros(*not_after)],
            Want::Release => [b"0".to_vec(), names::channel(name, Kind::Mutex, None).into_bytes()],
        });
    }
    arguments
}
