//! Where the store comes from: option, environment, config file; and what is said when that is wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::stores::fresh;
use crate::util::{assert_refused, end, run};

/// A directory that goes with the test.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(of: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lockkeeper-cli-{}-{of}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let file = self.0.join(name);
        fs::create_dir_all(file.parent().expect("below the directory")).expect("a directory");
        fs::write(&file, text).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a file");
        file
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A process or a thread that is just ending may still write into it.
        for _ in 0..100 {
            match fs::remove_dir_all(&self.0) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                _ => return,
            }
        }
    }
}

/// `lockkeeper run` where only the config file can name the store.
fn configured(words: &[&str]) -> Command {
    let mut command = run(words);
    command.env_remove("LOCKKEEPER_STORE");
    command
}

#[test]
fn the_config_file_names_the_store() {
    let directory = Directory::new("names");
    let file = directory.file("mine.toml", "store = \"mongo://h\"\n", 0o644);
    assert_refused(configured(&["job", "true"]).env("LOCKKEEPER_CONFIG", &file), 64, "mongo:");
    directory.file("lockkeeper/config.toml", "store = \"zeta://h\"\n", 0o644);
    let command = &mut configured(&["job", "true"]);
    assert_refused(command.env_remove("LOCKKEEPER_CONFIG").env("XDG_CONFIG_HOME", &directory.0), 64, "zeta:");
    directory.file(".config/lockkeeper/config.toml", "store = \"eta://h\"\n", 0o644);
    let command = &mut configured(&["job", "true"]);
    command.env_remove("LOCKKEEPER_CONFIG").env_remove("XDG_CONFIG_HOME").env("HOME", &directory.0);
    assert_refused(command, 64, "eta:");
    // What is nearer wins.
    assert_refused(run(["job", "true"]).env("LOCKKEEPER_STORE", "near://h").env("LOCKKEEPER_CONFIG", &file), 64, "near:");
    assert_eq!(end(configured(&["-S", &fresh(), "job", "true"]).env("LOCKKEEPER_CONFIG", &file)).code, Some(0));
}

#[test]
fn a_wrong_config_file_is_64_and_one_line() {
    let directory = Directory::new("wrong");
    for (text, says) in [
        ("stroe = \"memory:\"\n", "did you mean store?"),
        ("store = \n", "line 1 is not TOML"),
        ("store = [3]\n", "is not a text"),
        ("store = \"nowhere\"\n", "is not a store URL"),
    ] {
        let file = directory.file("wrong.toml", text, 0o600);
        assert_refused(configured(&["job", "true"]).env("LOCKKEEPER_CONFIG", file), 64, says);
    }
    assert_refused(configured(&["job", "true"]).env("LOCKKEEPER_CONFIG", directory.0.join("none")), 64, "cannot be read");
    // A directory is unreadable for everybody, root included.
    assert_refused(configured(&["job", "true"]).env("LOCKKEEPER_CONFIG", &directory.0), 64, "cannot be read");
}

#[test]
fn a_password_that_others_can_read_is_refused_and_never_shown() {
    let directory = Directory::new("password");
    let text = "store = \"redis://me:secret@127.0.0.1:1/0\"\n";
    for (mode, code, says) in
        [(0o640, 64, "chmod 600"), (0o604, 64, "chmod 600"), (0o600, 69, "cannot reach redis://me@127.0.0.1:1/0")]
    {
        let file = directory.file("open.toml", text, mode);
        let command = &mut configured(&["-w", "0.3", "job", "true"]);
        command.env("LOCKKEEPER_CONFIG", &file);
        assert_refused(command, code, says);
        let ended = end(command);
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
}
