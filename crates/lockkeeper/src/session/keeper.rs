//! The keeper: renews what is kept, probes what is not, tells loss, releases what `Drop` left, and checks local queues for callers that do not
//! run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Core, Hold, Undo, lock};
use crate::backend::{Backend, ClientCard, Event, Liveness, LossReason, Renew, Renewed};
use crate::error::{Error, ErrorKind};
use crate::runtime::{self, Instant};

/// Renewals in one request.
const BATCH: usize = 1_024;

/// How long the store remembers who we are without a word from us.
const CARD_TTL: Duration = Duration::from_secs(90);

/// Runs until the session ends and nothing is left to release.
pub(super) async fn keep(core: Arc<Core>) {
    let connection = Arc::clone(&core.backend).keeper_connection();
    let mut announce_at = Instant::default();
    loop {
        let now = core.runtime.now();
        let (due, mut next, holds) = {
            let mut registry = core.registry();
            let (due, next) = registry.round(now);
            (due, next, !registry.is_empty())
        };
        // Only a client that holds something sends its card, and at once: so it is shown, and the connection is open before a renewal is due.
        if announce_at <= now && holds {
            announce_at = now.plus(CARD_TTL / 3);
            let (core, connection, card) = (Arc::clone(&core), Arc::clone(&connection), card(&core));
            runtime::spawn(async move {
                if let Err(error) = core.call(core.settings.command_timeout, connection.announce(card, CARD_TTL)).await {
                    tracing::debug!(%error, "could not tell the store who we are");
                }
            });
        }
        if !due.is_empty() {
            next = next.min(attend(&core, &connection, due, now));
        }
        next = next.min(core.queues.check(&core, now));
        let undos = std::mem::take(&mut *lock(&core.undos));
        for undo in undos {
            let (core, connection) = (Arc::clone(&core), Arc::clone(&connection));
            runtime::spawn(async move { core.carry_out(&*connection, undo).await });
        }
        if core.stopping.load(Ordering::SeqCst) && core.undoing.load(Ordering::SeqCst) == 0 {
            return;
        }
        tokio::select! {
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
            hold.lose(LossReason::Expired);
            // The store does not end it by itself.
            if core.capabilities.liveness != Liveness::Lease {
                core.undo(Undo::of(&hold));
            }
        } else if hold.is_watched() {
            ask.push(hold);
        } else {
            // Extended since it was registered.
            core.registry().reschedule(&hold, deadline, Duration::ZERO);
            next = next.min(deadline);
        }
    }
    // Holds with short leases first, each batch bounded by its shortest.
    ask.sort_by_key(|hold| hold.lease());
    while !ask.is_empty() {
        let batch: Vec<_> = ask.drain(..ask.len().min(BATCH)).collect();
        runtime::spawn(renew(Arc::clone(core), Arc::clone(connection), batch));
    }
    next
}

async fn renew(core: Arc<Core>, connection: Arc<dyn Backend>, batch: Vec<Arc<Hold>>) {
    let sent = core.runtime.now();
    let requests: Vec<Renew> = batch.iter().map(|hold| hold.renewal(hold.grounds.kept.then_some(hold.grounds.lease))).collect();
    let shortest = batch.iter().map(|hold| hold.grounds.lease).min().unwrap_or_default();
    let mut answers = match core.call(core.settings.limit(shortest), connection.renew(requests)).await {
        Ok(answers) => answers,
        Err(error) => vec![Err(error); batch.len()],
    };
    if answers.len() != batch.len() {
        answers = vec![Err(Error::new(ErrorKind::Protocol, "the store left a renewal without an answer")); batch.len()];
    }
    let mut hurry = false;
    for (hold, answer) in batch.iter().zip(answers) {
        let lease = hold.lease();
        let (again, slack) = match answer {
            Ok(Renewed::Kept { good_for }) => {
                hold.renewed(sent, good_for);
                (sent.plus(lease / 3), lease / 30)
            }
            Ok(Renewed::Gone) => {
                hold.lose(LossReason::Gone);
                continue;
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
        hurry |= core.registry().reschedule(hold, again.min(deadline), slack);
    }
    if hurry {
        core.keeper_wake.notify_one();
    }
}

fn card(core: &Core) -> ClientCard {
    let executable = || {
        let path = std::env::current_exe().ok();
        path.as_deref()
            .and_then(|path| path.file_name())
            .map_or_else(|| "-".to_owned(), |name| name.to_string_lossy().into_owned())
    };
    ClientCard {
        id: core.id,
        host: runtime::host(),
        pid: std::process::id(),
        program: core.program.get().cloned().unwrap_or_else(executable),
        user: runtime::user(),
    }
}
