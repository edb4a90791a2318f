//! The command line: what can be written, and how it is explained.

use std::ffi::OsString;
use std::io::Write as _;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use lockkeeper::name::Name;

use crate::duration;
use crate::exit::{Code, Failure, TABLE};

/// Where the locks are when neither `-S` nor the environment tells.
const DEFAULT_STORE: &str = "memory:";

const STORE_VARIABLE: &str = "LOCKKEEPER_STORE";

const EXAMPLES: &str = "\
Examples:
  lockkeeper run hello -- echo \"only one of us at a time\"
  lockkeeper run -S redis://127.0.0.1 -n backup -- ./backup.sh     skip it if it runs elsewhere
  lockkeeper run -w 30s -E 75 deploy -- make deploy                wait half a minute at most
  lockkeeper run report -- sh -c 'psql -v token=$LOCKKEEPER_TOKEN -f report.sql'";

const LONG_ABOUT: &str = "\
Run a command while holding a lock.

Waits for the lock, runs the command, gives the lock back and exits with the command's status.
INT, TERM and HUP are passed on to the command. When the lock is lost, the command gets TERM,
and KILL five seconds later. Options go before NAME: what follows it is the command's.";

const STORES: &str = "\
Stores:
  memory:         excludes only inside one process for now: good for trying it out
  redis://HOST    excludes across processes and machines";

const ENVIRONMENT: &str = "\
The command's environment:
  LOCKKEEPER_NAME   the name of the lock
  LOCKKEEPER_TOKEN  the fencing token: a number larger than that of every earlier holder
  LOCKKEEPER_OWNER  under which owner the store knows this hold";

/// Distributed locks for the shell.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version)]
struct CommandLine {
    #[command(subcommand)]
    verb: Written,
}

/// The verbs as they are written.
#[derive(Debug, Subcommand)]
enum Written {
    /// Run a command while holding a lock
    #[command(long_about = LONG_ABOUT)]
    #[command(override_usage = "lockkeeper run [OPTIONS] NAME [--] COMMAND [ARG]...")]
    Run(RunWritten),
}

#[derive(Args, Debug)]
struct RunWritten {
    /// The store [default: $LOCKKEEPER_STORE, else memory:]
    #[arg(short = 'S', long, value_name = "URL")]
    store: Option<String>,

    /// Do not wait: exit at once if others hold the lock
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,

    /// Wait at most this long: 1.5 (seconds), 250ms, 90s, 2m, 1h [default: no limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    wait: Option<Duration>,

    /// The exit status when the lock was not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Code::NotAcquired as u8)]
    conflict_exit_code: u8,

    /// How long the lock outlives a lockkeeper that crashed; it is renewed meanwhile [default: 30s]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    lease: Option<Duration>,

    /// First come, first served, across all who use --fair
    #[arg(long)]
    fair: bool,

    /// Say on stderr how long it took to get the lock, and its token
    #[arg(short, long)]
    verbose: bool,

    /// Name, command and arguments; the usage line tells it better.
    // One list: options end at its first word, so that those of the command are never taken for ours.
    #[arg(trailing_var_arg = true, hide = true)]
    words: Vec<OsString>,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Verb {
    Run(Run),
}

/// `lockkeeper run`, complete and checked.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) store: String,
    pub(crate) wait: Wait,
    pub(crate) conflict_exit_code: u8,
    pub(crate) lease: Option<Duration>,
    pub(crate) fair: bool,
    pub(crate) verbose: bool,
    pub(crate) name: String,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

/// How long to wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Never,
    AtMost(Duration),
    Forever,
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

/// Understands the command line.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Verb, Early> {
    let long_help = [EXAMPLES, STORES, ENVIRONMENT, &statuses()].join("\n\n");
    let command = CommandLine::command().after_help(EXAMPLES).mut_subcommand("run", |run| run.after_help(long_help));
    let written = command.try_get_matches_from(words).and_then(|matches| CommandLine::from_arg_matches(&matches));
    match written.map_err(|error| early(&error))?.verb {
        Written::Run(run) => run.check().map(Verb::Run).map_err(|message| Early::Refused(Failure::new(Code::Usage, message))),
    }
}

fn statuses() -> String {
    let rows = TABLE.map(|(code, meaning)| format!("  {:<9} {meaning}", code as u8));
    let own = "  else      the command's own; 128 and the signal if one killed it";
    format!("Exit status:\n{}\n{own}", rows.join("\n"))
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
    // The first paragraph is the complaint; then come usage and hints.
    let complaint = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect::<Vec<_>>().join(" ");
    let complaint = complaint.strip_prefix("error: ").unwrap_or(&complaint);
    Early::Refused(Failure::new(Code::Usage, format!("{complaint}; see lockkeeper run --help")))
}

impl RunWritten {
    fn check(self) -> Result<Run, String> {
        let mut words = self.words.into_iter();
        let name = words.next().ok_or("there is no name; write lockkeeper run NAME -- COMMAND")?;
        let name = name.into_string().map_err(|name| format!("the name {name:?} is not UTF-8; use another"))?;
        Name::new(&name).map_err(|error| error.to_string())?;
        let mut program = words.next();
        if program.as_ref().is_some_and(|word| word == "--") {
            program = words.next();
        } else if let Some(word) = program.as_ref().filter(|word| word.as_encoded_bytes().starts_with(b"-")) {
            return Err(format!(
                "{} stands after the name; options go before it, a command that is so named after --",
                word.display()
            ));
        }
        let program = program.ok_or("there is no command; write lockkeeper run NAME -- COMMAND")?;
        Ok(Run {
            store: store(self.store)?,
            wait: match self.wait {
                _ if self.no_wait => Wait::Never,
                Some(Duration::ZERO) => Wait::Never,
                Some(limit) => Wait::AtMost(limit),
                None => Wait::Forever,
            },
            conflict_exit_code: self.conflict_exit_code,
            lease: self.lease,
            fair: self.fair,
            verbose: self.verbose,
            name,
            program,
            arguments: words.collect(),
        })
    }
}

/// The store: what was written, else what the environment says, else memory.
fn store(written: Option<String>) -> Result<String, String> {
    if let Some(written) = written {
        return Ok(written);
    }
    match std::env::var_os(STORE_VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) => value.into_string().map_err(|_| format!("{STORE_VARIABLE} is not UTF-8; set it to a store URL")),
        None => Ok(DEFAULT_STORE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &[&str]) -> Result<Run, String> {
        match parse(["lockkeeper", "run"].iter().chain(line).map(OsString::from)) {
            Ok(Verb::Run(run)) => Ok(run),
            Err(Early::Refused(failure)) => {
                assert_eq!(failure.code, Code::Usage as u8);
                Err(failure.message.unwrap())
            }
            Err(Early::Told(text)) => panic!("told {text}"),
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn options_end_at_the_name() {
        for (line, program, arguments) in [
            (&["-n", "job", "sh", "-c", "exit 3"][..], "sh", &["-c", "exit 3"][..]),
            (&["job", "--", "sh", "-n", "--fair"], "sh", &["-n", "--fair"]),
            (&["--", "job", "env", "--help"], "env", &["--help"]),
            (&["job", "env", "--", "-v"], "env", &["--", "-v"]),
            (&["job", "--", "-odd", "x"], "-odd", &["x"]),
            (&["job", "--", "--", "x"], "--", &["x"]),
        ] {
            let run = run(line).unwrap();
            assert_eq!((run.name.as_str(), run.program.to_str().unwrap()), ("job", program), "{line:?}");
            assert_eq!(run.arguments, arguments, "{line:?}");
            assert!(!run.fair && !run.verbose, "{line:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line() {
        for (line, says) in [
            (&[][..], "there is no name"),
            (&["job"], "there is no command"),
            (&["job", "--"], "there is no command"),
            (&["job", "-n", "true"], "options go before"),
            (&["", "true"], "must not be empty"),
            (&["-w", "soon", "job", "true"], "is not a duration"),
            (&["-w", "-1", "job", "true"], "is negative"),
            (&["-n", "-w", "1", "job", "true"], "cannot be used with"),
            (&["-E", "256", "job", "true"], "256"),
            (&["--sideways", "job", "true"], "--sideways"),
        ] {
            let message = run(line).unwrap_err();
            assert!(message.contains(says), "{line:?}: {message}");
            assert!(!message.contains('\n'), "{line:?}: {message}");
        }
    }

    #[test]
    fn waiting_not_at_all_can_be_written_in_two_ways() {
        assert_eq!(run(&["-n", "job", "true"]).unwrap().wait, Wait::Never);
        assert_eq!(run(&["-w0", "job", "true"]).unwrap().wait, Wait::Never);
        assert_eq!(run(&["-w", "250ms", "job", "true"]).unwrap().wait, Wait::AtMost(Duration::from_millis(250)));
        assert_eq!(run(&["job", "true"]).unwrap().wait, Wait::Forever);
    }
}
