//! From writing to reading, with no other writer in between.

use super::call::Target;
use super::driver::{Driver, Next, Terms};
use crate::backend::Claim;
use crate::error::Result;
use crate::session::{Command, Entry, Held, Patience, Step};

/// Acquires the read side for the owner that writes, without waiting: the store grants it to the writer. `None` if the write hold is gone.
pub(super) async fn downgrade(writer: &Held) -> Result<Option<Held>> {
    let target = Target::of(writer.session(), Ok(writer.full_name().clone()));
    let runtime = &target.session.core().runtime;
    let mut driver = Driver::new(&target, Claim::Read, Patience::Try, Terms::default(), Some(writer.owner()), runtime.now())?;
    // The owner has to know that it reads, or its next write would wait for itself. A read hold that it already has stays what it is.
    if let Some(owner) = writer.reentrant_owner()
        && let Some(Entry::Outermost(ticket, _)) = owner.try_enter(target.session.id(), target.name()?, true)?
    {
        driver.ticket = Some(ticket);
    }
    let mut command = driver.start();
    loop {
        command = match command {
            Command::Ask { sent, limit, register } => match driver.ask(sent, limit, register).await? {
                Next::Held(held) => return Ok(Some(held)),
                Next::Go(command) => command,
            },
            Command::NewOwner { left } => {
                driver.renew_owner(left);
                driver.step(Step::Woken)
            }
            Command::Fail(error) => return Err(error),
            Command::Sleep { until, .. } => {
                driver.pauses()?;
                runtime.sleep_until(until).await;
                driver.step(Step::Woken)
            }
            _ => return Ok(None),
        }
    }
}
