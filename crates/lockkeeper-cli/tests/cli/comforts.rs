//! What makes it fit the hand: reports of a long wait, silence, help and tables that fit, completed names, manual pages, hints.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::blocking::Client;

use crate::config::Directory;
use crate::pty::Pty;
use crate::stores::{on_each_store, on_sqlite};
use crate::util::{assert_refused, end, ended, lockkeeper, run, until};

#[test]
fn a_long_wait_is_reported_at_doubling_pauses_where_stderr_is_no_terminal() {
    on_sqlite("a_long_wait_is_reported_at_doubling_pauses_where_stderr_is_no_terminal", |url| {
        let client = Client::connect(url).expect("a store");
        let guard = client.mutex("job").lock().expect("free");
        let waiter = |options: &[&str]| {
            let mut command = run(["-S", url]);
            command.args(options).args(["job", "echo", "mine"]).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("it starts")
        };
        let (began, (mut loud, quiet)) = (Instant::now(), (waiter(&[]), waiter(&["-q"])));
        let mut errors = BufReader::new(loud.stderr.take().expect("piped"));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // The pauses double. Only how early a report comes can be asserted.
        for earliest in [5, 5 + 10] {
            let mut line = String::new();
            errors.read_line(&mut line).expect("a line");
            assert!(began.elapsed() >= Duration::from_secs(earliest), "after {:?}: {line}", began.elapsed());
            assert!(line.starts_with("lockkeeper: still waiting for \"job\" after "), "{line}");
            assert!(
                line.contains(&format!(", held by {host} pid {} (", std::process::id())) && line.contains(") for "),
                "{line}"
            );
        }
        guard.release().expect("held");
        assert_eq!(ended(loud.wait_with_output().expect("it ends")).stdout, "mine\n");
        // It waited as long, and said nothing.
        let quiet = ended(quiet.wait_with_output().expect("it ends"));
        assert_eq!((quiet.code, quiet.stdout.as_str(), quiet.stderr.as_str()), (Some(0), "mine\n", ""));
    });
}

#[test]
fn quiet_says_nothing_about_a_lock_that_others_hold() {
    on_each_store("quiet_says_nothing_about_a_lock_that_others_hold", |url| {
        let client = Client::connect(url).expect("a store");
        let guard = client.mutex("job").lock().expect("free");
        for (words, code) in [(&["-q", "-n", "job", "true"][..], 1), (&["--quiet", "-w", "0.2", "-E", "75", "job", "true"], 75)] {
            let ended = end(run(["-S", url]).args(words));
            assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(code), "", ""), "{words:?}");
        }
        guard.release().expect("held");
        // Mistakes and errors are still told.
        assert_refused(&mut run(["-S", url, "-q", "-v", "job", "true"]), 64, "cannot be used with");
        assert_refused(&mut run(["-S", "redis://127.0.0.1:1", "-q", "-w", "0.3", "job", "true"]), 69, "cannot reach");
    });
}

/// What is drawn on a terminal of so many columns.
fn drawn(words: &[&str], columns: u16) -> Vec<String> {
    let mut pty = Pty::start_with(&lockkeeper(words), columns);
    assert_eq!(pty.end().code(), Some(0), "{:?}", pty.drawn());
    until("it is drawn", || pty.drawn().ends_with("\r\n") && pty.drawn().lines().count() > 1);
    pty.drawn().lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
}

#[test]
fn help_fits_the_terminal() {
    for words in [&["--help"][..], &["run", "--help"], &["help", "list"], &["help", "exit-codes"], &["latch", "set", "-h"]] {
        for columns in [60, 80] {
            let lines = drawn(words, columns);
            let wide: Vec<_> = lines.iter().filter(|line| line.chars().count() > usize::from(columns)).collect();
            // One word, as an URL, may be wider; the help has none.
            assert!(wide.is_empty(), "{words:?} on {columns}: {wide:#?}");
        }
    }
    // In a pipe each paragraph stays one line.
    assert!(end(&mut lockkeeper(["--help"])).stdout.lines().any(|line| line.chars().count() > 100));
}

#[test]
fn tables_fit_60_columns_and_count_wide_characters() {
    on_each_store("tables_fit_60_columns_and_count_wide_characters", |url| {
        let client = Client::connect(url).expect("a store");
        let guards = ["订单:42", "a-plain-and-rather-long-name:7"].map(|name| client.mutex(name).lock().expect("free"));
        until("the holder is known", || {
            client.inspect("订单:42").expect("a store").is_some_and(|found| found.holders[0].client.is_some())
        });
        // Each of the two wide characters takes a column more than it counts.
        let columns = |line: &str| line.chars().count() + line.chars().filter(|letter| "订单".contains(*letter)).count();
        for words in [&["list", "-S", url][..], &["show", "-S", url, "订单:42"]] {
            for room in [60, 80] {
                let lines = drawn(words, room);
                assert!(lines.iter().all(|line| columns(line) <= usize::from(room)), "{room}: {lines:#?}");
                assert!(lines.iter().any(|line| line.contains(&std::process::id().to_string())), "{room}: {lines:#?}");
            }
        }
        let table = end(&mut lockkeeper(["list", "-S", url])).stdout;
        let kinds: Vec<_> =
            table.lines().map(|line| columns(&line[..line.find(" mutex").or(line.find(" KIND")).expect("a kind")])).collect();
        assert!(kinds.iter().all(|at| *at == kinds[0]), "{table}");
        guards.into_iter().for_each(|guard| guard.release().expect("held"));
    });
}

#[test]
fn the_shell_completes_names() {
    on_sqlite("the_shell_completes_names", |url| {
        let client = Client::connect(url).expect("a store");
        let guards = ["orders:42", "orders:43", "o d"].map(|name| client.mutex(name).lock().expect("free"));
        // As bash calls it when the tab key is pressed; a colon ends a word there.
        let script = format!(
            r#"eval "$('{program}' completions bash)"; lockkeeper() {{ '{program}' "$@"; }}
            COMP_LINE=$1 COMP_POINT=${{#1}} COMP_WORDS=($1) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _lockkeeper_names lockkeeper "$2" x; printf '%s\n' "${{COMPREPLY[@]}}""#,
            program = env!("CARGO_BIN_EXE_lockkeeper")
        );
        let completed = |line: &str, word: &str| {
            let mut bash = Command::new("bash");
            bash.args(["-c", &script, "bash", line, word]).env("LOCKKEEPER_STORE", url).stdin(Stdio::null());
            let ended = end(&mut bash);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{line}");
            ended.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        for verb in ["show", "release --yes", "run -n"] {
            assert_eq!(completed(&format!("lockkeeper {verb} ord"), "ord"), ["orders:42", "orders:43"], "{verb}");
        }
        assert_eq!(completed("lockkeeper show orders:4", "4"), ["42", "43"]);
        assert_eq!(completed(&format!("lockkeeper show -S {url} o"), "o"), ["o\\ d", "orders:42", "orders:43"]);
        // The command after the name is not a name.
        assert!(!completed("lockkeeper run orders:42 ord", "ord").contains(&"orders:42".to_owned()));
        guards.into_iter().for_each(|guard| guard.release().expect("held"));
    });
}

#[test]
fn all_pages_of_the_manual_are_written() {
    let directory = Directory::new("all_pages_of_the_manual_are_written");
    let man = directory.0.join("man/man1");
    let ended = end(lockkeeper(["man", "--all"]).arg(&man));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for page in ["lockkeeper.1", "lockkeeper-run.1", "lockkeeper-semaphore-set.1", "lockkeeper-latch-wait.1"] {
        let text = std::fs::read_to_string(man.join(page)).expect("a page");
        assert!(text.contains(".TH") && text.ends_with('\n'), "{page}: {text}");
        assert!(ended.stdout.lines().any(|line| line.ends_with(page)), "{}", ended.stdout);
    }
    assert_refused(lockkeeper(["man", "--all", "/dev/null/x"]).stdin(Stdio::null()), 70, "cannot write /dev/null/x");
}

#[test]
fn what_was_meant_is_suggested() {
    for (words, says) in [
        (&["unlock", "job"][..], "did you mean release?"),
        (&["status", "job"], "did you mean show?"),
        (&["ls"], "did you mean list?"),
        (&["lock", "job"], "did you mean run?"),
        (&["list", "-S", "localhost:6379"], "did you mean redis://localhost:6379?"),
        (&["list", "-S", "/srv/jobs/locks.db"], "did you mean sqlite:/srv/jobs/locks.db?"),
        (&["list", "-S", "redis://:pa/ss@h"], "is written with %2F %3F %23 or %25"),
        (&["list", "-S", "redis://:p@ss/word@h"], "is written with %2F %3F %23 or %25"),
    ] {
        assert_refused(&mut lockkeeper(words), 64, says);
    }
}

#[test]
fn a_unit_of_systemd_has_its_store_in_its_state_directory() {
    let directory = Directory::new("a_unit_of_systemd_has_its_store_in_its_state_directory");
    let mut command = run(["-v", "job", "true"]);
    command.env_remove("LOCKKEEPER_STORE").env_remove("XDG_STATE_HOME").env("STATE_DIRECTORY", &directory.0);
    command.env("LOCKKEEPER_CONFIG", "").env("XDG_CONFIG_HOME", &directory.0).env_remove("HOME");
    let ended = end(&mut command);
    let file = directory.0.join("lockkeeper/locks.db");
    assert!(ended.code == Some(0) && ended.stderr.contains(&format!("from sqlite:{} ", file.display())), "{ended:?}");
}
