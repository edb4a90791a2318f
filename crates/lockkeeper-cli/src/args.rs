//! The command line: the verbs, and how what cannot be understood is told. What a verb takes stands in its file.

use std::ffi::OsString;
use std::io::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use lockkeeper::name::Name;

use crate::command::{completions, doctor, help, hold, latch, list, man, release, run, semaphore, show, watch};
use crate::exit::{Code, Failure};
use crate::store::StoreOption;

/// What the environment may say to every verb that uses a store.
pub(crate) const ENVIRONMENT: &str = "\
Environment:
  LOCKKEEPER_STORE    the store, where no -S names one
  LOCKKEEPER_CONFIG   the config file, else lockkeeper/config.toml in $XDG_CONFIG_HOME or ~/.config; it may name the store, too
  NO_COLOR            with any text: no colours";

// Paragraphs that begin with a title are sections of the manual page.
const EXAMPLES: &str = "\
Examples:
  lockkeeper run hello -- echo \"only one of us at a time\"
  lockkeeper run -n backup -- ./backup.sh              skip it if it runs elsewhere
  lockkeeper run -w 30s -E 75 deploy -- make deploy    wait half a minute at most
  lockkeeper run --permits 3 encode -- ffmpeg ...      three at a time
  lockkeeper -S redis://127.0.0.1 list                 who holds what, at another store";

const MORE: &str = "\
lockkeeper help VERB tells more about a verb, lockkeeper help exit-codes what exit statuses mean.";

/// Locks for the shell, across processes and machines
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, disable_help_subcommand = true, after_help = [EXAMPLES, ENVIRONMENT, MORE].join("\n\n"))]
struct CommandLine {
    // Read by the verb, to which the parser hands it down.
    #[command(flatten)]
    _store: StoreOption,

    #[command(subcommand)]
    verb: Verb,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a command while holding a lock
    #[command(long_about = run::LONG_ABOUT, after_long_help = run::AFTER_HELP, override_usage = run::USAGE)]
    Run(Box<run::Arguments>),
    /// Hold a lock until a signal or the end of stdin, and print what is held as a line of JSON
    Hold(Box<hold::Arguments>),
    /// List what is held; semaphores that nobody uses with --all
    List(list::Arguments),
    /// Show one name whole: holders, queue, token, permits, count
    Show(show::Arguments),
    /// List what is held, and keep the list up to date
    Watch(watch::Arguments),
    /// Take a lock from whoever holds it, who learns of it at the next renewal: within about a third of the lease (10 s)
    Release(release::Arguments),
    /// Set or show the size of a semaphore, or remove it
    #[command(subcommand)]
    Semaphore(semaphore::Arguments),
    /// Set, count down, wait for or show a latch
    #[command(subcommand)]
    Latch(latch::Arguments),
    /// Look whether locks are safe at the store, and say what to do if not
    Doctor(doctor::Arguments),
    /// Print the completions for a shell
    Completions(completions::Arguments),
    /// Print a manual page
    Man(man::Arguments),
    /// Explain a verb, or the exit statuses (exit-codes)
    Help(help::Arguments),
}

/// An end before anything was done.
#[derive(Debug)]
pub(crate) enum Early {
    /// Help or version was asked for.
    Told(String),
    Refused(Failure),
}

impl Early {
    /// Says it, and gives the exit status.
    pub(crate) fn show(&self) -> u8 {
        match self {
            Self::Told(text) => {
                let _ = write!(std::io::stdout(), "{text}");
                0
            }
            Self::Refused(failure) => failure.show(),
        }
    }
}

/// The whole command line, for help, completions and manual pages.
pub(crate) fn command() -> Command {
    // The verbs that have no use for a store let it pass.
    ["completions", "man", "help"].into_iter().fold(CommandLine::command(), |line, verb| {
        line.mut_subcommand(verb, |verb| StoreOption::augment_args(verb).mut_arg("store", |store| store.hide(true)))
    })
}

/// Understands the command line.
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

/// The verb that was written, with the ones below it as far as they exist: their words, each with a space behind it.
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

/// What the parser has to say about what was written for a verb, in one line where it is a complaint.
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

/// A complaint without the URLs that were written in the wrong place: a password may be in them.
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
    // The parser's measure of likeness overlooks `rnu`: for so short a word a swap is everything.
    let swapped = told(ContextKind::InvalidSubcommand).and_then(|word| {
        let letters = |word: &str| {
            let mut letters: Vec<_> = word.chars().collect();
            letters.sort_unstable();
            letters
        };
        below.get_subcommands().map(Command::get_name).find(|verb| letters(verb) == letters(word))
    });
    let suggested = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    swapped.or_else(|| suggested.into_iter().find_map(told))
}

/// A name, checked.
pub(crate) fn name(written: OsString) -> Result<String, Failure> {
    let refused = |message: String| Failure::new(Code::Usage, message);
    let name = written.into_string().map_err(|name| refused(format!("the name {name:?} is not UTF-8; use another")))?;
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
