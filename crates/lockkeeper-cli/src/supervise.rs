//! While the command runs: passes signals on, tells the watchdog how long the lock lasts, and ends the command when the lock is lost or was held long enough.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use lockkeeper::runtime::{Instant as LeaseInstant, Runtime};
use rustix::process::WaitStatus;
use tokio::time::{sleep, sleep_until};

use crate::child::{Change, Child};
use crate::exit::{Code, Failure, of_child, say};
use crate::signals::Signals;

/// The clock of the leases, which runs while the machine sleeps.
const CLOCK: Runtime = Runtime::system();

/// How long the group may outlive the command before it is said for whom we wait.
const QUIET: Duration = Duration::from_secs(1);

/// The watchdog is told the deadline in a tenth of the time that is left, within these limits.
const UPDATE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What `run` was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    pub(crate) name: &'a str,
    /// When `--max-hold` ends.
    pub(crate) until: Option<Instant>,
    pub(crate) grace: Duration,
    /// Wait for the whole group after the command has ended.
    pub(crate) wait_group: bool,
    pub(crate) verbose: bool,
    pub(crate) quiet: bool,
}

/// Waits for the command and its group. `lost` resolves with a reason when the lock is lost; `deadline` is the time until which it is known to be held.
pub(crate) async fn supervise(
    mut child: Child,
    rules: Rules<'_>,
    lost: impl Future<Output = String>,
    deadline: impl Fn() -> LeaseInstant,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let Rules { name, grace, .. } = rules;
    let mut lost = pin!(lost);
    let mut over = pin!(async {
        match rules.until {
            Some(until) => sleep_until(until.into()).await,
            None => std::future::pending().await,
        }
    });
    let mut status: Option<WaitStatus> = None;
    let mut announce: Option<Instant> = None;
    let code = loop {
        let known_until = deadline();
        child.keep_until(known_until);
        let update = (known_until.since(CLOCK.now()) / 10).clamp(UPDATE.0, UPDATE.1);
        tokio::select! {
            biased;
            change = child.changed() => match change {
                Ok(Change::Stopped(signal)) => child.stopped(signal, signals).await,
                Ok(Change::Ended(ended)) if ended.terminating_signal().is_some() => {
                    if let Some(rest) = Some(child.group()).filter(|rest| rules.verbose && !rest.is_empty()) {
                        say(&format!("the command was ended by a signal; ending the rest of its process group: {rest}"));
                    }
                    child.end(grace, signals, deadline).await;
                    return Ok(of_child(ended));
                }
                Ok(Change::Ended(ended)) if rules.wait_group => {
                    status = Some(ended);
                    announce = (!rules.quiet).then(|| Instant::now() + QUIET);
                }
                Ok(Change::Ended(ended)) => {
                    tell_left(rules, || [Some(child.group()).filter(|rest| !rest.is_empty()), child.outside_group()]);
                    return Ok(of_child(ended));
                }
                Ok(Change::GroupEnded) => {
                    tell_left(rules, || [child.outside_group()]);
                    return Ok(status.map_or(Code::Internal as u8, of_child));
                }
                Err(error) => {
                    return Err(Failure::new(Code::Internal, format!("cannot wait for the command: {error}")));
                }
            },
            reason = &mut lost => {
                say(&format!("the lock {name:?} is lost: {reason}; ending the command"));
                break Code::Lost;
            }
            () = &mut over => {
                say(&format!("the lock {name:?} was held for as long as --max-hold allows; ending the command"));
                break Code::MaxHold;
            }
            signal = signals.next() => child.pass_on(signal),
            () = sleep_until(announce.unwrap_or_else(Instant::now).into()), if announce.is_some() => {
                announce = None;
                say(&format!("the command has ended; waiting for its process group: {} (--no-wait-group does not wait)", child.group()));
            }
            () = sleep(update) => {}
        }
    };
    if code == Code::Lost {
        // Nothing more is lost by waiting, but a runner that is stopped now must not extend the grace.
        let until = CLOCK.now().plus(grace);
        child.end(grace, signals, || until).await;
    } else {
        child.end(grace, signals, deadline).await;
    }
    Err(Failure { code: code as u8, message: None })
}

/// Only with `--verbose` is it worth to read the state of every process of the machine.
fn tell_left<const N: usize>(rules: Rules<'_>, left: impl FnOnce() -> [Option<String>; N]) {
    if rules.verbose {
        for left in left().into_iter().flatten() {
            say(&format!("not waited for, runs on without the lock: {left}"));
        }
    }
}
