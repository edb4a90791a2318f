//! Releases that come at the same time share a statement: a client that closes with a thousand holds sends a few, not a thousand.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Answer, Bounds, Dial, Failed, Link, Outcome, Put, Statements as _};
use crate::error::{Error, ErrorKind};
use crate::runtime;

/// So many statements run beside each other before further puts wait and share one. More than one: a statement of a single put waits for a
/// row lock for up to 100 ms, and must not hold up all others.
const STATEMENTS: u32 = 4;

/// A statement that takes longer is given up, with its connection: puts that come later must not wait for it.
const LIMIT: Duration = Duration::from_secs(5);

/// The most puts in one statement.
const PUTS: usize = 500;

type Told = Result<Answer<Outcome>, Failed>;

/// Puts that wait for a statement.
#[derive(Debug, Default)]
pub(super) struct Batch(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    running: u32,
    puts: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    put: Put,
    bounds: Bounds,
    answer: oneshot::Sender<Told>,
}

impl Batch {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one put, alone or with others. It is written also if the caller stops waiting.
    pub(super) async fn put<D: Dial>(self: &Arc<Self>, link: &Link<D>, put: Put, bounds: Bounds) -> Told {
        let (answer, answered) = oneshot::channel();
        let member = Member { put, bounds, answer };
        let first = {
            let mut waiting = self.waiting();
            if waiting.running < STATEMENTS {
                waiting.running += 1;
                Some(member)
            } else {
                waiting.puts.push(member);
                None
            }
        };
        if let Some(member) = first {
            let (us, link) = (Arc::clone(self), link.clone());
            // A task of its own: the puts of others must not depend on a caller that may go away.
            runtime::spawn(async move { us.run(&link, vec![member]).await });
        }
        let ended = || Failed::Error(Error::new(ErrorKind::Indeterminate, "the store was closed before the answer came"));
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Runs statements until nobody waits.
    async fn run<D: Dial>(&self, link: &Link<D>, mut members: Vec<Member>) {
        loop {
            write(link, members).await;
            let mut waiting = self.waiting();
            if waiting.puts.is_empty() {
                waiting.running -= 1;
                return;
            }
            // One put per name: of two, one is out of date, and which one the server decides by the version.
            let mut names = BTreeSet::new();
            let (now, later) = std::mem::take(&mut waiting.puts)
                .into_iter()
                .partition(|member| names.len() < PUTS && names.insert(member.put.name.clone()));
            (members, waiting.puts) = (now, later);
        }
    }
}

async fn write<D: Dial>(link: &Link<D>, mut members: Vec<Member>) {
    // In the order of names, in which rows are locked.
    members.sort_by(|one, other| one.put.name.cmp(&other.put.name));
    let puts: Vec<Put> = members.iter().map(|member| member.put.clone()).collect();
    // What all members allow. Bounds differ by the time that members waited for each other; a put that is refused is sent again.
    let earliest = members.iter().map(|member| member.bounds.earliest).max().unwrap_or(0);
    let until = members.iter().map(|member| member.bounds.until).min().unwrap_or(i64::MAX);
    let bounds = Bounds { earliest, until };
    let told = match link.live().await {
        Ok(live) => {
            let statement = if puts.len() == 1 { live.put_all(&puts, bounds) } else { live.put_each(&puts, bounds) };
            runtime::within(LIMIT, statement).await.unwrap_or_else(|| {
                live.discard();
                let message = format!("the database did not answer a statement within {LIMIT:?}");
                Err(Failed::Error(Error::new(ErrorKind::Indeterminate, message)))
            })
        }
        Err(error) => Err(Failed::Error(error)),
    };
    // A caller that stopped waiting needs no answer.
    match told {
        Ok(Answer { clock, told }) => {
            for (member, told) in members.into_iter().zip(told) {
                let _ = member.answer.send(Ok(Answer { clock, told }));
            }
        }
        Err(failed) => {
            for member in members {
                let _ = member.answer.send(Err(failed.clone()));
            }
        }
    }
}
