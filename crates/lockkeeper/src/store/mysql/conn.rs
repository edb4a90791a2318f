//! One connection, owned by a task. Whoever sends a request may go away: the task reads every answer to its end, so that the next request
//! never meets rows of the one before.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};
use tokio::sync::{mpsc, oneshot};

use super::error::{self, Progress};
use crate::error::{Error, ErrorKind};
use crate::runtime;
use crate::store::sql::Failed;

/// A request that takes longer is given up, with its connection.
const LIMIT: Duration = Duration::from_secs(5);

/// A connection that nobody used for so long is checked. The server ends one that it heard nothing from for [`IDLE_END`].
const CHECK: Duration = Duration::from_secs(3);

/// The `wait_timeout` of our connections, in seconds: a transaction that lost its client does not keep rows locked for hours.
pub(super) const IDLE_END: u32 = 12;

/// The rows of each statement of a batch.
pub(super) type Sets = Vec<Vec<Row>>;

/// Statements that are sent together, in one round trip.
#[derive(Debug, Default)]
pub(super) struct Batch {
    texts: Vec<String>,
    /// The place of the commit, counted from zero.
    commit: Option<usize>,
}

impl Batch {
    pub(super) fn of(texts: impl IntoIterator<Item = String>) -> Self {
        Self { texts: texts.into_iter().collect(), commit: None }
    }

    pub(super) fn push(&mut self, text: impl Into<String>) {
        self.texts.push(text.into());
    }

    pub(super) fn begin() -> Self {
        Self::of(["START TRANSACTION".to_owned()])
    }

    pub(super) fn commit(&mut self) {
        self.commit = Some(self.texts.len());
        self.push("COMMIT");
    }

    /// Makes a second batch fail unless the first one ended with [`is_followed_by`](Self::is_followed_by) on the same connection. Its writes
    /// rely on the rows that the first one locked and compare nothing: a copy on another connection would undo later steps.
    fn follows(mut self, number: u64) -> Self {
        // Two rows where one is expected are an error, and the server runs nothing after it. The number counts once.
        let check =
            format!("SET @lk_one = (SELECT 1 UNION ALL SELECT 2 FROM DUAL WHERE NOT (@lk_two <=> {number})), @lk_two = NULL");
        self.texts.insert(0, check);
        self.commit = self.commit.map(|commit| commit + 1);
        self
    }

    fn is_followed_by(&mut self, number: u64) {
        self.push(format!("SET @lk_two = {number}"));
    }

    fn progress(&self, failed: usize) -> Progress {
        match self.commit {
            Some(commit) if failed > commit => Progress::After,
            Some(commit) if failed == commit => Progress::Commit,
            _ => Progress::Before,
        }
    }
}

/// What to send after the first batch was answered.
type Then = Box<dyn FnOnce(&Sets) -> Batch + Send>;

struct Job {
    first: Batch,
    then: Option<Then>,
    /// Set before anything is sent.
    begun: Arc<AtomicBool>,
    answer: oneshot::Sender<Result<Sets, Failed>>,
}

/// The door to a connection.
#[derive(Clone)]
pub(super) struct Door {
    jobs: mpsc::UnboundedSender<Job>,
    dead: Arc<AtomicBool>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door")
    }
}

impl Door {
    /// Gives the connection to a task of its own.
    pub(super) fn new(conn: Conn) -> Self {
        let (jobs, queue) = mpsc::unbounded_channel();
        let dead = Arc::new(AtomicBool::new(false));
        let door = Self { jobs, dead: Arc::clone(&dead) };
        runtime::spawn(serve(conn, queue, dead));
        door
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.dead.load(Ordering::Relaxed)
    }

    pub(super) fn discard(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// Sends one batch; gives the rows of its statements.
    pub(super) async fn send(&self, batch: Batch) -> Result<Sets, Failed> {
        self.ask(batch, None).await
    }

    /// Sends one batch, and, in the same transaction, a second one that is made of its answer. Gives the rows of both, one after the other.
    pub(super) async fn send_two(
        &self,
        first: Batch,
        then: impl FnOnce(&Sets) -> Batch + Send + 'static,
    ) -> Result<Sets, Failed> {
        self.ask(first, Some(Box::new(then))).await
    }

    async fn ask(&self, first: Batch, then: Option<Then>) -> Result<Sets, Failed> {
        let (answer, answered) = oneshot::channel();
        let begun = Arc::new(AtomicBool::new(false));
        if !self.is_usable() || self.jobs.send(Job { first, then, begun: Arc::clone(&begun), answer }).is_err() {
            return Err(not_sent());
        }
        let ended = |_| {
            if begun.load(Ordering::Acquire) {
                let message = "the store was closed before the answer came";
                Failed::Error(Error::new(ErrorKind::Indeterminate, message))
            } else {
                not_sent()
            }
        };
        answered.await.map_err(ended)?
    }
}

fn not_sent() -> Failed {
    let message = "the connection to mysql was given up before this request was sent; nothing was done";
    Failed::Error(Error::new(ErrorKind::Unavailable, message))
}

async fn serve(mut conn: Conn, mut queue: mpsc::UnboundedReceiver<Job>, dead: Arc<AtomicBool>) {
    // No other connection of the server has these numbers.
    for number in u64::from(conn.id()) << 32.. {
        let job = match runtime::within(CHECK, Box::pin(queue.recv())).await {
            Some(Some(job)) => job,
            Some(None) => break,
            None => match runtime::within(LIMIT, Box::pin(conn.ping())).await {
                Some(Ok(())) => continue,
                _ => break,
            },
        };
        if dead.load(Ordering::Relaxed) {
            // Its answer says that it was not sent.
            break;
        }
        let Job { first, then, begun, answer } = job;
        begun.store(true, Ordering::Release);
        let done = runtime::within(LIMIT, Box::pin(run(&mut conn, first, then, number))).await;
        let (done, usable) = done.unwrap_or_else(|| {
            let message = format!("mysql did not answer within {LIMIT:?}");
            (Err(Failed::Error(Error::new(ErrorKind::Indeterminate, message))), false)
        });
        if !usable {
            dead.store(true, Ordering::Relaxed);
        }
        // A caller that went away needs no answer.
        let _ = answer.send(done);
        if !usable {
            break;
        }
    }
    dead.store(true, Ordering::Relaxed);
    // The server undoes a transaction that is open, and unlocks its rows, when the connection ends.
    drop(conn);
}

/// Runs both batches; tells whether the connection can be used further.
async fn run(conn: &mut Conn, mut first: Batch, then: Option<Then>, number: u64) -> (Result<Sets, Failed>, bool) {
    if then.is_some() {
        first.is_followed_by(number);
    }
    let mut sets = Sets::new();
    let mut batches = Some(first);
    let mut then = then;
    while let Some(batch) = batches.take() {
        let mut answered = Sets::new();
        if let Err((cause, failed)) = statements(conn, &batch, &mut answered).await {
            let is_of_server = matches!(cause, mysql_async::Error::Server(_));
            let lacks_tables = error::is_missing_table(&cause);
            let failed = error::of_request(cause, batch.progress(failed));
            let known = !matches!(&failed, Failed::Error(error) if error.kind() == ErrorKind::Indeterminate);
            // A server that only reads, or ends: the next connection looks for the primary.
            let elsewhere = matches!(&failed, Failed::Error(error) if error.kind() == ErrorKind::Unavailable) && !lacks_tables;
            // Without the rollback the next request would join the transaction.
            let usable = is_of_server && known && !elsewhere && conn.query_drop("ROLLBACK").await.is_ok();
            return (Err(failed), usable);
        }
        sets.append(&mut answered);
        batches = then.take().map(|then| then(&sets).follows(number));
    }
    (Ok(sets), true)
}

/// Runs the statements of a batch; says which one failed.
async fn statements(conn: &mut Conn, batch: &Batch, sets: &mut Sets) -> Result<(), (mysql_async::Error, usize)> {
    let mut result = conn.query_iter(batch.texts.join(";")).await.map_err(|cause| (cause, 0))?;
    for at in 0..batch.texts.len() {
        // Reading the rows of a statement goes on to the next one, so an error is that of the next.
        let rows = result.collect::<Row>().await.map_err(|cause| (cause, at + 1))?;
        sets.push(rows);
    }
    Ok(())
}
