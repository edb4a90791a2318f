//! `lockkeeper doctor`: all checks of the store; success only if locks are safe in it.

use clap::Args;
use lockkeeper::Client;
use lockkeeper::backend::{Finding, Verdict};
use serde::Serialize;

use super::{json, print};
use crate::exit::{Code, Failure};
use crate::store::{StoreOption, is_private};
use crate::table::aligned;
use crate::terminal::escaped;
use crate::view::{Output, OutputOption};
use crate::width;
use crate::wrap::last_column;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    output: OutputOption,
}

/// The findings, as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    store: &'a str,
    named_by: &'a str,
    safe: bool,
    findings: Vec<Found<'a>>,
}

#[derive(Debug, Serialize)]
struct Found<'a> {
    about: &'a str,
    verdict: Mark,
    says: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mark {
    Ok,
    Note,
    Bad,
}

impl Mark {
    const fn shown(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Bad => "BAD",
        }
    }
}

/// What a finding means here. A store inside one process is only a note for a library user, but useless for the command line.
fn mark(finding: &Finding, private: bool) -> Mark {
    match finding.verdict {
        Verdict::Unfit(_) => Mark::Bad,
        Verdict::Doubtful if private && finding.about == "reach" => Mark::Bad,
        Verdict::Fine => Mark::Ok,
        // Doubtful, or a verdict that this version does not know.
        _ => Mark::Note,
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    let chosen = arguments.store.find()?;
    let examined = Client::examine(&chosen.url).await?;
    let (url, found) = (examined.url, examined.findings);
    let private = is_private(&url);
    let found = found.iter().map(|finding| Found { about: finding.about, verdict: mark(finding, private), says: &finding.says });
    let findings: Vec<_> = found.collect();
    let safe = findings.iter().all(|found| found.verdict != Mark::Bad);
    let report = Report { store: &url, named_by: &chosen.by, safe, findings };
    match arguments.output.output {
        Output::Json => print([json(&report)?])?,
        Output::Table => print(table(&report))?,
    };
    if safe { Ok(0) } else { Err(Failure::new(Code::Unavailable, "locks are not safe in this store; see the lines marked BAD")) }
}

fn table(report: &Report<'_>) -> Vec<String> {
    // What a server said may be hostile.
    let row = |mark: Mark, about: &str, says: &str| [mark.shown().to_owned(), about.to_owned(), escaped(says)];
    let mut rows = vec![row(Mark::Ok, "store", report.store), row(Mark::Ok, "source", report.named_by)];
    rows.extend(report.findings.iter().map(|found| row(found.verdict, found.about, found.says)));
    let lines = aligned(&rows);
    let column = lines.first().map_or(0, |line| width::of(line) - width::of(report.store));
    last_column(lines, column)
}
