//! One acquisition, from the call to the hold.

use std::future::Future;
use std::time::Duration;

use super::driver::{Driver, Next, Terms};
use super::target::Target;
use crate::backend::{Claim, Event, GaveUp};
use crate::error::Result;
use crate::runtime;
use crate::session::{Command, Entry, Held, Owner, Patience};

/// Acquires a hold; `None` if others kept it for as long as `patience` lasted.
#[allow(clippy::manual_async_fn, reason = "an `async fn` would carry each argument about twice")]
pub(super) fn acquire(
    target: &Target,
    claim: Claim,
    patience: Patience,
    terms: Terms,
) -> impl Future<Output = Result<Option<Held>>> + Send {
    async move {
        let session = &target.session;
        let began = session.core().runtime.now();
        let name = target.name()?;
        let (beside, ticket) = match &target.owner {
            None => (None, None),
            Some(owner) => {
                let shared = claim == Claim::Read;
                let entry = match owner.try_enter(session.id(), name, shared)? {
                    Some(entry) => Some(entry),
                    None => Box::pin(enter(owner, target, shared, patience.deadline(began).since(began))).await?,
                };
                match entry {
                    Some(Entry::Reentered(held)) => return Ok(Some(held)),
                    Some(Entry::Outermost(ticket, beside)) => (beside, Some(ticket)),
                    None => return Ok(None),
                }
            }
        };
        if let Err(error) = session.core().check_outage(patience) {
            let why = GaveUp::Failed(error.kind());
            session.core().notify(&Event::GaveUp { name, claim, waited: Duration::ZERO, why });
            return Err(error);
        }
        let mut driver = Driver::new(target, claim, patience, terms, beside, began)?;
        driver.ticket = ticket;
        // Where nobody is in the way the first answer is the last: no queue entry, no timer, no second box.
        let next = match driver.start() {
            Command::Ask { sent, limit } => driver.ask(sent, limit).await,
            command => Ok(Next::Go(command)),
        };
        let acquired = match next {
            Ok(Next::Held(held)) => Ok(Some(held)),
            Ok(Next::Go(Command::GiveUp)) => Ok(None),
            Ok(Next::Go(Command::Fail(error))) | Err(error) => Err(error),
            Ok(Next::Go(command)) => Box::pin(driver.go_on(command)).await,
        };
        driver.gave_up = match &acquired {
            Ok(_) if patience == Patience::Try => GaveUp::Busy,
            Ok(_) => GaveUp::TimedOut,
            Err(error) => GaveUp::Failed(error.kind()),
        };
        acquired
    }
}

/// Waits until the owner's other calls for the name are done; `None` if that took too long. Apart, so that the common path is small.
async fn enter(owner: &Owner, target: &Target, shared: bool, limit: Duration) -> Result<Option<Entry>> {
    let entering = Box::pin(owner.enter(target.session.id(), target.name()?, shared));
    runtime::within(limit, entering).await.transpose()
}
