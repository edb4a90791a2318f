//! The keeper: renews what is kept, probes what is not, tells loss, releases what `Drop` left, and takes back what callers that do not run
//! would keep from others.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::link::Connection;
use super::supervised::supervised;
use super::{Core, Hold, liveness, lock};
use crate::backend::{Backend, ClientCard, Event, LossReason, Renew, Renewed};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::sync::atomic::Ordering;
use crate::runtime::{self, Instant, caught, log};

/// Renewals in one request.
const BATCH: usize = 1_024;

/// How long the store remembers who we are without a word from us.
const CARD_TTL: Duration = Duration::from_secs(90);

/// A client that holds something tells who it is after this long: most programs that hold it for a moment are over by then, and need no connection
/// but their own. With short leases it is earlier, because the connection has to be open before a renewal is due.
const FIRST_CARD: Duration = Duration::from_millis(200);

/// When the store is told who we are.
#[derive(Debug, Default)]
struct Announcing {
    /// When it is next; `None`: nobody has seen us so far.
    at: Option<Instant>,
    told: bool,
}

impl Announcing {
    /// Whether it is now. Only a client that is shown has a reason: one that holds something, or is `queued`.
    fn is_due(&mut self, holds: bool, queued: bool, lease: Duration, now: Instant) -> bool {
        if !holds && !queued && (self.told || self.at.is_none()) {
            return false;
        }
        let at = self.at.get_or_insert_with(|| now.plus(FIRST_CARD.min(lease / 10)));
        if *at > now && (self.told || !queued) {
            return false;
        }
        *at = now.plus(CARD_TTL / 3);
        self.told = true;
        true
    }

    /// When to ask again, for the first time or if somebody waits.
    fn next(&self, queued: bool) -> Instant {
        self.at.filter(|_| queued || !self.told).unwrap_or(Instant::NEVER)
    }
}

/// Runs until the session ends and nothing is left to release.
pub(super) async fn keep(core: Arc<Core>) {
    // Of a store that panics here the callers' connection has to do.
    let connection = caught(|| Arc::clone(&core.backend).keeper_connection());
    let connection = connection.unwrap_or_else(|| Arc::clone(&core.backend));
    let mut panicked = false;
    let rounds = || rounds(&core, &connection, std::mem::replace(&mut panicked, true));
    tokio::select! {
        biased;
        () = supervised(&core.runtime, rounds) => {}
        () = liveness::keep(&core, &connection) => {}
    }
}

/// `anew`: after a panic. What the round before had taken out to renew it may not have been asked about.
async fn rounds(core: &Arc<Core>, connection: &Arc<dyn Backend>, anew: bool) {
    let mut announcing = Announcing::default();
    if anew {
        let holds = core.registry().holds();
        attend(core, connection, holds, core.runtime.now());
    }
    loop {
        let now = core.runtime.now();
        let (due, mut next, holds) = {
            let mut registry = core.registry();
            let (due, next) = registry.round(now);
            (due, next, !registry.is_empty())
        };
        let queued = core.queued.load(Ordering::Relaxed);
        if announcing.is_due(holds, queued, core.settings.lease, now) {
            core.queued.store(false, Ordering::Relaxed);
            let (core, connection, card) = (Arc::clone(core), Arc::clone(connection), card(core));
            runtime::spawn(async move {
                if let Err(error) =
                    core.call_by(Connection::Keeper, core.settings.command_timeout, || connection.announce(card, CARD_TTL)).await
                {
                    log!(debug, %error, "could not tell the store who we are");
                }
            });
        }
        next = next.min(announcing.next(core.queued.load(Ordering::Relaxed)));
        if !due.is_empty() {
            next = next.min(attend(core, connection, due, now));
        }
        let (check_at, doubtful) = core.queues.check(core, now);
        next = next.min(check_at).min(core.take_back(now));
        if !doubtful.is_empty() {
            // Not by the waiters: one that asked for the name itself each time it is notified would keep other processes from getting it.
            let holds = core.registry().of_owners(&doubtful);
            look(core, connection, holds);
        }
        let undos = std::mem::take(&mut *lock(&core.undos));
        for undo in undos {
            let (core, connection) = (Arc::clone(core), Arc::clone(connection));
            runtime::spawn(async move { core.carry_out(&*connection, undo).await });
        }
        if core.stopping.load(Ordering::SeqCst) && core.undoing.load(Ordering::SeqCst) == 0 {
            return;
        }
        tokio::select! {
            biased;
            () = core.keeper_wake.notified() => {}
            () = core.runtime.sleep_until(next) => {}
        }
    }
}

/// Ends what is over, asks the store about the rest, and says when something is due again.
fn attend(core: &Arc<Core>, connection: &Arc<dyn Backend>, due: Vec<Arc<Hold>>, now: Instant) -> Instant {
    let mut ask = Vec::new();
    let mut next = Instant::NEVER;
    for hold in due {
        let deadline = hold.deadline();
        if !hold.is_held() {
            continue;
        } else if now >= deadline {
            hold.expire(now);
        } else if hold.is_watched() {
            ask.push(hold);
        } else {
            // Extended since it was registered.
            core.registry().reschedule(&hold, deadline, Duration::ZERO);
            next = next.min(deadline);
        }
    }
    look(core, connection, ask);
    next
}

/// Asks the store about these holds, in as few requests as possible.
pub(super) fn look(core: &Arc<Core>, connection: &Arc<dyn Backend>, mut ask: Vec<Arc<Hold>>) {
    // Holds with short leases first, each batch bounded by its shortest.
    ask.sort_by_key(|hold| hold.lease());
    while !ask.is_empty() {
        let batch = ask.drain(..ask.len().min(BATCH)).map(|hold| Arc::downgrade(&hold)).collect();
        runtime::spawn(renew(Arc::clone(core), Arc::clone(connection), batch));
    }
}

/// While the request is out nothing here keeps a hold, and with it the session, alive: the thread that drops the last one waits for pending releases, and
/// this thread must not wait for its own work.
async fn renew(core: Arc<Core>, connection: Arc<dyn Backend>, batch: Vec<Weak<Hold>>) {
    let sent = core.runtime.now();
    let (batch, requests, shortest) = {
        let holds: Vec<Arc<Hold>> = batch.iter().filter_map(Weak::upgrade).collect();
        let renewal = |hold: &Arc<Hold>| hold.renewal(hold.grounds.kept.then_some(hold.grounds.lease));
        let requests: Vec<Renew> = holds.iter().map(renewal).collect();
        let shortest = holds.iter().map(|hold| hold.grounds.lease).min().unwrap_or_default();
        (holds.iter().map(Arc::downgrade).collect::<Vec<_>>(), requests, shortest)
    };
    if batch.is_empty() {
        return;
    }
    let mut answers = match core.call_by(Connection::Keeper, core.settings.limit(shortest), || connection.renew(requests)).await {
        Ok(answers) => answers,
        Err(error) => vec![Err(error); batch.len()],
    };
    if answers.len() != batch.len() {
        let message = format!("store returned {} answers for {} renewals", answers.len(), batch.len());
        answers = vec![Err(Error::new(ErrorKind::Protocol, message)); batch.len()];
    }
    let mut hurry = false;
    for (hold, answer) in batch.iter().zip(answers) {
        let Some(hold) = hold.upgrade() else { continue };
        hurry |= answered(&core, &hold, sent, answer);
    }
    if hurry {
        core.keeper_wake.notify_one();
    }
}

/// What the store said about one hold. Tells whether the keeper has to be woken for what comes next.
fn answered(core: &Core, hold: &Hold, sent: Instant, answer: Result<Renewed>) -> bool {
    let lease = hold.lease();
    let (again, slack) = match answer {
        Ok(Renewed::Kept { good_for }) => {
            hold.renewed(sent, good_for);
            (sent.plus(lease / 3), lease / 30)
        }
        Ok(Renewed::Gone) => {
            hold.lose(LossReason::Gone);
            return false;
        }
        // Unknown is not lost, and does not extend the deadline: try again soon.
        Err(error) => {
            let (name, owner) = (&hold.grounds.name, hold.grounds.owner);
            core.notify(&Event::RenewalFailed { name, claim: hold.grounds.claim, owner, error: &error });
            (core.runtime.now().plus(runtime::jitter(lease / 40, lease / 20)), Duration::ZERO)
        }
    };
    // Only a renewal may come early. A deadline or a pause after trouble that did would come again at once, and again.
    let deadline = hold.deadline();
    let slack = if again < deadline { slack } else { Duration::ZERO };
    core.registry().reschedule(hold, again.min(deadline), slack)
}

fn card(core: &Core) -> ClientCard {
    let executable = || {
        let path = std::env::current_exe().ok();
        path.as_deref()
            .and_then(|path| path.file_name())
            .map_or_else(|| "-".to_owned(), |name| name.to_string_lossy().replace(char::is_control, "\u{fffd}"))
    };
    ClientCard {
        id: core.id,
        host: runtime::host(),
        pid: std::process::id(),
        program: core.program.get().cloned().unwrap_or_else(executable),
        user: runtime::user(),
    }
}
