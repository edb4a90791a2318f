//! `lockkeeper run`: take the lock, run the command, give the lock back.

use std::ffi::OsString;
use std::future::Future;
use std::pin::pin;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use lockkeeper::backend::Claim;
use lockkeeper::{Client, ErrorKind};
use tokio::time::sleep_until;

use super::internal;
use crate::child::{Change, Child};
use crate::exit::{Code, Failure, of_child, say};
use crate::hold::{Taken, outer_lasts, outer_lost};
use crate::nested::{self, Outer};
use crate::signals::Signals;
use crate::taking::Taking;
use crate::{args, duration};

pub(crate) const USAGE: &str =
    "lockkeeper run [OPTIONS] NAME [--] COMMAND [ARG]...\n       lockkeeper run [OPTIONS] -c STRING NAME";

pub(crate) const LONG_ABOUT: &str = "\
Run a command while holding a lock.

Waits for the lock, runs the command, gives the lock back and exits with the command's status.
The command runs in a process group of its own, which gets INT, TERM, HUP, QUIT, USR1, USR2, TSTP and CONT from us.
When the lock is lost, or --max-hold is over, the group gets TERM, and KILL after the grace. If lockkeeper itself is killed, so is
the command. Options go before NAME: what follows it is the command's.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  lockkeeper run hello -- echo \"only one of us at a time\"
  lockkeeper run -S redis://127.0.0.1 -n backup -- ./backup.sh     skip it if it runs elsewhere
  lockkeeper run -w 30s -E 75 deploy -- make deploy                wait half a minute at most
  lockkeeper run --at-least 1m -n nightly -- ./report.sh           once, on hosts whose clocks differ by less than that
  lockkeeper run report -- sh -c 'psql -v token=$LOCKKEEPER_TOKEN -f report.sql'

Environment of the command:
  LOCKKEEPER_NAME    the name of the lock
  LOCKKEEPER_TOKEN   the fencing token: a number larger than that of every earlier holder (permits have none)
  LOCKKEEPER_OWNER   under which owner the store knows this hold

lockkeeper help exit-codes tells what exit statuses mean.";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    taking: Taking,

    /// End the command after it has held the lock for this long
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    max_hold: Option<Duration>,

    /// Keep the lock for this long, even if the command is quick
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    at_least: Option<Duration>,

    /// How long a command may take to end after TERM before it is killed
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true, default_value = "5s")]
    grace: Duration,

    /// Inside a command that holds the lock already, run under that hold, and end (79) when it is lost
    #[arg(long, conflicts_with = "permits")]
    reenter: bool,

    /// Run STRING with $SHELL, or /bin/sh
    #[arg(short, long, value_name = "STRING")]
    command: Option<OsString>,

    /// Name, command and arguments; the usage line tells it better.
    // One list: options end at its first word, so that those of the command are never taken for ours.
    #[arg(trailing_var_arg = true, hide = true)]
    words: Vec<OsString>,
}

/// `lockkeeper run`, complete and checked.
#[derive(Debug)]
pub(crate) struct Job {
    options: Arguments,
    name: String,
    command: Command,
}

impl Arguments {
    pub(crate) fn check(mut self) -> Result<Job, Failure> {
        let refused = |message: &str| Failure::new(Code::Usage, message);
        let mut words = std::mem::take(&mut self.words).into_iter();
        let name = words.next().ok_or_else(|| refused("there is no name; write lockkeeper run NAME -- COMMAND"))?;
        let name = args::name(name)?;
        let mut program = words.next();
        if let Some(word) = program.as_ref().filter(|word| *word != "--" && word.as_encoded_bytes().starts_with(b"-")) {
            let word = word.display();
            return Err(refused(&format!(
                "{word} stands after the name; options go before it, a command that is so named after --"
            )));
        }
        if program.as_ref().is_some_and(|word| word == "--") {
            program = words.next();
        }
        let command = match (self.command.take(), program) {
            (Some(_), Some(_)) => return Err(refused("there are two commands; write it either after -c or after the name")),
            (None, None) => return Err(refused("there is no command; write lockkeeper run NAME -- COMMAND")),
            (Some(string), None) => {
                let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
                let mut command = Command::new(shell);
                command.arg("-c").arg(string);
                command
            }
            (None, Some(program)) => {
                let mut command = Command::new(program);
                command.args(words);
                command
            }
        };
        Ok(Job { options: self, name, command })
    }
}

/// Runs the command under the lock; its status, or why there is none.
pub(crate) async fn run(mut job: Job) -> Result<u8, Failure> {
    let began = Instant::now();
    // From here on a signal ends the waiting in good order, or goes to the command.
    let mut signals = Signals::take().map_err(|error| internal("signals cannot be received", &error))?;
    let client = job.options.taking.connect(&mut signals).await?;
    if job.options.reenter
        && let Some(outer) = nested::outer(&job.name)
    {
        return run_inside(job, &client, &outer, signals).await;
    }
    let taken = job.options.taking.take(&client, &job.name, began, &mut signals).await?;
    let since = Instant::now();
    nested::tell(&mut job.command, &taken, taken.token());
    let ended = match client.liveness().map_err(Failure::from).and_then(|alive| start(job.command, alive)) {
        Ok(child) => {
            let lost = async { taken.lost().await.to_string() };
            let options = &job.options;
            supervise(child, &job.name, lost, options.max_hold.map(|most| since + most), options.grace, &mut signals).await
        }
        Err(failure) => Err(failure),
    };
    if let (Ok(_), Some(least)) = (&ended, job.options.at_least) {
        tokio::select! {
            () = sleep_until((since + least).into()) => {}
            // Nothing is kept any more, or nobody wants it kept.
            _ = taken.lost() => {}
            _ = signals.end(|| {}) => {}
        }
    }
    finish(ended, taken).await
}

/// Under the hold of a command around us, for as long as the store tells that it is held.
async fn run_inside(job: Job, client: &Client, outer: &Outer, mut signals: Signals) -> Result<u8, Failure> {
    let (name, claim) = (&job.name, job.options.taking.claim());
    let found = client.inspect(name).await?;
    let holders = found.iter().flat_map(|found| &found.holders).filter(|holder| holder.owner == outer.owner);
    if let Some(holder) = holders.clone().next()
        && (holder.claim.kind() != claim.kind()
            || (claim != Claim::Read && holders.clone().all(|holder| holder.claim == Claim::Read)))
    {
        let message = format!("the command around this one holds {name:?} in another way; give --reenter the same of -s and -x");
        return Err(Failure::new(Code::Usage, message));
    }
    let known_until = outer_lasts(client, name, outer).await?;
    if job.options.taking.verbose {
        say(&format!("inside {name:?}, which a command around this one holds as {}", outer.owner));
    }
    let most = job.options.max_hold.map(|most| Instant::now() + most);
    let child = start(job.command, None)?;
    let ended =
        supervise(child, name, outer_lost(client, name, outer, known_until), most, job.options.grace, &mut signals).await?;
    // What happened since the last look.
    outer_lasts(client, name, outer).await.map_err(|error| match error.kind() {
        ErrorKind::Lost => Failure::new(Code::Lost, format!("{error}; the command may not have been alone")),
        _ => Failure::from(error),
    })?;
    Ok(ended)
}

fn start(command: Command, alive: Option<std::os::fd::OwnedFd>) -> Result<Child, Failure> {
    Child::start(command, alive).map_err(|error| internal("no process can be started", &error))
}

/// Waits for the command, passes signals on to it, and ends it when the lock is lost or was held long enough.
async fn supervise(
    mut child: Child,
    name: &str,
    lost: impl Future<Output = String>,
    until: Option<Instant>,
    grace: Duration,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let mut lost = pin!(lost);
    let mut over = pin!(async {
        match until {
            Some(until) => sleep_until(until.into()).await,
            None => std::future::pending().await,
        }
    });
    let code = loop {
        tokio::select! {
            biased;
            change = child.changed() => match change {
                Ok(Change::Ended(status)) => return Ok(of_child(status)),
                Ok(Change::Stopped(signal)) => child.stopped(signal, signals).await,
                Err(error) => return Err(internal("the command cannot be waited for", &error)),
            },
            reason = &mut lost => {
                say(&format!("the lock {name:?} is lost: {reason}; ending the command"));
                break Code::Lost;
            }
            () = &mut over => {
                say(&format!("the lock {name:?} was held for as long as --max-hold allows; ending the command"));
                break Code::MaxHold;
            }
            signal = signals.next() => child.pass_on(signal),
        }
    };
    child.end(grace, signals).await;
    Err(Failure { code: code as u8, message: None })
}

/// Gives the lock back. The command's status stands, unless it turns out that the command was not alone.
async fn finish(ended: Result<u8, Failure>, taken: Taken) -> Result<u8, Failure> {
    let name = taken.name().to_owned();
    match (taken.release().await, ended) {
        (Err(error), Ok(_)) if error.kind() == ErrorKind::Lost => {
            Err(Failure::new(Code::Lost, format!("{error}; the command may not have been alone")))
        }
        (Err(error), ended) if error.kind() != ErrorKind::Lost => {
            say(&format!("{name:?} was not given back, its lease will end it: {error}"));
            ended
        }
        (_, ended) => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Early, Verb};

    fn job(line: &[&str]) -> Result<Job, String> {
        let refused = |failure: Failure| {
            assert_eq!(failure.code, Code::Usage as u8);
            failure.message.unwrap_or_default()
        };
        match args::parse(["lockkeeper", "run"].iter().chain(line).map(OsString::from)) {
            Ok(Verb::Run(run)) => run.check().map_err(refused),
            Err(Early::Refused(failure)) => Err(refused(failure)),
            other => panic!("{other:?}"),
        }
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
            let job = job(line).unwrap();
            assert_eq!((job.name.as_str(), job.command.get_program().to_str().unwrap()), ("job", program), "{line:?}");
            assert_eq!(job.command.get_args().collect::<Vec<_>>(), arguments, "{line:?}");
            assert!(!job.options.taking.verbose && job.options.taking.claim() == Claim::Mutex, "{line:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line() {
        for (line, says) in [
            (&[][..], "there is no name"),
            (&["job"], "there is no command"),
            (&["job", "--"], "there is no command"),
            (&["-c", "true", "job", "true"], "there are two commands"),
            (&["job", "-n", "true"], "options go before"),
            (&["", "true"], "must not be empty"),
            (&["-w", "soon", "job", "true"], "is not a duration"),
            (&["--grace", "-1", "job", "true"], "is negative"),
            (&["-n", "-w", "1", "job", "true"], "cannot be used with"),
            (&["-s", "-x", "job", "true"], "cannot be used with"),
            (&["--fair", "--permits", "3", "job", "true"], "cannot be used with"),
            (&["--take", "2", "job", "true"], "--permits"),
            (&["--permits", "0", "job", "true"], "0"),
            (&["--reenter", "--permits", "2", "job", "true"], "cannot be used with"),
            (&["-E", "256", "job", "true"], "256"),
            (&["--sideways", "job", "true"], "--sideways"),
        ] {
            let message = job(line).unwrap_err();
            assert!(message.contains(says), "{line:?}: {message}");
            assert!(!message.contains('\n'), "{line:?}: {message}");
        }
    }

    #[test]
    fn the_kind_is_what_was_asked_for() {
        for (line, claim) in [
            (&[][..], Claim::Mutex),
            (&["--fair"], Claim::Fair),
            (&["-s"], Claim::Read),
            (&["-x"], Claim::Write),
            (&["--permits", "3"], Claim::Permits { take: 1, of: 3 }),
            (&["--permits", "3", "--take", "2"], Claim::Permits { take: 2, of: 3 }),
        ] {
            let line: Vec<_> = line.iter().chain(&["job", "true"]).copied().collect();
            assert_eq!(job(&line).unwrap().options.taking.claim(), claim, "{line:?}");
        }
    }
}
