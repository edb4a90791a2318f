//! `lockkeeper run`: acquire the lock, run the command, release the lock.

use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use lockkeeper::backend::Claim;
use lockkeeper::runtime::Instant as LeaseInstant;
use lockkeeper::{Client, ErrorKind};
use tokio::time::sleep_until;

use super::internal;
use crate::child::{Child, reap_orphans};
use crate::exit::{Code, Failure, say};
use crate::held::{AnyGuard, outer_lasts, outer_lost};
use crate::lock_options::LockOptions;
use crate::nested::{self, Outer};
use crate::signals::Signals;
use crate::supervise::{Rules, supervise};
use crate::{args, duration};

pub(crate) const USAGE: &str =
    "lockkeeper run [OPTIONS] NAME [--] COMMAND [ARG]...\n       lockkeeper run [OPTIONS] -c STRING NAME";

pub(crate) const LONG_ABOUT: &str = "\
Run a command while holding a lock.

Waits for the lock, runs the command, releases the lock and exits with the command's status.
The command runs in its own process group. Signals sent to lockkeeper (INT, TERM, HUP, QUIT, USR1, USR2, TSTP, CONT) go to the whole group.
The lock is released when the whole group has ended. If a signal ended the command, the rest of the group is ended first.
When the lock is lost, or --max-hold is over, the group gets TERM, and KILL after the grace.
If lockkeeper is killed, or is stopped for longer than the lease, the group is killed.
Options go before NAME; everything after it belongs to the command.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  lockkeeper run hello -- echo \"only one of us at a time\"
  lockkeeper run -S redis://127.0.0.1 -n backup -- ./backup.sh     skip if it runs elsewhere
  lockkeeper run -w 30s -E 75 deploy -- make deploy                wait at most 30 seconds
  lockkeeper run --at-least 1m -n nightly -- ./report.sh           once per run, if the hosts' clocks differ by less than 1m
  lockkeeper run report -- sh -c 'psql -v token=$LOCKKEEPER_TOKEN -f report.sql'

Environment of the command:
  LOCKKEEPER_NAME        the name of the lock
  LOCKKEEPER_TOKEN       the fencing token: a number larger than that of every earlier holder (permits have none)
  LOCKKEEPER_OWNER       the owner id of this hold in the store
  LOCKKEEPER_FENCE_SQL   with postgres:// and mysql:// only: the statement that fences a transaction of yours; run it first in it

See lockkeeper help exit-codes for the exit statuses.";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    lock: LockOptions,

    /// End the command after it has held the lock for this long
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    max_hold: Option<Duration>,

    /// Hold the lock for at least this long, even if the command ends earlier
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    at_least: Option<Duration>,

    /// Time between TERM and KILL when the command is ended
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true, default_value = "5s")]
    grace: Duration,

    /// Release the lock when the command ends, even if processes of its group still run
    #[arg(long)]
    no_wait_group: bool,

    /// If a command around this one holds the lock, run under its hold; exit 79 when that hold is lost
    #[arg(long, conflicts_with = "permits")]
    reenter: bool,

    /// Let the command inherit the password in LOCKKEEPER_STORE; without it the command gets the URL without the password
    #[arg(long)]
    pass_password: bool,

    /// Run STRING with $SHELL, else with /bin/sh
    #[arg(short, long, value_name = "STRING")]
    command: Option<OsString>,

    /// Name, command and arguments; see the usage line.
    // One list: options end at its first word, so options of the command are never mistaken for ours.
    #[arg(trailing_var_arg = true, hide = true)]
    words: Vec<OsString>,
}

/// A checked `lockkeeper run`.
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
        let name = words.next().ok_or_else(|| refused("there is no name; use lockkeeper run NAME -- COMMAND"))?;
        let name = args::name(name)?;
        let mut program = words.next();
        if let Some(word) = program.as_ref().filter(|word| *word != "--" && word.as_encoded_bytes().starts_with(b"-")) {
            let word = word.display();
            return Err(refused(&format!(
                "{word} comes after the name; options go before the name, a command that starts with - goes after --"
            )));
        }
        if program.as_ref().is_some_and(|word| word == "--") {
            program = words.next();
        }
        let command = match (self.command.take(), program) {
            (Some(_), Some(_)) => return Err(refused("there are two commands; give it either after -c or after the name")),
            (None, None) => return Err(refused("there is no command; use lockkeeper run NAME -- COMMAND")),
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
        if let (Some(most), Some(least)) = (self.max_hold, self.at_least)
            && most < least
        {
            return Err(refused(&format!("--max-hold {most:?} is shorter than --at-least {least:?}; use a longer --max-hold")));
        }
        let mut command = command;
        self.lock.store.pass_on(&mut command, self.pass_password);
        Ok(Job { options: self, name, command })
    }

    fn rules<'a>(&self, name: &'a str, since: Instant) -> Rules<'a> {
        Rules {
            name,
            until: self.max_hold.map(|most| since + most),
            grace: self.grace,
            wait_group: !self.no_wait_group,
            verbose: self.lock.verbose,
            quiet: self.lock.quiet,
        }
    }
}

/// Runs the command under the lock. Returns its status, or why there is none.
pub(crate) async fn run(mut job: Job) -> Result<u8, Failure> {
    let began = Instant::now();
    // From here on a signal ends the wait in good order, or goes to the command.
    let mut signals = Signals::take().map_err(|error| internal("cannot receive signals", &error))?;
    // The command's own name only: its arguments may contain a password.
    let program = job.command.get_program().to_string_lossy().into_owned();
    let client = job.options.lock.connect(&program, &mut signals).await?;
    if job.options.reenter
        && let Some(outer) = nested::outer(&job.name)
    {
        return run_inside(job, &client, &outer, signals).await;
    }
    let guard = job.options.lock.acquire(&client, &job.name, began, &mut signals).await?;
    let since = Instant::now();
    nested::set_environment(&mut job.command, &guard, guard.token());
    nested::set_fence(&mut job.command, client.sql_fence(&guard).ok().as_ref());
    let rules = job.options.rules(&job.name, since);
    let ended = match client.liveness().map_err(Failure::from).and_then(|alive| start(job.command, alive, guard.deadline())) {
        Ok(child) => {
            let lost = async { guard.lost().await.to_string() };
            let supervised = supervise(child, rules, lost, || guard.deadline(), &mut signals);
            tokio::select! {
                ended = supervised => ended,
                never = tell_of_outages(&client, &guard), if !job.options.lock.quiet => match never {},
            }
        }
        Err(failure) => Err(failure),
    };
    if let (Ok(_), Some(least)) = (&ended, job.options.at_least) {
        tokio::select! {
            () = sleep_until((since + least).into()) => {}
            // The lock is gone, or the user does not want to wait.
            _ = guard.lost() => {}
            _ = signals.end(|| {}) => {}
            never = reap_orphans() => match never {},
        }
    }
    finish(ended, guard).await
}

/// Says that the lock cannot be renewed, before it is lost: for as long as the command runs.
async fn tell_of_outages(client: &Client, guard: &AnyGuard) -> Infallible {
    let (name, url, mut told) = (guard.name(), client.url(), false);
    loop {
        sleep_until(tokio::time::Instant::now() + Duration::from_secs(1)).await;
        let away = !client.is_connected();
        if away != std::mem::replace(&mut told, away) {
            say(&if away {
                let left = guard.remaining().as_secs_f64();
                format!("cannot renew {name:?}: {url} does not answer; the lock is lost in {left:.0} s if this goes on")
            } else {
                format!("{url} answers again; {name:?} is still held")
            });
        }
    }
}

/// Runs the command under the hold of a command around this one, for as long as the store says that it is held.
async fn run_inside(mut job: Job, client: &Client, outer: &Outer, mut signals: Signals) -> Result<u8, Failure> {
    let (name, claim) = (&job.name, job.options.lock.claim());
    let found = client.inspect(name).await?;
    let holders = found.iter().flat_map(|found| &found.holders).filter(|holder| holder.owner == outer.owner);
    if let Some(holder) = holders.clone().next()
        && (holder.claim.kind() != claim.kind()
            || (claim != Claim::Read && holders.clone().all(|holder| holder.claim == Claim::Read)))
    {
        let message =
            format!("the command around this one holds {name:?} in another mode; use the same of -s and -x with --reenter");
        return Err(Failure::new(Code::Usage, message));
    }
    let known_until = Cell::new(outer_lasts(client, name, outer).await?);
    outer.set_environment(&mut job.command, name, holders.clone().find_map(|holder| holder.token));
    if job.options.lock.verbose {
        say(&format!("running under {name:?}, which a command around this one holds as {}", outer.owner));
    }
    let rules = job.options.rules(name, Instant::now());
    let child = start(job.command, None, known_until.get())?;
    let lost = outer_lost(client, name, outer, &known_until);
    let ended = supervise(child, rules, lost, || known_until.get(), &mut signals).await?;
    // It may have been lost since the last check.
    outer_lasts(client, name, outer).await.map_err(|error| match error.kind() {
        ErrorKind::Lost => Failure::new(Code::Lost, format!("{error}; another command may have run at the same time")),
        _ => Failure::from(error),
    })?;
    Ok(ended)
}

fn start(command: Command, alive: Option<OwnedFd>, deadline: LeaseInstant) -> Result<Child, Failure> {
    Child::start(command, alive, deadline).map_err(|error| internal("cannot start a process", &error))
}

/// Releases the lock. The command's status stands, unless the lock was lost while the command ran.
async fn finish(ended: Result<u8, Failure>, guard: AnyGuard) -> Result<u8, Failure> {
    let name = guard.name().to_owned();
    match (guard.release().await, ended) {
        (Err(error), Ok(_)) if error.kind() == ErrorKind::Lost => {
            Err(Failure::new(Code::Lost, format!("{error}; another command may have run at the same time")))
        }
        (Err(error), ended) if error.kind() != ErrorKind::Lost => {
            say(&format!("could not release {name:?}, it is free when its lease ends: {error}"));
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
            assert!(!job.options.lock.verbose && job.options.lock.claim() == Claim::Mutex, "{line:?}");
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
            (&["--max-hold", "1s", "--at-least", "2s", "job", "true"], "is shorter than --at-least"),
            (&["--max-hold", "999999999999h", "job", "true"], "is too long"),
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
            assert_eq!(job(&line).unwrap().options.lock.claim(), claim, "{line:?}");
        }
    }
}
