//! The command line: the verbs, and how what cannot be understood is told. What a verb takes stands in its file.

use std::ffi::OsString;
use std::io::Write as _;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use lockkeeper::name::Name;

use crate::command::{completions, doctor, help, hold, latch, list, man, release, run, semaphore, show, watch};
use crate::exit::{Code, Failure};

const EXAMPLES: &str = "\
Examples:
  lockkeeper run hello -- echo \"only one of us at a time\"
  lockkeeper run -n backup -- ./backup.sh              skip it if it runs elsewhere
  lockkeeper run -w 30s -E 75 deploy -- make deploy    wait half a minute at most
  lockkeeper run --permits 3 encode -- ffmpeg ...      three at a time
  lockkeeper list                                      who holds what

lockkeeper help VERB tells more about a verb, lockkeeper help exit-codes what exit statuses mean.";

/// Locks for the shell, across processes and machines
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, disable_help_subcommand = true, after_help = EXAMPLES)]
struct CommandLine {
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
    /// List what is held
    List(list::Arguments),
    /// Show one name whole: holders, queue, token, permits, count
    Show(show::Arguments),
    /// List what is held, and keep the list up to date
    Watch(watch::Arguments),
    /// Take a lock from whoever holds it, who learns it at the next renewal: within a third of the lease (10 s)
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
    CommandLine::command()
}

/// Understands the command line.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Verb, Early> {
    let written = command().try_get_matches_from(words).and_then(|matches| CommandLine::from_arg_matches(&matches));
    written.map(|line| line.verb).map_err(|error| early(&error))
}

/// What the parser has to say, in one line where it is a complaint.
fn early(error: &clap::Error) -> Early {
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Early::Told(text);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Early::Refused(Failure::new(Code::Usage, "there is nothing to do; see lockkeeper --help"));
    }
    // The first paragraph is the complaint; then come hints, and the usage, which names the verb.
    let complaint = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect::<Vec<_>>().join(" ");
    let complaint = complaint.strip_prefix("error: ").unwrap_or(&complaint);
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: lockkeeper ")).unwrap_or_default();
    let is_word = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    let verb = usage.split(' ').take_while(is_word).map(|word| format!("{word} ")).collect::<String>();
    Early::Refused(Failure::new(Code::Usage, format!("{complaint}; see lockkeeper {verb}--help")))
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
