//! Counting requests: one script per kind, each request carried out once.

use super::locks::{refusal, text};
use super::request::{Failed, Request, Site};
use super::script::{self, Lua};
use super::{RedisStore, parsed};
use crate::backend::{Count, CountOp, CountOutcome, Counted, CounterOp, LatchOp, SemaphoreOp};
use crate::error::Result;

impl RedisStore {
    pub(super) async fn run_count(&self, request: &Count) -> Result<CountOutcome> {
        self.admit(&request.name, request.op.kind())?;
        let (script, what, number) = call(request.op);
        let arguments = |site: &Site<'_>| {
            let not_after = if request.op.is_read() { b"0".to_vec() } else { site.micros(request.not_after) };
            vec![text(request.id), not_after, site.remembered(request.remember), text(what), text(number)]
        };
        let keys = [request.name.as_str()];
        let sent = Request::script(script, &keys, &arguments).looking_first().not_after(request.not_after);
        let answer = self.transport.send(keys[0], &sent).await.map_err(Failed::into_error)?;
        let numbers: Vec<i64> = parsed(answer)?;
        match numbers[..] {
            [1, done, value] => Ok(CountOutcome::Counted(Counted { done: done == 1, value })),
            [-1] => Ok(CountOutcome::Late),
            _ => Err(refusal(&numbers, &request.name, request.op.kind())),
        }
    }
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
