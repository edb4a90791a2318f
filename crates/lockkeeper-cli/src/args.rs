//! The command line: the verbs, and what is said about mistakes in it. The options of a verb are in its file.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use lockkeeper::name::Name;

use crate::command::{
    completions, doctor, help, hold, init, latch, list, man, print_text, release, run, semaphore, show, torture, watch,
};
use crate::exit::{Code, Failure};
use crate::store::StoreOption;

/// The environment variables of every verb that uses a store.
pub(crate) const ENVIRONMENT: &str = "\
Environment:
  LOCKKEEPER_STORE    the store URL, if there is no -S
  LOCKKEEPER_CONFIG   the config file [default: lockkeeper/config.toml in $XDG_CONFIG_HOME or ~/.config]; it can name the store
  NO_COLOR            if not empty: no colours";

// Paragraphs that start with a title become sections of the manual page.
const EXAMPLES: &str = "\
Examples:
  lockkeeper run hello -- echo \"only one of us at a time\"
  lockkeeper run -n backup -- ./backup.sh              skip if it runs elsewhere
  lockkeeper run -w 30s -E 75 deploy -- make deploy    wait at most 30 seconds
  lockkeeper run --permits 3 encode -- ffmpeg ...      three at a time
  lockkeeper -S redis://127.0.0.1 list                 list the locks of another store";

const MORE: &str = "\
See lockkeeper help VERB for a verb, and lockkeeper help exit-codes for the exit statuses.";

/// Locks for the shell, across processes and machines
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, disable_help_subcommand = true, subcommand_value_name = "VERB", after_help = [EXAMPLES, ENVIRONMENT, MORE].join("\n\n"))]
struct CommandLine {
    // The parser passes it to the verb, which reads it.
    #[command(flatten)]
    _store: StoreOption,

    #[command(subcommand)]
    verb: Verb,
}

/// What other tools call our verbs.
const OTHER_NAMES: [(&[&str], &str); 6] = [
    (&["lock", "exec", "flock", "with"], "run"),
    (&["unlock", "free", "break", "force-release"], "release"),
    (&["ls", "ps", "locks"], "list"),
    (&["status", "info", "inspect", "get", "describe"], "show"),
    (&["top", "follow", "tail"], "watch"),
    (&["check", "ping", "test"], "doctor"),
];

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a command while holding a lock
    #[command(long_about = run::LONG_ABOUT, after_long_help = run::AFTER_HELP, override_usage = run::USAGE)]
    Run(Box<run::Arguments>),
    /// Hold a lock until a signal or the end of stdin; prints a line of JSON
    Hold(Box<hold::Arguments>),
    /// List the locks that are held; with --all also unused semaphores
    List(list::Arguments),
    /// Show one name: holders, queue, token, permits, count
    Show(show::Arguments),
    /// List the locks that are held, and update the list
    Watch(watch::Arguments),
    /// Release a lock by force; the holder notices at its next renewal, within a third of its lease (10 s by default), on ZooKeeper and etcd at once
    Release(release::Arguments),
    /// Set or show the size of a semaphore, or remove it
    #[command(subcommand)]
    Semaphore(semaphore::Arguments),
    /// Set, count down, wait for, show or remove a latch
    #[command(subcommand)]
    Latch(latch::Arguments),
    /// Create what the store needs before its first use (tables); other verbs do it by themselves where they may
    Init(init::Arguments),
    /// Check whether locks are safe in the store, and say what to do if not
    Doctor(doctor::Arguments),
    /// Check the promises on your own store: processes lock, are paused and killed, and a referee judges
    #[command(long_about = torture::LONG_ABOUT, after_long_help = torture::AFTER_HELP)]
    Torture(torture::Arguments),
    /// Print the completions for a shell
    Completions(completions::Arguments),
    /// Print a manual page
    Man(man::Arguments),
    /// Explain a verb, or the exit statuses (exit-codes)
    Help(help::Arguments),
}

/// Why nothing is to be done.
#[derive(Debug)]
pub(crate) enum Early {
    /// Help or version was asked for.
    Told(String),
    Refused(Failure),
}

impl Early {
    /// Prints it and returns the exit status.
    pub(crate) fn show(&self) -> u8 {
        match self {
            Self::Told(text) => print_text(&crate::wrap::to_terminal(text)).unwrap_or_else(|failure| failure.show()),
            Self::Refused(failure) => failure.show(),
        }
    }
}

/// The whole command line, for help, completions and manual pages.
pub(crate) fn command() -> Command {
    // Verbs without a store accept the option and ignore it.
    ["completions", "man", "help"].into_iter().fold(CommandLine::command(), |line, verb| {
        line.mut_subcommand(verb, |verb| StoreOption::augment_args(verb).mut_arg("store", |store| store.hide(true)))
    })
}

/// Parses the command line.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Verb, Early> {
    let words: Vec<OsString> = words.into_iter().collect();
    let written = command().try_get_matches_from(&words).and_then(|matches| CommandLine::from_arg_matches(&matches));
    written.map(|line| line.verb).map_err(|error| match early(&error, &verb(&words)) {
        Early::Refused(failure) => {
            Early::Refused(Failure { message: failure.message.map(|said| discreet(said, &words)), ..failure })
        }
        told => told,
    })
}

/// The verb and its subcommands as far as they exist: their names, each followed by a space.
fn verb(words: &[OsString]) -> (String, Command) {
    let (mut path, mut below) = (String::new(), command());
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        if word == "-S" || word == "--store" {
            words.next();
        } else if !word.as_encoded_bytes().starts_with(b"-") {
            let Some(found) = below.find_subcommand(word).cloned() else { break };
            path.push_str(found.get_name());
            path.push(' ');
            below = found;
        }
    }
    (path, below)
}

/// The help text that the parser rendered, or its complaint in one line.
fn early(error: &clap::Error, (verb, below): &(String, Command)) -> Early {
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Early::Told(text);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Early::Refused(Failure::new(Code::Usage, format!("there is nothing to do; see lockkeeper {verb}--help")));
    }
    // The first paragraph is the complaint; then come hints and the usage.
    let complaint = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect::<Vec<_>>().join(" ");
    let complaint = complaint.strip_prefix("error: ").unwrap_or(&complaint);
    let meant = meant(error, below).map(|word| format!("did you mean {word}? ")).unwrap_or_default();
    Early::Refused(Failure::new(Code::Usage, format!("{complaint}; {meant}see lockkeeper {verb}--help")))
}

/// Removes URLs from a complaint: they may contain a password.
fn discreet(said: String, words: &[OsString]) -> String {
    let written = words
        .iter()
        .filter_map(|word| word.to_str())
        .flat_map(|word| [word, word.split_once('=').map_or("", |(_, value)| value)]);
    written.filter(|word| word.contains('@') && word.contains(':')).fold(said, |said, word| said.replace(word, "URL"))
}

/// The verb, option or value that is nearest to one that does not exist.
fn meant<'a>(error: &'a clap::Error, below: &'a Command) -> Option<&'a str> {
    let told = |kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.as_str()),
        ContextValue::Strings(words) => words.last().map(String::as_str),
        _ => None,
    };
    // The parser finds no suggestion for `rnu`, because two swapped characters are much of so short a word.
    let swapped = told(ContextKind::InvalidSubcommand).and_then(|word| {
        let sorted = |word: &str| {
            let mut sorted: Vec<_> = word.chars().collect();
            sorted.sort_unstable();
            sorted
        };
        below.get_subcommands().map(Command::get_name).find(|verb| sorted(verb) == sorted(word))
    });
    let other = told(ContextKind::InvalidSubcommand)
        .and_then(|word| OTHER_NAMES.iter().find(|(names, _)| names.contains(&word)))
        .and_then(|(_, verb)| below.find_subcommand(verb).map(Command::get_name));
    let suggested = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    swapped.or(other).or_else(|| suggested.into_iter().find_map(told))
}

/// Checks a name.
pub(crate) fn name(written: OsString) -> Result<String, Failure> {
    let refused = |message: String| Failure::new(Code::Usage, message);
    let name = written.into_string().map_err(|name| refused(format!("the name {name:?} is not UTF-8; use another name")))?;
    Name::new(&name).map_err(|error| refused(error.to_string()))?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }
}
