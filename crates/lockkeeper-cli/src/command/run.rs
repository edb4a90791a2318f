//! `lockkeeper run`: take the lock, run the command, give the lock back.

use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use lockkeeper::backend::LossReason;
use lockkeeper::{Client, Error, ErrorKind, MutexGuard};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::args::{Run, Wait};
use crate::exit::{Code, Failure, of_child, say};
use crate::signals::Signals;

/// How long a command may take to end after TERM.
const GRACE: Duration = Duration::from_secs(5);

/// How long is allowed for giving back what an acquisition that failed may have left.
const CLOSING: Duration = Duration::from_secs(2);

/// Runs the command under the lock; its status, or why there is none.
pub(crate) async fn run(run: Run) -> Result<u8, Failure> {
    let began = Instant::now();
    // From here on a signal ends the waiting in good order, or goes to the command.
    let mut signals = Signals::take().map_err(|error| internal("signals cannot be received", &error))?;
    let client = tokio::select! {
        connected = connect(&run) => connected?,
        signal = signals.next() => return Err(Failure::signalled(signal)),
    };
    let acquired = tokio::select! {
        acquired = acquire(&client, &run, began) => acquired,
        signal = signals.next() => Err(Failure::signalled(signal)),
    };
    let guard = match acquired {
        Ok(guard) => guard,
        Err(failure) => {
            // A request may be on its way that would take the lock for nobody.
            let _ = timeout(CLOSING, client.close()).await;
            return Err(failure);
        }
    };
    if run.verbose {
        say(&format!("took {:?} after {:.3} s, token {}", run.name, began.elapsed().as_secs_f64(), guard.token()));
    }
    let ended = match spawn(&run, &guard) {
        Ok(mut child) => supervise(&mut child, &guard, &mut signals, GRACE).await,
        Err(failure) => Err(failure),
    };
    finish(ended, guard).await
}

async fn connect(run: &Run) -> Result<Client, Error> {
    let builder = Client::builder();
    let builder = if let Some(lease) = run.lease { builder.lease(lease) } else { builder };
    builder.connect(&run.store).await
}

async fn acquire(client: &Client, run: &Run, began: Instant) -> Result<MutexGuard, Failure> {
    let (plain, fair) = (client.mutex(&run.name), client.fair_mutex(&run.name));
    let acquired = match run.wait {
        Wait::Never if run.fair => fair.try_lock().await,
        Wait::Never => plain.try_lock().await,
        Wait::AtMost(_) | Wait::Forever => {
            let mut acquiring = if run.fair { fair.lock() } else { plain.lock() };
            if let Wait::AtMost(limit) = run.wait {
                acquiring = acquiring.wait(limit.saturating_sub(began.elapsed()));
            }
            match acquiring.await {
                Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
                acquired => acquired.map(Some),
            }
        }
    };
    acquired?.ok_or_else(|| Failure {
        code: run.conflict_exit_code,
        message: Some(format!("{:?} is held by others; wait longer, or try again later", run.name)),
    })
}

fn spawn(run: &Run, guard: &MutexGuard) -> Result<Child, Failure> {
    Command::new(&run.program)
        .args(&run.arguments)
        .env("LOCKKEEPER_NAME", guard.name())
        .env("LOCKKEEPER_TOKEN", guard.token().to_string())
        .env("LOCKKEEPER_OWNER", guard.owner().to_string())
        .spawn()
        .map_err(|error| {
            let program = run.program.display();
            match error.kind() {
                io::ErrorKind::NotFound => {
                    Failure::new(Code::NotFound, format!("{program} was not found; check its name and $PATH"))
                }
                // Not the command's fault: there are too many processes, or there is no memory.
                io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => internal("no process can be started", &error),
                _ => Failure::new(Code::NotExecutable, format!("{program} cannot be executed: {error}")),
            }
        })
}

/// Waits for the command, and stops it when the lock is lost.
async fn supervise(child: &mut Child, guard: &MutexGuard, signals: &mut Signals, grace: Duration) -> Result<u8, Failure> {
    let ended = tokio::select! {
        biased;
        status = wait(child, signals) => Ok(status),
        reason = guard.lost() => Err(reason),
    };
    match ended {
        Ok(status) => status.map(of_child).map_err(|error| internal("the command cannot be waited for", &error)),
        Err(reason) => Err(stop(child, guard, reason, signals, grace).await),
    }
}

/// Waits until the command ends, and passes signals on to it meanwhile.
async fn wait(child: &mut Child, signals: &mut Signals) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return status,
            signal = signals.next() => send(child, signal),
        }
    }
}

/// Ends a command that is no longer alone: TERM, and KILL to one that does not go.
async fn stop(child: &mut Child, guard: &MutexGuard, reason: LossReason, signals: &mut Signals, grace: Duration) -> Failure {
    say(&format!("the lock {:?} is lost: {reason}; stopping the command", guard.name()));
    send(child, Signal::TERM);
    if timeout(grace, wait(child, signals)).await.is_err() {
        send(child, Signal::KILL);
        let _ = child.wait().await;
    }
    Failure { code: Code::Lost as u8, message: None }
}

/// A child that we have not waited for keeps its number, so this reaches it or nobody.
fn send(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}

/// Gives the lock back. The command's status stands, unless it turns out that the command was not alone.
async fn finish(ended: Result<u8, Failure>, guard: MutexGuard) -> Result<u8, Failure> {
    let name = guard.name().to_owned();
    match (guard.release().await, ended) {
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

fn internal(what: &str, error: &io::Error) -> Failure {
    Failure::new(Code::Internal, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn args(store: &str, wait: Wait, program: &str, arguments: &[&str]) -> Run {
        Run {
            store: store.to_owned(),
            wait,
            conflict_exit_code: 75,
            lease: None,
            fair: false,
            verbose: false,
            name: "job".to_owned(),
            program: program.into(),
            arguments: arguments.iter().map(Into::into).collect(),
        }
    }

    async fn held(store: &str) -> (Client, MutexGuard) {
        let client = Client::connect(store).await.unwrap();
        let guard = client.mutex("job").lock().await.unwrap();
        (client, guard)
    }

    /// A shell that runs `script`, and has come as far as to say so.
    async fn ready(script: &str) -> Child {
        use std::io::Read as _;
        let (mut heard, said) = io::pipe().unwrap();
        let child = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).stdout(said).spawn().unwrap();
        heard.read_exact(&mut [0; 2]).unwrap();
        child
    }

    #[tokio::test]
    async fn a_lock_that_others_hold_is_not_waited_for() {
        let (_client, _guard) = held("memory:busy").await;
        for wait in [Wait::Never, Wait::AtMost(Duration::from_millis(20))] {
            let failure = run(args("memory:busy", wait, "true", &[])).await.unwrap_err();
            assert_eq!(failure.code, 75);
            assert!(failure.message.unwrap().contains("held by others"));
        }
    }

    #[tokio::test]
    async fn a_lock_is_waited_for_until_it_is_free() {
        let (_client, guard) = held("memory:freed").await;
        let (ran, released) = tokio::join!(run(args("memory:freed", Wait::Forever, "true", &[])), guard.release());
        released.unwrap();
        assert_eq!(ran.unwrap(), 0);
    }

    #[tokio::test]
    async fn the_lock_is_free_after_the_command() {
        for (program, code) in [("true", 0), ("false", 1)] {
            let keeps_the_store = Client::connect("memory:after").await.unwrap();
            assert_eq!(run(args("memory:after", Wait::Never, program, &[])).await.unwrap(), code);
            assert!(keeps_the_store.inspect("job").await.unwrap().is_none_or(|snapshot| snapshot.holders.is_empty()));
        }
    }

    #[tokio::test]
    async fn the_lock_is_free_after_a_command_that_cannot_start() {
        let keeps_the_store = Client::connect("memory:unstarted").await.unwrap();
        let failure = run(args("memory:unstarted", Wait::Never, "/no/such/program", &[])).await.unwrap_err();
        assert_eq!(failure.code, Code::NotFound as u8);
        assert!(keeps_the_store.inspect("job").await.unwrap().is_none_or(|snapshot| snapshot.holders.is_empty()));
    }

    /// A lock that somebody takes away; the keeper learns it within a third of the lease.
    async fn taken_away() -> (Client, MutexGuard) {
        let client = Client::builder().lease(Duration::from_millis(600)).connect("memory:").await.unwrap();
        let guard = client.mutex("job").lock().await.unwrap();
        client.force_release("job").await.unwrap();
        (client, guard)
    }

    #[tokio::test]
    async fn a_command_whose_lock_is_lost_gets_term() {
        let (_client, guard) = taken_away().await;
        let mut signals = Signals::take().unwrap();
        let mut child = ready("trap 'exit 0' TERM; echo .; while :; do sleep 0.01; done").await;
        let ended = supervise(&mut child, &guard, &mut signals, Duration::from_secs(60)).await;
        assert_eq!(ended.unwrap_err().code, Code::Lost as u8);
        assert_eq!(child.wait().await.unwrap().code(), Some(0), "it ended by itself");
    }

    #[tokio::test]
    async fn a_command_that_does_not_heed_term_is_killed() {
        let (_client, guard) = taken_away().await;
        let mut signals = Signals::take().unwrap();
        let mut child = ready("trap '' TERM; echo .; while :; do sleep 0.01; done").await;
        let ended = supervise(&mut child, &guard, &mut signals, Duration::from_millis(50)).await;
        assert_eq!(ended.unwrap_err().code, Code::Lost as u8);
        assert_eq!(of_child(child.wait().await.unwrap()), 137);
    }

    #[tokio::test]
    async fn a_loss_that_is_seen_only_at_the_end_is_told() {
        let (_client, guard) = taken_away().await;
        assert_eq!(finish(Ok(0), guard).await.unwrap_err().code, Code::Lost as u8);
    }
}
