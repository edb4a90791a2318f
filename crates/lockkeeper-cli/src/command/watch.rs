//! `lockkeeper watch`: the locks that are held, updated: in place on a terminal, or one line of JSON per change.

use std::collections::{BTreeMap, BTreeSet};
use std::io::stdout;
use std::time::Duration;

use clap::Args;
use lockkeeper::Client;
use serde::Serialize;
use tokio::time::sleep;

use super::{connect, json, print, print_text};
use crate::duration;
use crate::exit::{Code, Failure, say};
use crate::selection::{Selected, Selection};
use crate::store::StoreOption;
use crate::terminal;
use crate::view::{self, Output, OutputOption, Seen};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    output: OutputOption,

    /// Time between two updates
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "1s", allow_negative_numbers = true)]
    every: Duration,

    #[command(flatten)]
    selection: Selection,
}

/// A line on stdout.
#[derive(Debug, Serialize)]
struct Line<'a> {
    change: &'static str,
    #[serde(flatten)]
    seen: &'a Seen,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    if arguments.every.is_zero() {
        return Err(Failure::new(Code::Usage, "--every 0 would load the store without a pause; use a longer time"));
    }
    let client = connect(&arguments.store).await?;
    match arguments.output.output {
        Output::Json => changes(&client, &arguments).await,
        Output::Table if terminal::is_drawable(&stdout()) => redraw(&client, &arguments).await,
        Output::Table => {
            say("stdout is not a terminal that can be redrawn; printing the table when it changes (use -o json in programs)");
            append(&client, &arguments).await
        }
    }
}

/// The locks that are held now. If the store does not answer, says so once and retries.
async fn look(client: &Client, arguments: &Arguments) -> Selected {
    let mut told = false;
    loop {
        match arguments.selection.of(client).await {
            Ok(found) => return found,
            Err(error) if !std::mem::replace(&mut told, true) => say(&format!("{error}; retrying")),
            Err(_) => {}
        }
        sleep(arguments.every).await;
    }
}

async fn changes(client: &Client, arguments: &Arguments) -> Result<u8, Failure> {
    let mut known: BTreeMap<String, Seen> = BTreeMap::new();
    loop {
        let found: Vec<Seen> = look(client, arguments).await.found.iter().map(Seen::from).collect();
        let mut lines = Vec::new();
        let names: BTreeSet<&str> = found.iter().map(|seen| seen.name.as_str()).collect();
        for (_, seen) in known.extract_if(.., |name, _| !names.contains(name.as_str())) {
            lines.push(json(&Line { change: "gone", seen: &seen })?);
        }
        for seen in found {
            match known.insert(seen.name.clone(), seen.timeless()) {
                Some(before) if before == seen.timeless() => {}
                before => lines.push(json(&Line { change: if before.is_some() { "changed" } else { "new" }, seen: &seen })?),
            }
        }
        write(&lines)?;
        sleep(arguments.every).await;
    }
}

async fn append(client: &Client, arguments: &Arguments) -> Result<u8, Failure> {
    let mut before = None;
    loop {
        let found = look(client, arguments).await.found;
        let now: Vec<Seen> = found.iter().map(|found| Seen::from(found).timeless()).collect();
        if before.as_ref() != Some(&now) {
            write(&view::table(&found, terminal::room()))?;
            before = Some(now);
        }
        sleep(arguments.every).await;
    }
}

/// Draws over the lines of the last update.
async fn redraw(client: &Client, arguments: &Arguments) -> Result<u8, Failure> {
    let mut drawn = 0;
    loop {
        let selected = look(client, arguments).await;
        let (columns, rows) = terminal::size(stdout());
        let mut lines = if selected.found.is_empty() {
            vec![arguments.selection.nothing(&selected, client)]
        } else {
            view::table(&selected.found, Some(columns))
        };
        let room = rows.saturating_sub(1).max(1);
        if lines.len() > room {
            let hidden = lines.len() - room + 1;
            lines.truncate(room - 1);
            lines.push(format!("… {hidden} more"));
        }
        let up = if drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
        let lines: Vec<_> = lines.iter().map(|line| format!("{}\x1b[K", terminal::cut(line, columns))).collect();
        drawn = lines.len();
        print_text(&format!("{up}\r\x1b[J{}\n", lines.join("\n")))?;
        sleep(arguments.every).await;
    }
}

/// Prints the lines, if there are any.
fn write(lines: &[String]) -> Result<(), Failure> {
    if lines.is_empty() { Ok(()) } else { print(lines).map(drop) }
}
