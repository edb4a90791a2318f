//! Several acquisitions that go out in one request: the part of a [`MultiLock`](super::MultiLock) that one store grants in one step.

use std::time::Duration;

use super::call::Target;
use super::driver::{Driver, Terms};
use crate::backend::{Attempt, AttemptAll, Busy, Claim, GaveUp};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Instant;
use crate::session::{Command, Held, Moment, Patience, Step, late};

/// Acquires several of one session, whose store can do so in one step, without waiting; which one is busy if not.
///
/// Each has an owner id of its own, so that each is a hold like any other. With `gives_way`, one for which this process backs off counts as
/// busy.
pub(super) async fn acquire_together(
    parts: &[(&Target, Claim)],
    patience: Patience,
    terms: Terms,
    gives_way: bool,
) -> Result<std::result::Result<Vec<Held>, usize>> {
    let Some((first, _)) = parts.first() else { return Ok(Ok(Vec::new())) };
    let core = first.session.core();
    let began = core.runtime.now();
    let backs_off = |(target, _): &(&Target, Claim)| target.queue.as_ref().is_some_and(|queue| queue.is_backing_off(began));
    if gives_way && let Some(index) = parts.iter().position(backs_off) {
        return Ok(Err(index));
    }
    core.check_outage(patience)?;
    let drivers = parts.iter().map(|(target, claim)| Driver::new(target, *claim, Patience::Try, terms, None, began));
    let mut drivers = drivers.collect::<Result<Vec<_>>>()?;
    let lease = drivers.iter().map(|driver| driver.request.lease).min().unwrap_or_default();
    let limit = core.settings.limit(lease);
    let limit = if patience == Patience::Try { limit / 3 } else { limit };
    let (mut trouble, deadline) = (core.trouble(patience), patience.deadline(began));
    loop {
        for driver in &mut drivers {
            driver.resumes()?;
            driver.renew_owner_if_taken_back();
        }
        let sent = core.runtime.now();
        trouble.asked(sent);
        let moment = Moment { now: sent, poll: Duration::ZERO };
        for driver in &mut drivers {
            driver.machine.step(Step::Started { may_ask: true }, moment);
            driver.request.not_after = sent.plus(limit);
            driver.machine.out_until(sent.plus(limit));
        }
        let requests = drivers.iter().map(|driver| driver.request.clone()).collect();
        let answer = core.call(limit, core.backend.acquire_all(requests)).await;
        let moment = Moment { now: core.runtime.now(), poll: Duration::ZERO };
        let error = match answer {
            Ok(AttemptAll::Granted(grants)) if grants.len() == drivers.len() => {
                // Each grant becomes a hold before one that fails is looked at: a hold is released when dropped, a grant is not.
                let held: Vec<_> = drivers
                    .iter_mut()
                    .zip(grants)
                    .map(|(driver, grant)| {
                        let answer = Ok(Attempt::Granted(grant));
                        match driver.machine.step(Step::Answered { answer, sent }, moment) {
                            Command::Grant { grant, sent, .. } => driver.granted(grant, sent, false, None, moment.now),
                            _ => Err(Error::new(ErrorKind::Indeterminate, "the grants arrived when their leases had ended")),
                        }
                    })
                    .collect();
                return held.into_iter().collect::<Result<_>>().map(Ok);
            }
            Ok(AttemptAll::Granted(grants)) => {
                let message = format!("store returned {} grants for {} requests", grants.len(), drivers.len());
                Error::new(ErrorKind::Protocol, message)
            }
            Ok(AttemptAll::Busy { index, busy }) => {
                for driver in &mut drivers {
                    let answer = Ok(Attempt::Busy(Busy { placed: false, ..busy }));
                    driver.machine.step(Step::Answered { answer, sent }, moment);
                    // Nobody waited for it, so nobody gave it up.
                    driver.machine.end_if_nothing_is_left();
                }
                return Ok(Err(index));
            }
            Ok(AttemptAll::Late) => late(),
            Err(error) => error,
        };
        for driver in &mut drivers {
            driver.machine.step(Step::Answered { answer: Err(error.clone()), sent }, moment);
            driver.gave_up = GaveUp::Failed(error.kind());
        }
        let give_up = if patience == Patience::Try { Instant::NEVER } else { deadline };
        let pause = trouble.again(error.clone(), moment.now)?;
        if moment.now >= give_up {
            return Err(error);
        }
        for driver in &mut drivers {
            driver.pauses()?;
        }
        core.runtime.sleep_until(moment.now.plus(pause).min(give_up)).await;
    }
}
