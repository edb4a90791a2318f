//! Batches of requests: calls that gather get their own answers, and none is stranded when the executor that sends a batch is dropped.
//!
//! What carries a batch to a server is played by [`Line`]: connections need an executor with sockets, which no scheduler of threads has.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::sync::atomic::{AtomicU32, Ordering};

use super::{Answer, Batcher, Carrier, Durability, Error, GRANTED, Numbers, Result, Route, Step, Want};
use crate::backend::Register;
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::{BoxFuture, Crew, Instant, Runtime};
use crate::schedules::machine::Machine;

/// Answers each step with the number of its owner, after so many times that others could run.
struct Line {
    runtime: Runtime,
    turns: u32,
}

impl Carrier for Line {
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    async fn ask(&self, steps: &[Step], _durable: Durability) -> Result<(Vec<Answer>, Option<Error>)> {
        for _ in 0..self.turns {
            tokio::task::yield_now().await;
            shuttle::thread::sleep(Duration::ZERO);
        }
        assert!(steps.len() > 1, "a batch of one goes out by itself");
        let answer = |step: &Step| match step.want {
            Want::Acquire { owner, .. } => Ok(Numbers::new(&[GRANTED, i64::try_from(owner.number).unwrap_or(0)])),
            _ => Ok(None),
        };
        Ok((steps.iter().map(answer).collect(), None))
    }
}

/// One call. Its route must be its own.
async fn call(batcher: Arc<Batcher>, line: Arc<Line>, number: u64, done: Arc<AtomicU32>) {
    let owner = WireOwner { client: ClientId::from_bits(1), number };
    let name = Name::new(format!("n{number}")).expect("a good name");
    let want = Want::Acquire { owner, lease: Duration::from_secs(30), not_after: Instant::NEVER, register: Register::No };
    // Some must not overtake those that gather.
    match batcher.route(&line, number.is_multiple_of(2), || Step { name, want }).await.expect("the line gives no errors") {
        Route::Batched(numbers) => {
            assert_eq!(numbers[..], [GRANTED, i64::try_from(number).unwrap_or(0)], "the answer of another call");
        }
        Route::Single(slot) => {
            // It is under way for a while, so that others gather.
            shuttle::thread::sleep(Duration::ZERO);
            drop(slot);
        }
    }
    done.fetch_add(1, Ordering::SeqCst);
}

/// Two executors with two calls each. Calls of the first one are polled there for a while and go on elsewhere, and it is dropped at any moment.
pub(crate) fn dropped_executor() {
    Machine::run(0, |machine| async move {
        let batcher =
            Batcher::new(if thread_rng().gen_bool(0.5) { Durability::Master } else { Durability::Disk(Duration::ZERO) });
        let line = Arc::new(Line { runtime: machine.runtime(), turns: thread_rng().gen_range(0..3) });
        let done = Arc::new(AtomicU32::new(0));
        // While this one is out, all others gather.
        let first = batcher.single.try_acquire().ok();
        let calls = |numbers: std::ops::Range<u64>| {
            let call = |number| call(Arc::clone(&batcher), Arc::clone(&line), number, Arc::clone(&done));
            numbers.map(|number| Box::pin(call(number)) as BoxFuture<'static, ()>).collect::<Vec<_>>()
        };
        let (stays, goes) = (Crew::default(), Crew::default());
        for task in calls(1..3) {
            stays.add(task);
        }
        let mut moved = Vec::new();
        for mut task in calls(3..5) {
            // Its first poll is on the executor that goes away: it joins a batch there.
            let ended = poll_fn(|cx| std::task::Poll::Ready(goes.on(|| task.as_mut().poll(cx).is_ready()))).await;
            assert!(!ended, "the first request is still out");
            moved.push(machine.start(task));
        }
        let staying = machine.start(stays.work());
        let polls = thread_rng().gen_range(0..6);
        let going = machine.start(async move {
            crate::schedules::notify::poll_times(polls, goes.work()).await;
        });
        if thread_rng().gen_bool(0.5) {
            drop(first);
        }
        for task in moved {
            task.await;
        }
        staying.await;
        going.await;
        assert_eq!(done.load(Ordering::SeqCst), 4, "a call is stranded");
        assert!(batcher.open().is_empty(), "a batch that nobody sends is open");
    });
}
