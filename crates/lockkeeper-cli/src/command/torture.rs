//! `lockkeeper torture`: whether the promises hold on the user's own store.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{json, print};
use crate::duration;
use crate::exit::{Code, Failure, of_signal};
use crate::store::StoreOption;
use crate::torture::{self, Plan};
use crate::view::{Output, OutputOption};

pub(crate) const LONG_ABOUT: &str = "\
Check the promises on your own store: processes lock, are paused and killed, and a referee judges

Several processes of lockkeeper use the store as programs do: they lock, try, wait, give up, enter twice, extend, hold and release, with every \
synchronizer that the store has. Meanwhile this process pauses some of them (SIGSTOP), also for longer than their lease, and kills others \
(SIGKILL). Each records what it asked and was told. A referee judges the whole history by the promises of docs/guarantees.md: one holder \
at a time, growing tokens, validity, losses that are told, no lost update behind the fence, nothing left at the end.

Only names below lockkeeper-torture: and a random number are used, and they are removed at the end. The store has some hundred requests a second to \
answer. If it holds locks of others, torture asks for --yes.

It does not disturb the store itself. Restart it, fail it over or cut its network while torture runs, if you want to know what happens then: \
a store that forgets its locks breaks P1, as docs/guarantees.md says.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  lockkeeper torture -S redis://127.0.0.1          one minute
  lockkeeper torture -S redis://db --minutes 30 --processes 8
  lockkeeper torture -o json --history run.jsonl   the report as JSON, and all events

See lockkeeper help exit-codes for the exit statuses; 81 means that a promise was broken.";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    output: OutputOption,

    /// How long it runs; 0.5 is half a minute
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = minutes)]
    minutes: Duration,

    /// How many processes; two or more
    #[arg(long, value_name = "N", default_value = "4")]
    processes: NonZeroUsize,

    /// How many tasks each process has
    #[arg(long, value_name = "N", default_value = "3")]
    tasks: NonZeroUsize,

    /// Lease of the locks; pauses are up to one and a half times as long. Where holds live in a session (ZooKeeper, etcd) the session decides
    #[arg(short, long, value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
    lease: Duration,

    /// Write all events into FILE, one JSON object per line
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    /// Run although the store holds other locks
    #[arg(short, long)]
    yes: bool,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of minutes"))?;
    if (0.01..=1_000_000.0).contains(&minutes) {
        Ok(Duration::from_secs_f64(minutes * 60.0))
    } else {
        Err(format!("{text:?} is out of range; use 0.01 or more"))
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    let Arguments { store, output, minutes, processes, tasks, lease, history, yes } = arguments;
    if processes.get() < 2 {
        return Err(Failure::new(Code::Usage, "one process has nobody to exclude; use --processes 2 or more"));
    }
    let plan = Plan { time: minutes, processes: processes.get(), tasks: tasks.get(), lease, history, yes };
    let (report, ended_by) = Box::pin(torture::run(&store, plan)).await?;
    match output.output {
        Output::Json => print([json(&report)?])?,
        Output::Table => print(report.lines())?,
    };
    match ended_by {
        _ if !report.sound => Ok(Code::Broken as u8),
        Some(signal) => Ok(of_signal(signal.as_raw())),
        None => Ok(0),
    }
}
