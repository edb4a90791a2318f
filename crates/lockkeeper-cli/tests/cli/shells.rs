//! fish and zsh complete names with the scripts that the program prints, as bash does in `comforts`.

use std::process::{Command, Stdio};

use lockkeeper::blocking::Client;

use crate::config::Directory;
use crate::stores::on_sqlite;
use crate::util::end;

/// What the shell prints when it is given this script; `None` where there is no such shell. `lockkeeper` is on its PATH, and no file of a user is
/// read.
fn printed(test: &str, shell: &[&str], script: &str, url: &str) -> Option<Vec<String>> {
    let folder = Directory::new(&format!("{test}-path"));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_lockkeeper"), folder.0.join("lockkeeper")).expect("a link");
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).args(["-c", script]).env("PATH", path).env("HOME", &folder.0).env("LOCKKEEPER_STORE", url);
    let is_there = Command::new(shell[0]).args(["-c", "true"]).stdin(Stdio::null()).status().is_ok_and(|status| status.success());
    if !is_there {
        lockkeeper::conformance::skip(test, &format!("there is no {}", shell[0]));
        return None;
    }
    let ended = end(command.stdin(Stdio::null()));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{script}");
    Some(ended.stdout.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect())
}

#[test]
fn fish_completes_names() {
    on_sqlite("fish_completes_names", |url| {
        let client = Client::connect(url).expect("a store");
        let guards = ["orders:42", "orders:43"].map(|name| client.mutex(name).lock().expect("free"));
        let completed = |line: &str| {
            let script = format!("lockkeeper completions fish | source; complete -C '{line}'");
            printed("fish_completes_names", &["fish", "--no-config"], &script, url)
        };
        for verb in ["show", "release --yes", "run -n"] {
            let Some(names) = completed(&format!("lockkeeper {verb} ord")) else { return };
            assert_eq!(names, ["orders:42", "orders:43"], "{verb}");
        }
        assert_eq!(completed("lockkeeper sho").expect("fish"), ["show"]);
        // The command after the name is not a name.
        assert!(!completed("lockkeeper run orders:42 ord").expect("fish").contains(&"orders:42".to_owned()));
        guards.into_iter().for_each(|guard| guard.release().expect("held"));
    });
}

#[test]
fn zsh_completes_names() {
    on_sqlite("zsh_completes_names", |url| {
        let client = Client::connect(url).expect("a store");
        let guards = ["orders:42", "orders:43"].map(|name| client.mutex(name).lock().expect("free"));
        // What zsh has while the tab key is pressed: the line, and `compadd`, which takes the names.
        let completed = |line: &str| {
            let script = format!(
                "compdef() {{ true }}; _default() {{ print default }}; compadd() {{ shift; print -rl -- ${{(P)1}} }}; \
                 eval \"$(lockkeeper completions zsh)\"; LBUFFER='{line}'; _lockkeeper_names"
            );
            printed("zsh_completes_names", &["zsh", "-f"], &script, url)
        };
        for verb in ["show", "release --yes", "run -n"] {
            let Some(names) = completed(&format!("lockkeeper {verb} ord")) else { return };
            assert_eq!(names, ["orders:42", "orders:43"], "{verb}");
        }
        assert_eq!(completed("lockkeeper run orders:42 ord").expect("zsh"), ["default"]);
        guards.into_iter().for_each(|guard| guard.release().expect("held"));
    });
}
