//! Killed, paused, taken away: whatever happens to the runner, no two commands run, and a script can tell.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::blocking::Client;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::kills::watchdog_of;
use crate::stores::{fresh, on_each_store, on_sqlite};
use crate::util::{end, is_running, run, until};

/// A runner of a script, and the pids that the script told: its own, and that of a child of it.
struct Running {
    runner: Child,
    stdout: BufReader<ChildStdout>,
    shell: Pid,
    grandchild: Pid,
}

const SCRIPT: &str = "sleep 300 & echo $$ $!; wait";

fn running(url: &str, options: &[&str]) -> Running {
    let mut words = vec!["-S", url];
    words.extend(options);
    words.extend(["job", "sh", "-c", SCRIPT]);
    let mut runner = run(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdout = BufReader::new(runner.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    let mut pids = line.split_whitespace().map(|pid| Pid::from_raw(pid.parse().expect("a pid")).expect("a pid"));
    let (shell, grandchild) = (pids.next().expect("two pids"), pids.next().expect("two pids"));
    Running { runner, stdout, shell, grandchild }
}

#[test]
fn a_killed_runner_leaves_nothing_running() {
    let mut running = running(&fresh(), &[]);
    running.runner.kill().expect("it runs");
    running.runner.wait().expect("it is killed");
    until("the command is gone", || !is_running(running.shell));
    until("the grandchild is gone", || !is_running(running.grandchild));
    let mut rest = String::new();
    running.stdout.read_to_string(&mut rest).expect("stdout ends");
}

#[test]
fn after_a_killed_runner_the_next_runs_when_the_lease_has_ended_and_alone() {
    on_each_store("after_a_killed_runner_the_next_runs_when_the_lease_has_ended_and_alone", |url| {
        let mut running = running(url, &["-l", "1s"]);
        let began = Instant::now();
        running.runner.kill().expect("it runs");
        running.runner.wait().expect("it is killed");
        let check = format!("kill -0 {} 2>/dev/null && grep -qv 'State:.Z' /proc/{0}/status; echo done", running.shell);
        let ended = end(&mut run(["-S", url, "-w", "30", "job", "sh", "-c", &check]));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "done\n"), "{ended:?}");
        assert!(!is_running(running.shell) && !is_running(running.grandchild));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    });
}

#[test]
fn runner_and_command_killed_together_free_the_lock_by_the_lease() {
    on_each_store("runner_and_command_killed_together_free_the_lock_by_the_lease", |url| {
        let mut running = running(url, &["-l", "1s"]);
        let began = Instant::now();
        running.runner.kill().expect("it runs");
        let _ = kill_process_group(running.shell, Signal::KILL);
        running.runner.wait().expect("it is killed");
        assert_eq!(end(&mut run(["-S", url, "-w", "30", "job", "true"])).code, Some(0));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    });
}

#[test]
fn a_runner_stopped_past_its_lease_ends_the_command_with_79() {
    on_each_store("a_runner_stopped_past_its_lease_ends_the_command_with_79", |url| {
        let mut running = running(url, &["-l", "600ms"]);
        let pid = Pid::from_child(&running.runner);
        kill_process(pid, Signal::STOP).expect("it runs");
        // Another client acquires it when the lease is over. By then the watchdog has ended the command.
        let client = Client::connect(url).expect("a server");
        let guard = client.mutex("job").lock_with(|call| call.timeout(Duration::from_secs(30))).expect("free by its lease");
        until("the watchdog has ended the command", || !is_running(running.shell) && !is_running(running.grandchild));
        kill_process(pid, Signal::CONT).expect("it runs");
        let status = running.runner.wait().expect("it ends");
        assert_eq!(status.code(), Some(79));
        until("the command is gone", || !is_running(running.shell) && !is_running(running.grandchild));
        let mut said = String::new();
        running.runner.stderr.take().expect("piped").read_to_string(&mut said).expect("stderr");
        assert!(said.contains("is lost"), "{said}");
        guard.release().expect("still ours");
    });
}

/// Nobody is left who could renew the lock, or end the command: as with `flock`, it is held until the command ends.
#[test]
fn on_sqlite_a_command_whose_runner_and_watchdog_were_killed_keeps_the_lock() {
    on_sqlite("on_sqlite_a_command_whose_runner_and_watchdog_were_killed_keeps_the_lock", |url| {
        for mode in [&[][..], &["-s"], &["--permits", "1"]] {
            let mut running = running(url, &[&["-l", "1s"], mode].concat());
            until("its watchdog is there", || watchdog_of(&running.runner).is_some());
            let watchdog = watchdog_of(&running.runner).expect("it is there");
            // It cannot act between the two.
            kill_process(watchdog, Signal::STOP).expect("it runs");
            running.runner.kill().expect("it runs");
            kill_process(watchdog, Signal::KILL).expect("it runs");
            running.runner.wait().expect("it is killed");
            // Longer than the lease.
            let other: &[&str] = if mode == ["-s"] { &["-x"] } else { mode };
            let next = |wait: &str| end(&mut run([&["-S", url, "-w", wait], other, &["job", "true"]].concat())).code;
            assert_eq!(next("3"), Some(1), "{mode:?}");
            assert!(is_running(running.grandchild), "{mode:?}");
            let began = Instant::now();
            kill_process_group(running.shell, Signal::KILL).expect("it runs");
            assert_eq!(next("30"), Some(0), "{mode:?}");
            assert!(began.elapsed() < Duration::from_secs(5), "{mode:?}: {:?}", began.elapsed());
        }
    });
}

/// A command around another, both under the lock `job`; the inner words come after `run`.
fn nested(url: &str, inner: &str) -> std::process::Command {
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    run(["-S", url, "-l", "6s", "job", "sh", "-c", &format!("'{binary}' run -S '{url}' {inner}")])
}

#[test]
fn inside_itself_it_says_at_once_that_it_would_wait_for_itself() {
    on_each_store("inside_itself_it_says_at_once_that_it_would_wait_for_itself", |url| {
        for inner in ["job echo in", "-w 60 job echo in", "other \"$0\" run -S \"$1\" job echo in"] {
            let began = Instant::now();
            let mut command = nested(url, inner);
            let ended = end(command.arg(env!("CARGO_BIN_EXE_lockkeeper")).arg(url));
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(64), ""), "{inner}: {ended:?}");
            assert!(ended.stderr.contains("would wait for itself") && ended.stderr.contains("--reenter"), "{ended:?}");
            assert!(began.elapsed() < Duration::from_secs(20));
        }
        // An environment that tells of a hold that is none is no reason.
        let mut command = run(["-S", url, "job", "echo", "in"]);
        command.env("LOCKKEEPER_AROUND", "[[\"job\",\"00000000-0000-0000-0000-000000000007:42\"]]");
        assert_eq!(end(&mut command).stdout, "in\n");
    });
}

/// Permits are not entered again: each command takes its own, until those around it have them all.
#[test]
fn inside_its_own_last_permit_it_says_that_it_would_wait_for_itself() {
    on_each_store("inside_its_own_last_permit_it_says_that_it_would_wait_for_itself", |url| {
        let binary = env!("CARGO_BIN_EXE_lockkeeper");
        let in_each_other = |commands: &[&str]| {
            let mut command = run(["-S", url, "outside", "sh", "-c"]);
            let each = format!("'{binary}' run -S '{url}' ");
            // Each command is the last words of the one before it.
            command.arg(commands.iter().map(|words| format!("{each}{words} ")).collect::<String>() + "echo in");
            end(&mut command)
        };
        for (commands, held) in [
            (&["--permits 1 p", "--permits 1 p"][..], "1 of the 1 permits"),
            (&["--permits 1 p", "-w 60 --permits 1 p"], "1 of the 1 permits"),
            (&["--permits 2 two", "--permits 2 --take 2 two"], "1 of the 2 permits"),
            (&["--permits 2 two", "--permits 2 two", "other", "--permits 2 two"], "2 of the 2 permits"),
        ] {
            let began = Instant::now();
            let ended = in_each_other(commands);
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(64), ""), "{commands:?}: {ended:?}");
            assert!(ended.stderr.contains("would wait for itself") && ended.stderr.contains(held), "{ended:?}");
            assert!(!ended.stderr.contains("--reenter"), "{ended:?}");
            assert!(began.elapsed() < Duration::from_secs(20));
        }
        // As long as there is one for it, it gets it.
        assert_eq!(in_each_other(&["--permits 2 two", "--permits 2 two"]).stdout, "in\n");
    });
}

#[test]
fn with_reenter_it_runs_under_the_hold_around_it() {
    on_each_store("with_reenter_it_runs_under_the_hold_around_it", |url| {
        let ended = end(&mut nested(url, "--reenter job sh -c 'echo $LOCKKEEPER_NAME; exit 6'"));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(6), "job\n"), "{ended:?}");
        // With another lock in between: name, token and owner are those of the lock that is entered again, and its fence is not that of
        // the other.
        let binary = env!("CARGO_BIN_EXE_lockkeeper");
        let told = "echo $LOCKKEEPER_NAME $LOCKKEEPER_TOKEN $LOCKKEEPER_OWNER $LOCKKEEPER_FENCE_SQL";
        let inner = format!("LOCKKEEPER_FENCE_SQL=other '{binary}' run -S '{url}' --reenter job sh -c '{told}'");
        let mut command =
            run(["-S", url, "job", "sh", "-c", &format!("{told}; '{binary}' run -S '{url}' other sh -c \"$0\""), &inner]);
        let ended = end(command.stderr(Stdio::inherit()));
        let lines: Vec<_> = ended.stdout.lines().collect();
        assert!(lines.len() == 2 && lines[0] == lines[1] && lines[0].starts_with("job "), "{ended:?}");
        // Nobody around it: then it takes the lock itself.
        assert_eq!(end(&mut run(["-S", url, "--reenter", "job", "echo", "in"])).stdout, "in\n");
        // A hold that the store does not know.
        let mut command = run(["-S", url, "--reenter", "job", "echo", "in"]);
        command.env("LOCKKEEPER_AROUND", "[[\"job\",\"00000000-0000-0000-0000-000000000007:42\"]]");
        let ended = end(&mut command);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(79), ""), "{ended:?}");
    });
}

#[test]
fn a_hold_around_it_that_is_lost_ends_it_with_79() {
    on_each_store("a_hold_around_it_that_is_lost_ends_it_with_79", |url| {
        // Not run by a runner, so that only the inner one can notice.
        let client = Client::connect(url).expect("a server");
        let guard = client.mutex("job").lock().expect("free");
        let mut command = run(["-S", url, "--reenter", "job", "sh", "-c", "echo running; exec sleep 300"]);
        command.env("LOCKKEEPER_AROUND", format!("[[\"job\",\"{}\"]]", guard.owner()));
        let mut inner = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let mut line = String::new();
        BufReader::new(inner.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        assert_eq!(line, "running\n");
        guard.release().expect("held");
        let output = inner.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(79), "{output:?}");
    });
}

#[test]
fn a_stopped_command_is_not_our_stop_and_the_lock_is_kept() {
    on_each_store("a_stopped_command_is_not_our_stop_and_the_lock_is_kept", |url| {
        let mut holder = run(["-S", url, "-l", "3s", "job", "sh", "-c", "echo $$; cat; echo end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdout = BufReader::new(holder.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let shell = Pid::from_raw(line.trim().parse().expect("a pid")).expect("a pid");
        kill_process(shell, Signal::STOP).expect("it runs");
        // Longer than its lease: only a runner that runs keeps it.
        assert_eq!(end(&mut run(["-S", url, "-w", "4", "job", "true"])).code, Some(1));
        kill_process(shell, Signal::CONT).expect("it runs");
        holder.stdin.take().expect("piped").write_all(b"x\n").expect("it reads");
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).expect("stdout ends");
        assert_eq!((rest.as_str(), holder.wait().expect("it ends").code()), ("x\nend\n", Some(0)));
    });
}

#[test]
fn on_sqlite_a_killed_holder_is_noticed_within_100_ms() {
    on_sqlite("on_sqlite_a_killed_holder_is_noticed_within_100_ms", |url| {
        let client = Client::connect(url).expect("a store");
        let mut took: Vec<Duration> = (0..5)
            .map(|_| {
                let mut running = running(url, &["--fair"]);
                let mut waiter = run(["-S", url, "--fair", "-w", "60", "job", "echo", "mine"])
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("the binary starts");
                until("it waits", || client.inspect("job").expect("a store").is_some_and(|seen| seen.queue.len() == 1));
                running.runner.kill().expect("it runs");
                let _ = kill_process_group(running.shell, Signal::KILL);
                let began = Instant::now();
                let mut line = String::new();
                BufReader::new(waiter.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
                let took = began.elapsed();
                assert_eq!((line.as_str(), waiter.wait().expect("it ends").code()), ("mine\n", Some(0)));
                running.runner.wait().expect("it is killed");
                took
            })
            .collect();
        took.sort();
        assert!(took[2] < Duration::from_millis(100), "{took:?}");
    });
}

#[test]
fn on_sqlite_a_killed_runner_frees_the_lock_when_its_command_is_gone_too() {
    on_sqlite("on_sqlite_a_killed_runner_frees_the_lock_when_its_command_is_gone_too", |url| {
        // Out of reach of the watchdog: in a session of its own. It has inherited the descriptor that keeps the lock.
        let script = "setsid sleep 1 & echo $$ $!; wait";
        let mut runner = run(["-S", url, "job", "sh", "-c", script]).stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut line = String::new();
        BufReader::new(runner.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        runner.kill().expect("it runs");
        runner.wait().expect("it is killed");
        let escaped = Pid::from_raw(line.split_whitespace().nth(1).expect("two pids").parse().expect("a pid")).expect("a pid");
        // It may be a zombie, or be gone: that depends on who reaps orphans here.
        let check = format!("if grep -q 'State:.[RSD]' /proc/{escaped}/status 2>/dev/null; then echo two; else echo one; fi");
        let ended = end(&mut run(["-S", url, "-w", "20", "job", "sh", "-c", &check]));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "one\n"), "{ended:?}");
    });
}
