//! `lockkeeper man`: the manual page, or that of a verb.

use std::io;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::{help, internal, print};
use crate::args::ENVIRONMENT;
use crate::exit::{Code, Failure, of_all, of_run, of_verb};

/// Sections whose title starts like this explain variables.
const ENVIRONMENT_TITLE: &str = "Environment";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Write all pages into DIR, as lockkeeper.1, lockkeeper-run.1 and so on
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    all: Option<PathBuf>,

    /// The verb [default: the main page]
    verb: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    match &arguments.all {
        Some(directory) => write_all(directory),
        None => print([page(&arguments.verb)?.trim_end()]),
    }
}

/// Writes the page of every verb, and prints the names of the files.
fn write_all(directory: &Path) -> Result<u8, Failure> {
    let refused =
        |what: &Path, error: &io::Error| Failure::new(Code::Internal, format!("cannot write {}: {error}", what.display()));
    std::fs::create_dir_all(directory).map_err(|error| refused(directory, &error))?;
    let mut files = Vec::new();
    for verb in verbs(&help::find(&[])?, &[]) {
        let name: Vec<&str> = std::iter::once("lockkeeper").chain(verb.iter().map(String::as_str)).collect();
        let file = directory.join(format!("{}.1", name.join("-")));
        std::fs::write(&file, page(&verb)?).map_err(|error| refused(&file, &error))?;
        files.push(file.display().to_string());
    }
    print(files)
}

/// The paths of a verb and of all below it.
fn verbs(verb: &Command, path: &[String]) -> Vec<Vec<String>> {
    let below = verb.get_subcommands().filter(|below| !below.is_hide_set());
    std::iter::once(path.to_vec())
        .chain(below.flat_map(|below| verbs(below, &[path, &[below.get_name().to_owned()]].concat())))
        .collect()
}

/// The page of a verb.
fn page(path: &[String]) -> Result<String, Failure> {
    let verb = help::find(path)?;
    let mut text = Vec::new();
    // The texts after the options become sections of the page.
    Man::new(verb.clone().after_help(Resettable::Reset).after_long_help(Resettable::Reset))
        .source(concat!("lockkeeper ", env!("CARGO_PKG_VERSION")))
        .manual("Locks for the shell")
        .render(&mut text)
        .and_then(|()| sections(&verb, path.first().map(String::as_str)).to_writer(&mut text))
        .map_err(|error| internal("cannot write the page", &error))?;
    Ok(format!("{}\n", String::from_utf8_lossy(&text).trim_end()))
}

/// The files of every verb that uses a store.
const FILES: [(&str, &str); 4] = [
    (
        "~/.local/state/lockkeeper/locks.db",
        "the store if none is named, in $XDG_STATE_HOME if that is set; other files beside it have its name and an ending",
    ),
    ("$STATE_DIRECTORY/lockkeeper/locks.db", "the same in a unit of systemd without a home directory"),
    ("/var/lib/lockkeeper/locks.db", "the store system:, for a group of users; root makes its directory"),
    ("~/.config/lockkeeper/config.toml", "the config file, in $XDG_CONFIG_HOME if that is set"),
];

/// The sections after the options: exit status, environment, and the texts after the options in the help.
fn sections(verb: &Command, name: Option<&str>) -> Roff {
    let mut page = Roff::new();
    let uses_store = verb.get_arguments().any(|argument| argument.get_id() == "store" && !argument.is_hide_set());
    page.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in statuses(name, uses_store) {
        item(&mut page, &code, meaning);
    }
    let help = verb.get_after_long_help().or_else(|| verb.get_after_help()).map(ToString::to_string).unwrap_or_default();
    let mut parts: Vec<_> = help.split("\n\n").filter(|part| !part.is_empty() && *part != ENVIRONMENT).collect();
    if uses_store {
        parts.insert(0, ENVIRONMENT);
    }
    // The order of manual pages.
    parts.sort_by_key(|part| !part.starts_with(ENVIRONMENT_TITLE));
    for part in parts {
        section(&mut page, part);
    }
    if uses_store {
        page.control("SH", ["FILES"]);
        for (file, what) in FILES {
            item(&mut page, file, what);
        }
    }
    page
}

fn statuses(verb: Option<&str>, uses_store: bool) -> Vec<(String, &'static str)> {
    match verb {
        None => of_all(),
        Some("run") => of_run(),
        Some("torture") => of_verb(|code| matches!(code, Code::Usage | Code::Unavailable | Code::Internal | Code::Broken)),
        Some("hold") => of_verb(|code| code as u8 <= Code::Lost as u8),
        Some(_) if uses_store => of_verb(|code| (code as u8) < Code::Lost as u8),
        Some(_) => of_verb(|code| matches!(code, Code::Usage | Code::Internal)),
    }
}

/// A paragraph with a title becomes a section of examples, which are not filled, or of terms. One without a title becomes SEE ALSO.
fn section(page: &mut Roff, part: &str) {
    let mut lines = part.lines();
    let Some(title) = lines.next().and_then(|first| first.strip_suffix(':')) else {
        page.control("SH", ["SEE ALSO"]).text([roman(part.replace('\n', " "))]);
        return;
    };
    page.control("SH", [title.to_uppercase().as_str()]);
    for line in lines {
        let (term, says) = line.trim().split_once("   ").map_or((line.trim(), ""), |(term, says)| (term, says.trim()));
        if title.starts_with(ENVIRONMENT_TITLE) {
            item(page, term, says);
        } else {
            example(page, term, says);
        }
    }
}

fn item(page: &mut Roff, term: &str, says: &str) {
    page.control("TP", []).text([bold(term)]).text([roman(says)]);
}

/// The command as it is typed, with its explanation below.
fn example(page: &mut Roff, command: &str, says: &str) {
    page.control("PP", []).control("nf", []).text([roman(command)]).control("fi", []);
    if !says.is_empty() {
        page.control("RS", ["4"]).text([roman(says)]).control("RE", []);
    }
}
