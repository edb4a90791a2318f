//! Counting requests: one script per kind, each request carried out once.

use super::batch::{Numbers, Route, Want, What};
use super::locks::{refusal, text};
use super::request::{Failed, Request, Site};
use super::script::{self, Lua};
use super::{RedisStore, parsed};
use crate::backend::{Count, CountOp, CountOutcome, Counted, CounterOp, LatchOp, SemaphoreOp};
use crate::error::Result;

impl RedisStore {
    pub(super) async fn run_count(&self, request: &Count) -> Result<CountOutcome> {
        self.admit(&request.name, request.op.kind())?;
        let want = || {
            let own = request.clone();
            let arguments = Box::new(move |site: &Site<'_>| arguments(&own, site));
            Want::Call { what: What::Counts, script: call(request.op).0, arguments }
        };
        // Nothing that counts waits for replicas.
        let numbers = match self.route(true, &self.releases, &request.name, false, want).await? {
            Route::Batched(numbers) => numbers,
            Route::Single(_slot) => {
                let (keys, arguments) = ([request.name.as_str()], |site: &Site<'_>| arguments(request, site));
                let sent = Request::script(call(request.op).0, &keys, &arguments).looking_first().not_after(request.not_after);
                let answer = self.transport.send(keys[0], &sent).await.map_err(Failed::into_error)?;
                let numbers: Vec<i64> = parsed(answer)?;
                Numbers::new(&numbers).ok_or_else(|| refusal(&numbers, &request.name, request.op.kind()))?
            }
        };
        match numbers[..] {
            [1, done, value] => Ok(CountOutcome::Counted(Counted { done: done == 1, value })),
            [-1] => Ok(CountOutcome::Late),
            _ => Err(refusal(&numbers, &request.name, request.op.kind())),
        }
    }
}

fn arguments(request: &Count, site: &Site<'_>) -> Vec<Vec<u8>> {
    let (_, what, number) = call(request.op);
    let not_after = if request.op.is_read() { b"0".to_vec() } else { site.micros(request.not_after) };
    vec![text(request.id), not_after, site.remembered(request.remember), text(what), text(number)]
}

/// The script for an operation, the name that the script has for it, and the number.
fn call(op: CountOp) -> (&'static Lua, &'static str, i64) {
    match op {
        CountOp::Counter(op) => {
            let (what, number) = match op {
                CounterOp::Init(permits) => ("init", i64::from(permits)),
                CounterOp::Take(permits) => ("take", i64::from(permits)),
                CounterOp::Give(permits) => ("add", i64::from(permits)),
                CounterOp::Add(permits) => ("add", i64::from(permits)),
                CounterOp::Drain => ("drain", 0),
                CounterOp::Read => ("read", 0),
                CounterOp::Remove => ("remove", 0),
            };
            (&script::COUNTER, what, number)
        }
        CountOp::Latch(op) => {
            let (what, number) = match op {
                LatchOp::Init(count) => ("init", i64::from(count)),
                LatchOp::Down => ("down", 0),
                LatchOp::Read => ("read", 0),
                LatchOp::Remove => ("remove", 0),
            };
            (&script::LATCH, what, number)
        }
        CountOp::Semaphore(op) => {
            let (what, number) = match op {
                SemaphoreOp::Init(total) => ("init", i64::from(total)),
                SemaphoreOp::Resize(total) => ("resize", i64::from(total)),
                SemaphoreOp::Read => ("read", 0),
                SemaphoreOp::Remove => ("remove", 0),
            };
            (&script::PERMITS_SIZE, what, number)
        }
    }
}
