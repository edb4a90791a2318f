//! Where a sqlite store lies: what is refused there, and what `doctor` says about it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::config::Directory;
use crate::util::{assert_refused, end, lockkeeper, run};

fn url(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

#[test]
fn a_named_pipe_as_database_is_refused_at_once() {
    let directory = Directory::new("named-pipe");
    let file = directory.0.join("locks.db");
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .expect("a pipe");
    // `timeout` ends what hangs.
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "20", env!("CARGO_BIN_EXE_lockkeeper"), "run", "-S", &url(&file), "job", "true"]);
    assert_refused(command.stdin(Stdio::null()), 64, "is not a regular file");
}

/// Also while it waits for a lock: nobody could end it but by KILL.
#[test]
fn a_named_pipe_as_config_file_is_refused_at_once() {
    let directory = Directory::new("named-pipe-config");
    fs::create_dir(directory.0.join("lockkeeper")).expect("a directory");
    let file = directory.0.join("lockkeeper/config.toml");
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .expect("a pipe");
    let file = file.to_str().expect("text");
    let home = directory.0.to_str().expect("text");
    let none = ("XDG_CONFIG_HOME", "/nowhere");
    for (store, variable) in [
        (format!("config:{file}"), none),
        (format!("rediss://127.0.0.1:1?ca={file}"), none),
        (String::new(), ("LOCKKEEPER_CONFIG", file)),
        (String::new(), ("XDG_CONFIG_HOME", home)),
    ] {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "20", env!("CARGO_BIN_EXE_lockkeeper"), "run"]);
        command.env_remove("LOCKKEEPER_STORE").env_remove("LOCKKEEPER_CONFIG").env(variable.0, variable.1);
        if !store.is_empty() {
            command.args(["-S", &store]);
        }
        assert_refused(command.args(["job", "true"]).stdin(Stdio::null()), 64, "is not a regular file");
    }
}

/// Where all can write, anybody may have put it there.
#[test]
fn a_database_of_another_user_is_refused_where_all_can_write() {
    if !rustix::process::geteuid().is_root() {
        let test = "a_database_of_another_user_is_refused_where_all_can_write";
        return lockkeeper::conformance::skip(test, "only root can make one");
    }
    let directory = Directory::new("database-foreign");
    let file = directory.0.join("locks.db");
    assert_eq!(end(&mut run(["-S", &url(&file), "job", "true"])).code, Some(0));
    for path in [file.clone(), directory.0.join("locks.db-live")] {
        chown(path, Some(4711), None).expect("root may");
    }
    // An operator may look at the store of a user, in that user's own directory; doctor says whose it is.
    let ended = end(&mut lockkeeper(["doctor", "-S", &url(&file)]));
    assert!(ended.code == Some(0) && ended.stdout.contains("another user (uid 4711)"), "{ended:?}");
    fs::set_permissions(&directory.0, Permissions::from_mode(0o1777)).expect("a directory");
    assert_refused(&mut run(["-S", &url(&file), "job", "true"]), 69, "belongs to another user (uid 4711)");
}

#[test]
fn a_live_directory_that_others_can_write_is_refused() {
    let directory = Directory::new("live-open");
    let file = directory.0.join("locks.db");
    let live = directory.0.join("locks.db-live");
    fs::create_dir(&live).expect("a directory");
    for mode in [0o702, 0o720, 0o777] {
        fs::set_permissions(&live, Permissions::from_mode(mode)).expect("a directory");
        assert_refused(&mut run(["-S", &url(&file), "job", "true"]), 69, "can be written by other users");
        assert!(!file.exists(), "nothing was made");
    }
    // The negative control: one that is ours alone is used.
    fs::set_permissions(&live, Permissions::from_mode(0o700)).expect("a directory");
    assert_eq!(end(&mut run(["-S", &url(&file), "job", "true"])).code, Some(0));
}

#[test]
fn a_live_directory_that_is_a_link_is_refused() {
    let directory = Directory::new("live-link");
    let file = directory.0.join("locks.db");
    fs::create_dir(directory.0.join("elsewhere")).expect("a directory");
    symlink(directory.0.join("elsewhere"), directory.0.join("locks.db-live")).expect("a link");
    assert_refused(&mut run(["-S", &url(&file), "job", "true"]), 69, "is not a directory");
}

#[test]
fn a_live_directory_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper::conformance::skip("a_live_directory_of_another_user_is_refused", "only root can make one");
    }
    let directory = Directory::new("live-foreign");
    let file = directory.0.join("locks.db");
    let live = directory.0.join("locks.db-live");
    fs::create_dir(&live).expect("a directory");
    fs::set_permissions(&live, Permissions::from_mode(0o700)).expect("a directory");
    chown(&live, Some(4711), None).expect("root may");
    assert_refused(&mut run(["-S", &url(&file), "job", "true"]), 69, "belongs to another user (uid 4711)");
}

/// A small file system of its own, unmounted when dropped. `None`: this user may not mount.
struct Mounted(Directory);

impl Mounted {
    fn new(test: &str) -> Option<Self> {
        let directory = Directory::new(test);
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(&directory.0)
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            lockkeeper::conformance::skip(test, "this user cannot mount a file system");
        }
        mounted.then_some(Self(directory))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0.0).status();
    }
}

#[test]
fn doctor_notices_a_full_disk() {
    let Some(disk) = Mounted::new("doctor_notices_a_full_disk") else { return };
    let file = disk.0.0.join("locks.db");
    assert_eq!(end(&mut lockkeeper(["doctor", "-S", &url(&file)])).code, Some(0));
    let mut full = fs::File::create(disk.0.0.join("rest")).expect("a file");
    let _ = std::io::copy(&mut std::io::repeat(7), &mut full);
    let bad = end(&mut lockkeeper(["doctor", "-S", &url(&file)]));
    assert!(bad.code == Some(69) && bad.stdout.contains("BAD  file"), "{bad:?}");
}

#[test]
fn doctor_notices_a_read_only_disk() {
    let Some(disk) = Mounted::new("doctor_notices_a_read_only_disk") else { return };
    let file = disk.0.0.join("locks.db");
    assert_eq!(end(&mut lockkeeper(["doctor", "-S", &url(&file)])).code, Some(0));
    let read_only = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0.0).status().expect("mount starts");
    assert!(read_only.success());
    let bad = end(&mut lockkeeper(["doctor", "-S", &url(&file)]));
    assert!(bad.code == Some(69) && bad.stdout.contains("BAD  file"), "{bad:?}");
}

/// The first thing that somebody types may be `list`; what it finds must not be something that it made.
#[test]
fn a_verb_that_only_looks_creates_no_store() {
    let directory = Directory::new("only-looks");
    let store = url(&directory.0.join("locks.db"));
    let missing = "locks.db does not exist yet; the first lock creates it";
    let listed = end(&mut lockkeeper(["list", "-S", &store]));
    assert_eq!((listed.code, listed.stdout.as_str()), (Some(0), ""), "{listed:?}");
    assert!(listed.stderr.starts_with("lockkeeper: nothing is held: ") && listed.stderr.contains(missing), "{listed:?}");
    assert_eq!(end(&mut lockkeeper(["list", "-o", "json", "-S", &store])).stdout, "[]\n");
    assert_refused(&mut lockkeeper(["show", "-S", &store, "job"]), 1, missing);
    assert_refused(&mut lockkeeper(["release", "--yes", "-S", &store, "job"]), 1, missing);
    // The same for the store of a user who has none.
    let home = directory.0.join("home");
    fs::create_dir(&home).expect("a directory");
    let mut list = lockkeeper(["list"]);
    for variable in ["LOCKKEEPER_STORE", "LOCKKEEPER_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "STATE_DIRECTORY"] {
        list.env_remove(variable);
    }
    let listed = end(list.env("HOME", &home));
    assert!(listed.code == Some(0) && listed.stderr.contains(missing), "{listed:?}");
    assert_eq!(fs::read_dir(&home).expect("a directory").count(), 0, "nothing is made");
    // A directory that is missing is a mistake, which is told as before.
    let nowhere = url(&directory.0.join("nowhere/locks.db"));
    assert_refused(&mut lockkeeper(["list", "-S", &nowhere]), 64, "nowhere");
    assert_eq!(fs::read_dir(&directory.0).expect("a directory").count(), 1, "nothing but the home directory");
    // After the first lock it is there, and empty.
    assert_eq!(end(&mut run(["-S", &store, "job", "true"])).code, Some(0));
    let listed = end(&mut lockkeeper(["list", "-S", &store]));
    assert!(listed.code == Some(0) && listed.stderr.contains("nothing is held at sqlite:"), "{listed:?}");
}
