//! Records what a store answered about holds, for programs that have the referee judge histories of real servers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Layer;
use crate::backend::{Acquire, Attempt, AttemptAll, Backend, Grant, KeptAlive, Release, Released, Renew, Renewed, Reply};
use crate::error::Result;
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::{Instant, Runtime};

/// The store said that an owner holds a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// What is held.
    pub name: Name,
    /// By whom.
    pub owner: WireOwner,
    /// The token, if this was a grant with one.
    pub token: Option<u64>,
    /// When the request was sent: before the store could carry it out.
    pub sent: Instant,
    /// How long the hold is good from then on.
    pub good_for: Duration,
}

/// So many holds are kept alive by a session at the most that are remembered: more than a recording program has.
const REMEMBERED: usize = 4096;

/// Tells `record` of every answer that grants or keeps a hold, before the client sees it.
#[derive(Clone)]
pub struct Record {
    inner: Arc<dyn Backend>,
    record: Arc<dyn Fn(Answered) + Send + Sync>,
    in_session: Arc<Mutex<InSession>>,
}

/// What is known where holds live in a session.
#[derive(Default)]
struct InSession {
    /// Those that the next keep-alive keeps.
    holds: BTreeMap<(u64, WireOwner), Name>,
    /// The last answer to a keep-alive, and when it was asked for.
    kept: Option<(KeptAlive, Instant)>,
}

impl InSession {
    /// The keep-alive that also keeps a hold granted as of `sent`. Both answers come at about the same time on two threads, so the client may know of
    /// the hold when it uses the keep-alive, although it was not in the table when that was recorded.
    fn keeps(&self, grant: &Grant, sent: Instant) -> Option<(KeptAlive, Instant)> {
        let longer = |(kept, asked): &(KeptAlive, Instant)| asked.plus(kept.good_for) > sent.plus(grant.good_for);
        self.kept.filter(|(kept, _)| kept.session == grant.session).filter(longer)
    }
}

impl Record {
    /// A layer over `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>, record: Arc<dyn Fn(Answered) + Send + Sync>) -> Self {
        Self { inner, record, in_session: Arc::default() }
    }

    fn granted(&self, name: &Name, owner: WireOwner, grant: &Grant, sent: Instant) {
        let mut kept = None;
        if grant.session > 0 {
            let mut known = self.in_session();
            known.holds.insert((grant.session, owner), name.clone());
            if known.holds.len() > REMEMBERED {
                known.holds.pop_first();
            }
            kept = known.keeps(grant, sent);
        }
        (self.record)(Answered { name: name.clone(), owner, token: grant.token, sent, good_for: grant.good_for });
        if let Some((kept, sent)) = kept {
            (self.record)(Answered { name: name.clone(), owner, token: None, sent, good_for: kept.good_for });
        }
    }

    fn released(&self, owner: WireOwner) {
        self.in_session().holds.retain(|(_, holder), _| *holder != owner);
    }

    fn in_session(&self) -> MutexGuard<'_, InSession> {
        self.in_session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Instant {
    Runtime::system().now()
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Layer for Record {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.inner
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { inner, ..self.clone() })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        let (sent, name, owner) = (now(), request.name.clone(), request.owner);
        let answer = self.inner.acquire(request);
        Box::pin(async move {
            let attempt = answer.await?;
            if let Attempt::Granted(grant) = &attempt {
                self.granted(&name, owner, grant, sent);
            }
            Ok(attempt)
        })
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        let sent = now();
        let asked: Vec<_> = requests.iter().map(|request| (request.name.clone(), request.owner)).collect();
        let answer = self.inner.acquire_all(requests);
        Box::pin(async move {
            let attempt = answer.await?;
            if let AttemptAll::Granted(grants) = &attempt {
                asked.iter().zip(grants).for_each(|((name, owner), grant)| self.granted(name, *owner, grant, sent));
            }
            Ok(attempt)
        })
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        let sent = now();
        self.released(request.owner);
        let then = request.then.as_ref().map(|then| (then.name.clone(), then.owner));
        let answer = self.inner.release(request);
        Box::pin(async move {
            let released = answer.await?;
            if let (Some((name, owner)), Some(Attempt::Granted(grant))) = (&then, &released.next) {
                self.granted(name, *owner, grant, sent);
            }
            Ok(released)
        })
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        let sent = now();
        let asked: Vec<_> = requests.iter().map(|request| (request.name.clone(), request.owner)).collect();
        let answers = self.inner.renew(requests);
        Box::pin(async move {
            let answers = answers.await?;
            for ((name, owner), answer) in asked.iter().zip(&answers) {
                // A request that only asks keeps nothing.
                if let Ok(Renewed::Kept { good_for }) = answer
                    && !good_for.is_zero()
                {
                    (self.record)(Answered { name: name.clone(), owner: *owner, token: None, sent, good_for: *good_for });
                }
            }
            Ok(answers)
        })
    }

    fn keep_alive(&self) -> Reply<'_, KeptAlive> {
        let sent = now();
        let answer = self.inner.keep_alive();
        Box::pin(async move {
            let kept = answer.await?;
            let holds = {
                let mut known = self.in_session();
                known.kept = Some((kept, sent));
                known.holds.clone()
            };
            for ((_, owner), name) in holds.into_iter().filter(|((session, _), _)| *session == kept.session) {
                (self.record)(Answered { name, owner, token: None, sent, good_for: kept.good_for });
            }
            Ok(kept)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keep_alive_that_was_answered_just_before_a_grant_keeps_that_hold_too() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let kept = KeptAlive::new(3, Duration::from_secs(9));
        let known = InSession { kept: Some((kept, at(100))), ..InSession::default() };
        let grant = |session, good_for| Grant::new(None, Duration::from_secs(good_for)).in_session(session);
        // The grant counts on the keep-alive before: until 106.
        assert_eq!(known.keeps(&grant(3, 5), at(101)), Some((kept, at(100))));
        assert_eq!(known.keeps(&grant(3, 9), at(101)), None, "the grant itself lasts longer");
        assert_eq!(known.keeps(&grant(2, 5), at(101)), None, "another session");
        assert_eq!(InSession::default().keeps(&grant(3, 5), at(101)), None);
    }
}
