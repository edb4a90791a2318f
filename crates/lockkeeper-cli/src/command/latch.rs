//! `lockkeeper latch`: a latch that opens when a number of events have happened.

use std::ffi::OsString;
use std::future::IntoFuture as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use lockkeeper::backend::Kind;
use lockkeeper::{Client, ErrorKind};
use tokio::time::timeout;

use super::{connect, internal, print};
use crate::exit::{Code, Failure, say};
use crate::number::JavaOption;
use crate::signals::Signals;
use crate::store::StoreOption;
use crate::{args, duration, number, waiting};

/// How often `set --force` tries if others set the latch at the same time.
const FORCED_TRIES: usize = 10;

#[derive(Debug, Subcommand)]
pub(crate) enum Arguments {
    /// Close a latch until COUNT events have happened; it must be open, unless --force is given
    Set(Set),
    /// Count events that happened; prints how many are still to come
    Down(Down),
    /// Wait until a latch is open; one that was never set is open
    Wait(Wait),
    /// Print how many events are still to come; 0 means open
    Show(Named),
    /// Open a latch and remove it, however many events are still to come
    Remove(Named),
}

#[derive(Args, Debug)]
pub(crate) struct Named {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    java: JavaOption,

    /// The name of the latch
    name: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Set {
    #[command(flatten)]
    latch: Named,

    /// Replace the count of a latch that is closed. It is open for a moment: waiters continue
    #[arg(short, long)]
    force: bool,

    /// The number of events
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Down {
    /// Count this many events [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 1, hide_default_value = true)]
    by: u32,

    #[command(flatten)]
    latch: Named,
}

#[derive(Args, Debug)]
pub(crate) struct Wait {
    /// Wait at most this long: 1.5 (seconds), 250ms, 90s, 2m, 1h [default: no limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    wait: Option<Duration>,

    /// Exit status if the latch did not open in that time
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Code::NotAcquired as u8)]
    conflict_exit_code: u8,

    #[command(flatten)]
    latch: Named,
}

fn say_not_set(name: &str) {
    say(&format!("no latch {name:?} is set: it was never set, or is open already; check the name"));
}

impl Named {
    async fn find(self) -> Result<(Client, String), Failure> {
        let name = args::name(self.name)?;
        let client = connect(&self.store).await?;
        number::check(&client, &name, Kind::Latch, self.java.java).await?;
        Ok((client, name))
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    match arguments {
        Arguments::Set(set) => {
            let (client, name) = set.latch.find().await?;
            let latch = client.latch(&name);
            // With --force another process may set it again between the two requests.
            for _ in 0..FORCED_TRIES {
                if latch.try_set(set.count).await? {
                    return Ok(0);
                }
                if !set.force {
                    break;
                }
                latch.remove().await?;
            }
            let to_go = latch.count().await?;
            Err(Failure::new(
                Code::NotAcquired,
                format!("{name:?} is already closed, with {to_go} to go; use --force to replace the count, or latch remove"),
            ))
        }
        Arguments::Down(down) => {
            let (client, name) = down.latch.find().await?;
            if client.inspect(&name).await?.is_none() {
                say_not_set(&name);
            }
            let latch = client.latch(&name);
            let mut to_go = latch.count_down().await?;
            for _ in 1..down.by {
                // Nothing to count any more; a latch that is set again meanwhile waits for other events.
                if to_go == 0 {
                    break;
                }
                to_go = latch.count_down().await?;
            }
            print([to_go.to_string()])
        }
        Arguments::Remove(named) => {
            let (client, name) = named.find().await?;
            if client.latch(&name).remove().await? {
                return Ok(0);
            }
            Err(Failure::new(Code::NotAcquired, format!("{name:?} is not closed, so there is nothing to remove")))
        }
        Arguments::Wait(wait) => {
            let (began, limit) = (tokio::time::Instant::now(), wait.wait.unwrap_or(Duration::MAX));
            let finding = async {
                let (client, name) = wait.latch.find().await?;
                let is_set = client.inspect(&name).await?.is_some();
                Ok::<_, Failure>((client, name, is_set))
            };
            // As for a lock: a store that does not answer costs no more than the wait, if there is to be one.
            let patience = if limit.is_zero() { Duration::MAX } else { limit };
            let late = |_| Failure::new(Code::Unavailable, format!("the store did not answer within {limit:?} (-w)"));
            let (client, name, is_set) = timeout(patience, finding).await.map_err(late)??;
            let mut signals = Signals::take().map_err(|error| internal("cannot receive signals", &error))?;
            if !is_set {
                say_not_set(&name);
            }
            let latch = client.latch(&name);
            let left = limit.saturating_sub(began.elapsed());
            let opening = if wait.wait.is_some() { latch.wait().timeout(left) } else { latch.wait() };
            let opened = waiting::shown(&client, &name, tokio::time::Instant::now(), opening.into_future());
            let opened = tokio::select! {
                opened = opened => opened,
                signal = signals.end(waiting::erase) => return Err(Failure::signalled(signal)),
            };
            opened.map(|()| 0).map_err(|error| match error.kind() {
                ErrorKind::Timeout => Failure {
                    code: wait.conflict_exit_code,
                    message: Some(format!("{name:?} is still closed; wait longer, or try again later")),
                },
                _ => error.into(),
            })
        }
        Arguments::Show(named) => {
            let (client, name) = named.find().await?;
            print([client.latch(&name).count().await?.to_string()])
        }
    }
}
