//! The lock is held as long as processes of the command run: its group, and after a signal or a loss also those that left the group.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::namespace;
use crate::stores::{fresh, on_each_store};
use crate::util::{end, is_running, run, until};

fn pid(word: &str) -> Pid {
    Pid::from_raw(word.trim().parse().expect("a pid")).expect("a pid")
}

/// Starts a runner, and reads the pids that its script prints in one line.
fn started(command: &mut Command) -> (Child, BufReader<ChildStdout>, Vec<Pid>) {
    let mut runner = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdout = BufReader::new(runner.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    (runner, stdout, line.split_whitespace().map(pid).collect())
}

fn stderr(runner: &mut Child) -> String {
    let mut said = String::new();
    runner.stderr.take().expect("piped").read_to_string(&mut said).expect("stderr");
    said
}

#[test]
fn a_killed_script_frees_the_lock_only_when_its_children_have_ended() {
    on_each_store("a_killed_script_frees_the_lock_only_when_its_children_have_ended", |url| {
        let (mut runner, _stdout, pids) = started(&mut run(["-S", url, "job", "sh", "-c", "sleep 300 & echo $$ $!; wait"]));
        kill_process(pids[0], Signal::KILL).expect("it runs");
        let check = format!("kill -0 {} 2>/dev/null && grep -q 'State:.[RSDT]' /proc/{0}/status && echo two", pids[1]);
        let next = end(&mut run(["-S", url, "-w", "30", "job", "sh", "-c", &check]));
        assert_eq!(next.stdout, "", "{next:?}");
        assert_eq!(runner.wait().expect("it ends").code(), Some(137));
    });
}

#[test]
fn children_of_a_killed_script_that_ignore_term_are_killed_after_the_grace() {
    let url = fresh();
    let script = "sh -c \"trap '' TERM; echo \\$PPID \\$\\$; while :; do sleep 0.05; done\" & wait";
    let (mut runner, _stdout, pids) = started(&mut run(["-S", &url, "--grace", "300ms", "job", "sh", "-c", script]));
    kill_process(pids[0], Signal::KILL).expect("it runs");
    assert_eq!(runner.wait().expect("it ends").code(), Some(137));
    assert!(!is_running(pids[1]), "released while it ran");
}

#[test]
fn after_a_normal_end_the_group_is_waited_for() {
    on_each_store("after_a_normal_end_the_group_is_waited_for", |url| {
        let began = Instant::now();
        let (mut runner, _stdout, pids) = started(&mut run(["-S", url, "job", "sh", "-c", "sleep 1.5 & echo $!; exit 3"]));
        assert_eq!(end(&mut run(["-S", url, "-n", "job", "true"])).code, Some(1), "the group runs");
        assert_eq!(runner.wait().expect("it ends").code(), Some(3));
        assert!(began.elapsed() >= Duration::from_millis(1500) && !is_running(pids[0]));
        let said = stderr(&mut runner);
        assert!(said.contains("waiting for its process group: sleep (pid "), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(end(&mut run(["-S", url, "-n", "job", "true"])).code, Some(0));
    });
}

#[test]
fn with_no_wait_group_only_the_command_is_waited_for() {
    let began = Instant::now();
    let (mut runner, _stdout, pids) =
        started(&mut run(["-v", "--no-wait-group", "job", "sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!; exit 3"]));
    assert_eq!(runner.wait().expect("it ends").code(), Some(3));
    assert!(began.elapsed() < Duration::from_secs(30) && is_running(pids[0]));
    let said = stderr(&mut runner);
    // By its pid: it may not yet have become `sleep`.
    assert!(said.contains("runs on without the lock: ") && said.contains(&format!("(pid {})", pids[0])), "{said}");
    kill_process(pids[0], Signal::KILL).expect("it runs");
}

#[test]
fn signals_reach_the_group_after_the_command_has_ended() {
    let (mut runner, _stdout, pids) = started(&mut run(["job", "sh", "-c", "sleep 300 & echo $!; exit 3"]));
    // The script has ended when its child belongs to the runner.
    until("the script has ended", || stat(pids[0], PARENT) == Some(Pid::from_child(&runner)));
    kill_process(Pid::from_child(&runner), Signal::TERM).expect("it runs");
    assert_eq!(runner.wait().expect("it ends").code(), Some(3));
    assert!(!is_running(pids[0]));
}

#[test]
fn a_daemon_is_not_waited_for_and_named() {
    let script = "setsid sleep 300 >/dev/null 2>&1 & echo $!; exit 0";
    let (mut runner, _stdout, pids) = started(&mut run(["-v", "job", "sh", "-c", script]));
    assert_eq!(runner.wait().expect("it ends").code(), Some(0));
    assert!(is_running(pids[0]));
    let said = stderr(&mut runner);
    assert!(said.contains("runs on without the lock") && said.contains(&format!("(pid {})", pids[0])), "{said}");
    kill_process(pids[0], Signal::KILL).expect("it runs");
}

#[test]
fn a_daemon_is_ended_when_the_command_is_ended_by_a_signal_or_the_lock_is_lost() {
    on_each_store("a_daemon_is_ended_when_the_command_is_ended_by_a_signal_or_the_lock_is_lost", |url| {
        for (lost, status) in [(false, 137), (true, 79)] {
            // The shell between them has ended, so that the daemon is nobody's child but the runner's.
            let script = "(setsid sleep 300 >/dev/null 2>&1 & echo $$ $!); exec sleep 300";
            let (mut runner, _stdout, pids) = started(&mut run(["-S", url, "-l", "6s", "job", "sh", "-c", script]));
            until("the daemon has left the group", || stat(pids[1], SESSION) == Some(pids[1]));
            if lost {
                let client = lockkeeper::blocking::Client::connect(url).expect("a store");
                assert_eq!(client.force_release("job").expect("a store").from.len(), 1);
            } else {
                kill_process(pids[0], Signal::KILL).expect("it runs");
            }
            assert_eq!(runner.wait().expect("it ends").code(), Some(status), "{}", stderr(&mut runner));
            assert!(!is_running(pids[1]), "the daemon runs on");
        }
    });
}

/// Fields of `/proc/PID/stat` after the name.
const PARENT: usize = 1;
const SESSION: usize = 3;

/// A process that another one names. `None` if there is none, or if it is outside this process namespace.
fn stat(of: Pid, field: usize) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{of}/stat")).ok()?;
    Pid::from_raw(stat.rsplit(") ").next()?.split(' ').nth(field)?.parse().ok()?)
}

#[test]
fn as_process_1_orphans_are_reaped_and_a_loss_does_not_cost_the_grace() {
    const TEST: &str = "as_process_1_orphans_are_reaped_and_a_loss_does_not_cost_the_grace";
    if !namespace::is_possible(TEST) {
        return;
    }
    // Orphans that end at once, and zombies counted a little later. Then the command is ended with a long grace.
    let script = "for i in 1 2 3 4 5; do (sleep 0.1 &) ; done; sleep 0.5; grep -l '^State:.Z' /proc/[0-9]*/status; echo counted; exec sleep 300";
    let began = Instant::now();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_lockkeeper"), "run", "-S", &fresh()]);
    command.args(["--max-hold", "2s", "--grace", "60s", "job", "sh", "-c", script]).stdin(Stdio::null());
    let ended = end(&mut command);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(80), "counted\n"), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// While it holds a lock without a command, and while it waits for one.
#[test]
fn as_process_1_orphans_are_reaped_without_a_command() {
    const TEST: &str = "as_process_1_orphans_are_reaped_without_a_command";
    if !namespace::is_possible(TEST) {
        return;
    }
    let url = fresh();
    let client = lockkeeper::blocking::Client::connect(&url).expect("a store");
    let _busy = client.mutex("busy").lock().expect("free");
    let script = "(sleep 0.3; left=yes
        for i in $(seq 100); do grep -q '^State:.Z' /proc/[0-9]*/status || { left=none; break; }; sleep 0.1; done
        echo left: $left; kill -TERM 1) & (sleep 0.1 &)
        exec \"$0\" \"$@\" 2>&1";
    for verb in [&["hold", "-S", &url, "free"][..], &["run", "-S", &url, "-w", "60", "busy", "true"]] {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script, env!("CARGO_BIN_EXE_lockkeeper")]).args(verb);
        let mut first = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare starts");
        // `hold` ends with its input.
        let input = first.stdin.take();
        let mut said = String::new();
        std::io::Read::read_to_string(first.stdout.as_mut().expect("piped"), &mut said).expect("it ends");
        drop(input);
        first.wait().expect("it ends");
        assert!(said.contains("left: none"), "{verb:?}: {said}");
    }
}

#[test]
fn a_dead_watchdog_is_replaced() {
    let mut running = crate::kills::Running::start(&fresh(), "job", 0, "/dev/null", "30s");
    let first = running.watchdog().expect("it is there");
    kill_process(first, Signal::KILL).expect("it runs");
    until("another one is there", || running.watchdog().is_some_and(|now| now != first));
    running.runner.kill().expect("it runs");
    running.runner.wait().expect("it is killed");
    until("the new one ended the group", || !is_running(running.command) && !is_running(running.grandchild));
}

#[test]
fn a_watchdog_whose_runner_is_gone_ends_the_group_and_nobody_else() {
    use std::os::unix::process::CommandExt as _;
    let mut gone = Command::new("true").spawn().expect("true starts");
    gone.wait().expect("it ends");
    let mut group = Command::new("sleep").arg("300").process_group(0).spawn().expect("sleep starts");
    // A relative of the watchdog, as unrelated processes are when the runner has died and the watchdog has another parent.
    let mut bystander = Command::new("sleep").arg("300").process_group(0).spawn().expect("sleep starts");
    let mut watchdog = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    watchdog.args(["__watchdog", &gone.id().to_string(), &group.id().to_string(), &u64::MAX.to_string()]);
    assert!(watchdog.stdin(Stdio::null()).status().expect("the binary starts").success());
    until("the group has ended", || group.try_wait().expect("a child").is_some());
    assert_eq!(bystander.try_wait().expect("a child"), None, "it was ended too");
    bystander.kill().expect("it runs");
    bystander.wait().expect("it is killed");
}
