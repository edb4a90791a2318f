//! `lockkeeper show`: all about one name.

use std::ffi::OsString;

use clap::Args;
use lockkeeper::backend::{Kind, Snapshot};

use super::{json, print};
use crate::args;
use crate::exit::{Code, Failure};
use crate::store::StoreOption;
use crate::table::{Narrowing, Yielding, fitted};
use crate::terminal::{plain, room};
use crate::view::{self, Output, OutputOption, Seen, ago};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) store: StoreOption,

    #[command(flatten)]
    pub(crate) output: OutputOption,

    /// The name to show
    pub(crate) name: OsString,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    show(arguments, None).await
}

/// Shows a name. If `kind` is given, it must be of that kind.
pub(crate) async fn show(arguments: Arguments, kind: Option<Kind>) -> Result<u8, Failure> {
    let name = args::name(arguments.name)?;
    let nothing = |why: &str| Failure::new(Code::NotAcquired, format!("there is nothing named {name:?}; {why}"));
    let client = arguments.store.connect_existing().await?.map_err(|missing| nothing(&missing))?;
    let found = client.inspect(&name).await?.ok_or_else(|| nothing("see lockkeeper list"))?;
    if let Some(kind) = kind.filter(|kind| *kind != found.kind) {
        return Err(found.kind.instead_of(kind, &found.name).into());
    }
    match arguments.output.output {
        Output::Json => print([json(&Seen::from(&found))?]),
        Output::Table => print(whole(&found, room())),
    }
}

/// On a narrow terminal the owner is shortened first, and left out first; then program and lease.
const HOLDERS: Narrowing = Narrowing { yielding: &YIELDING, dropped: &[2, 4, 6] };
const QUEUE: Narrowing = Narrowing { yielding: &YIELDING, dropped: &[2, 5, 4] };
const YIELDING: [Yielding; 3] = [
    Yielding { column: 2, least: 5, at_last: 5 },
    Yielding { column: 4, least: 7, at_last: 4 },
    Yielding { column: 3, least: 16, at_last: 10 },
];

const INDENT: &str = "  ";

fn whole(found: &Snapshot, room: Option<usize>) -> Vec<String> {
    let room = room.map(|room| room.saturating_sub(INDENT.len()));
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
            let [held, left] = [holder.held_for, holder.lease_left].map(|time| time.map_or_else(unknown, ago));
            [
                view::claim(holder.claim),
                holder.token.map_or_else(unknown, |token| token.to_string()),
                plain(&holder.owner),
                view::process(holder.client.as_ref()).unwrap_or_else(unknown),
                view::program(holder.client.as_ref()).unwrap_or_else(unknown),
                held,
                left,
            ]
        }));
        lines.extend(fitted(&rows, HOLDERS, room).into_iter().map(|line| format!("{INDENT}{line}")));
    }
    if !found.queue.is_empty() {
        lines.push("queue, first come first:".to_owned());
        let mut rows = vec![["", "WANTS", "OWNER", "HOST AND PID", "PROGRAM", "PLACE KEPT FOR"].map(str::to_owned)];
        rows.extend(found.queue.iter().enumerate().map(|(place, waiting)| {
            [
                (place + 1).to_string(),
                view::claim(waiting.claim),
                plain(&waiting.owner),
                view::process(waiting.client.as_ref()).unwrap_or_else(unknown),
                view::program(waiting.client.as_ref()).unwrap_or_else(unknown),
                waiting.expires_in.map_or_else(unknown, ago),
            ]
        }));
        lines.extend(fitted(&rows, QUEUE, room).into_iter().map(|line| format!("{INDENT}{line}")));
    }
    lines
}
