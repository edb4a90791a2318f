//! On a terminal: the command has it, ^C and ^Z do what they do without us, and the waiting line goes away.

use lockkeeper::blocking::Client;

use crate::pty::Pty;
use crate::stores::on_each_store;
use crate::util::{lockkeeper, run, until};

/// An interactive shell on a terminal, with job control and a prompt that cannot be mistaken.
fn shell() -> Pty {
    let mut command = lockkeeper::<&str>([]);
    command.env("PS1", "ready> ").env("LOCKKEEPER", env!("CARGO_BIN_EXE_lockkeeper"));
    let mut bash = std::process::Command::new("bash");
    bash.args(["--norc", "--noprofile", "--noediting", "-i"]).env("HISTFILE", "/dev/null");
    for (variable, value) in command.get_envs() {
        match value {
            Some(value) => bash.env(variable, value),
            None => bash.env_remove(variable),
        };
    }
    let pty = Pty::start(&bash);
    pty.expect("ready> ");
    pty
}

#[test]
fn the_command_reads_from_the_terminal() {
    let mut pty = Pty::start(&run(["job", "sh", "-c", "echo asking; read -r answer; echo \"got $answer\""]));
    pty.expect("asking");
    pty.type_in("yes\n");
    pty.expect("got yes");
    assert_eq!(pty.end().code(), Some(0));
}

#[test]
fn a_command_whose_output_is_redirected_gets_the_terminal_when_it_asks() {
    let mut pty = shell();
    pty.type_in(
        "x=$(\"$LOCKKEEPER\" run job sh -c 'echo asking >/dev/tty; read -r answer; echo \"$answer\"'); echo \"got=$x\"\n",
    );
    pty.expect("asking\r\n");
    pty.type_in("seven\n");
    pty.expect("got=seven");
}

#[test]
fn control_c_ends_the_command_and_the_shell_goes_on() {
    let mut pty = shell();
    // With exec: a shell between two commands may swallow it, with and without us.
    pty.type_in("\"$LOCKKEEPER\" run job sh -c 'echo in; exec sleep 300'; echo \"status=$?\"\n");
    pty.expect("in\r\n");
    pty.type_in("\x03");
    pty.expect_times("ready> ", 2);
    pty.type_in("echo \"status=$?\"\n");
    pty.expect("status=130");
}

#[test]
fn control_c_ends_a_script_around_us() {
    let mut pty = shell();
    pty.type_in("sh -c '\"$LOCKKEEPER\" run job sh -c \"echo in; exec sleep 300\"; echo went on'\n");
    pty.expect("in\r\n");
    pty.type_in("\x03");
    pty.type_in("echo \"status=$?\"\n");
    pty.expect("status=130");
    assert_eq!(pty.drawn().matches("went on\r\n").count(), 0, "{:?}", pty.drawn());
}

#[test]
fn a_background_command_that_reads_gets_the_terminal_with_fg() {
    let mut pty = shell();
    pty.type_in("\"$LOCKKEEPER\" run job sh -c 'echo in $$.; read -r line; echo \"got $line\"' &\n");
    pty.expect(".\r\n");
    let command =
        pty.drawn().lines().find_map(|line| line.split("in ").last()?.strip_suffix('.').map(str::to_owned)).expect("its pid");
    until("the kernel stops it", || state(&command) == "T");
    pty.type_in("fg\n");
    until("the command runs in the foreground", || has_terminal_and_runs(&command));
    pty.type_in("seven\n");
    pty.expect("got seven");
}

#[test]
fn a_background_command_that_is_stopped_for_the_terminal_can_be_ended() {
    for (end, status) in [("kill -TERM $!", 143), ("kill -INT $!", 130)] {
        let mut pty = shell();
        pty.type_in("\"$LOCKKEEPER\" run job sh -c 'echo in $$.; exec cat' &\n");
        pty.expect(".\r\n");
        let command =
            pty.drawn().lines().find_map(|line| line.split("in ").last()?.strip_suffix('.').map(str::to_owned)).expect("its pid");
        until("the kernel stops it", || state(&command) == "T");
        pty.type_in(&format!("{end}; wait $!; echo \"status=$?\"\n"));
        pty.expect(&format!("status={status}"));
    }
}

/// The state of a process, as `/proc` names it.
fn state(pid: &str) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.split(' ').next()).unwrap_or_default().to_owned()
}

/// As the kernel sees it: not stopped, and of the group that the terminal belongs to.
fn has_terminal_and_runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
    let fields: Vec<_> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    let (state, group, foreground) = (fields[0], fields[2], fields[5]);
    state != "T" && group == foreground
}

#[test]
fn control_z_stops_the_job_and_fg_goes_on() {
    let mut pty = shell();
    pty.type_in("\"$LOCKKEEPER\" run job sh -c 'echo in $$.; read -r line; echo \"got $line\"'\n");
    pty.expect(".\r\n");
    let command =
        pty.drawn().lines().find_map(|line| line.strip_prefix("in ")?.strip_suffix('.').map(str::to_owned)).expect("its pid");
    for times in 1..=2 {
        pty.type_in("\x1a");
        pty.expect_times("Stopped", times);
        pty.type_in("fg\n");
        // Keys that come before the shell has passed the terminal on are the shell's.
        until("the command runs in the foreground", || has_terminal_and_runs(&command));
    }
    pty.type_in("seven\n");
    pty.expect("got seven");
    pty.type_in("echo \"status=$?\"\n");
    pty.expect("status=0");
}

#[test]
fn the_waiting_line_tells_who_holds_it_and_disappears() {
    on_each_store("the_waiting_line_tells_who_holds_it_and_disappears", |url| {
        let client = Client::connect(url).expect("a server");
        let guard = client.mutex("job").lock().expect("free");
        for (no_color, dim) in [("", true), ("1", false)] {
            let mut command = run(["-S", url, "--fair", "-w", "30", "job", "echo", "mine"]);
            command.env("NO_COLOR", no_color);
            let mut pty = Pty::start(&command);
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            pty.expect(&format!("for \"job\": held by {host} pid {}", std::process::id()));
            pty.expect(", 1 of 1 in the queue");
            assert_eq!(pty.drawn().contains("\x1b[2m"), dim, "{:?}", pty.drawn());
            if no_color.is_empty() {
                pty.type_in("\x03");
                assert_eq!(pty.end().code(), Some(130));
                // What it drew last may be read after it has ended.
                until("the line has disappeared", || pty.drawn().ends_with("\r\x1b[K"));
            } else {
                client.force_release("job").expect("a server");
                pty.expect("\r\x1b[Kmine");
                assert_eq!(pty.end().code(), Some(0));
            }
        }
        // It was released by force. Nothing of this client may write into the store's directory when that is removed.
        let _ = guard.release();
        client.close().expect("nothing is held");
    });
}

#[test]
fn release_asks_on_a_terminal() {
    on_each_store("release_asks_on_a_terminal", |url| {
        let client = Client::connect(url).expect("a server");
        let _guard = client.mutex("job").lock().expect("free");
        for (answer, code, says) in [("n\n", 1, "was not released"), ("y\n", 0, "released \"job\", held by")] {
            let mut pty = Pty::start(&lockkeeper(["release", "-S", url, "job"]));
            pty.expect("[y/N]");
            pty.type_in(answer);
            pty.expect(says);
            assert_eq!(pty.end().code(), Some(code));
        }
    });
}

#[test]
fn watch_redraws_in_place() {
    on_each_store("watch_redraws_in_place", |url| {
        let client = Client::connect(url).expect("a server");
        let guard = client.mutex("first").lock().expect("free");
        let mut pty = Pty::start(&lockkeeper(["watch", "-S", url, "--every", "100ms"]));
        pty.expect("first  mutex");
        guard.release().expect("held");
        pty.expect("nothing is held");
        assert!(pty.drawn().contains("\x1b[2A\r\x1b[J"), "{:?}", pty.drawn());
        pty.type_in("\x03");
        pty.end();
    });
}
