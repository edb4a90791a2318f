//! `lockkeeper show`: one name whole.

use std::ffi::OsString;

use clap::Args;
use lockkeeper::backend::{Kind, Snapshot};

use super::{connect, json, print};
use crate::args;
use crate::exit::{Code, Failure};
use crate::store::StoreOption;
use crate::terminal::plain;
use crate::view::{self, Output, OutputOption, Seen, ago, aligned};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) store: StoreOption,

    #[command(flatten)]
    pub(crate) output: OutputOption,

    /// What to show
    pub(crate) name: OsString,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    show(arguments, None).await
}

/// Shows a name, which must be of this kind if one is given.
pub(crate) async fn show(arguments: Arguments, kind: Option<Kind>) -> Result<u8, Failure> {
    let name = args::name(arguments.name)?;
    let client = connect(&arguments.store).await?;
    let Some(found) = client.inspect(&name).await? else {
        return Err(Failure::new(Code::NotAcquired, format!("nothing lies under {name:?}; lockkeeper list tells what is held")));
    };
    if let Some(kind) = kind.filter(|kind| *kind != found.kind) {
        return Err(found.kind.instead_of(kind, &found.name).into());
    }
    match arguments.output.output {
        Output::Json => print([json(&Seen::from(&found))?]),
        Output::Table => print(whole(&found)),
    }
}

fn whole(found: &Snapshot) -> Vec<String> {
    let unknown = || "-".to_owned();
    let mut lines = vec![format!("{}  {}", plain(found.name.as_str()), view::kind(found.kind))];
    match (found.kind, found.value, found.total) {
        (Kind::Latch, Some(count), _) => lines.push(format!("to go: {count}")),
        (_, Some(free), Some(total)) => lines.push(format!("permits: {free} of {total} free")),
        (_, Some(free), None) => lines.push(format!("permits: {free}")),
        _ => {}
    }
    if !found.holders.is_empty() {
        lines.push("holders:".to_owned());
        let mut rows = vec![["HOLDS", "TOKEN", "OWNER", "HOST AND PID", "PROGRAM", "HELD FOR", "LEASE LEFT"].map(str::to_owned)];
        rows.extend(found.holders.iter().map(|holder| {
            let client = holder.client.as_ref();
            let [held, left] = [holder.held_for, holder.lease_left].map(|time| time.map_or_else(unknown, ago));
            [
                view::claim(holder.claim),
                holder.token.map_or_else(unknown, |token| token.to_string()),
                plain(&holder.owner),
                client.map_or_else(unknown, |client| format!("{} {}", plain(&client.host), client.pid)),
                client.map_or_else(unknown, |client| plain(&client.program)),
                held,
                left,
            ]
        }));
        lines.extend(aligned(&rows).into_iter().map(|line| format!("  {line}")));
    }
    if !found.queue.is_empty() {
        lines.push("queue, first come first:".to_owned());
        let mut rows = vec![["", "WANTS", "OWNER", "PLACE KEPT FOR"].map(str::to_owned)];
        rows.extend(found.queue.iter().enumerate().map(|(place, waiting)| {
            let kept = waiting.place_left.map_or_else(unknown, ago);
            [(place + 1).to_string(), view::claim(waiting.claim), plain(&waiting.owner), kept]
        }));
        lines.extend(aligned(&rows).into_iter().map(|line| format!("  {line}")));
    }
    lines
}
