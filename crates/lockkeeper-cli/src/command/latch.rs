//! `lockkeeper latch`: a gate that opens when a number of events have happened.

use std::ffi::OsString;
use std::future::IntoFuture as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use lockkeeper::backend::Kind;
use lockkeeper::{Client, ErrorKind};

use super::{connect, internal, print};
use crate::exit::{Code, Failure};
use crate::number::JavaOption;
use crate::signals::Signals;
use crate::store::StoreOption;
use crate::{args, duration, number, waiting};

#[derive(Debug, Subcommand)]
pub(crate) enum Arguments {
    /// Close a latch that is open, with so many events to go
    Set(Set),
    /// One event happened; prints how many are to go
    Down(Named),
    /// Wait until a latch is open; one that was never set is
    Wait(Wait),
    /// Print how many events are to go; 0 is open
    Show(Named),
}

#[derive(Args, Debug)]
pub(crate) struct Named {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    java: JavaOption,

    /// Which latch
    name: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Set {
    #[command(flatten)]
    latch: Named,

    /// How many events
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Wait {
    /// Wait at most this long: 1.5 (seconds), 250ms, 90s, 2m, 1h [default: no limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    wait: Option<Duration>,

    /// The exit status when it did not open in that time
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Code::NotAcquired as u8)]
    conflict_exit_code: u8,

    #[command(flatten)]
    latch: Named,
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
            if latch.try_set(set.count).await? {
                return Ok(0);
            }
            let to_go = latch.count().await?;
            Err(Failure::new(
                Code::NotAcquired,
                format!("{name:?} is closed already, with {to_go} to go; it can be set when it is open"),
            ))
        }
        Arguments::Down(named) => {
            let (client, name) = named.find().await?;
            print([client.latch(&name).count_down().await?.to_string()])
        }
        Arguments::Wait(wait) => {
            let (client, name) = wait.latch.find().await?;
            let mut signals = Signals::take().map_err(|error| internal("signals cannot be received", &error))?;
            let latch = client.latch(&name);
            let opening = if let Some(limit) = wait.wait { latch.wait().timeout(limit) } else { latch.wait() };
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
