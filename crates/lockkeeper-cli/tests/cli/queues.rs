//! The CLI on the stores whose locks are queues of nodes: real ZooKeeper and etcd servers, with holders of other programs on them.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};

use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::zookeeper::ZooKeeper;

use crate::config::Directory;
use crate::util::{Ended, assert_refused, end, ended, lockkeeper, run, until};

/// A server, and another program on it that can hold a lock.
enum Site {
    Etcd(std::sync::Arc<Etcd>),
    ZooKeeper(std::sync::Arc<ZooKeeper>),
}

/// Ends another program with the test.
struct Foreign(Child);

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    fn url(&self) -> String {
        match self {
            Self::Etcd(server) => format!("etcd://{}?session=5s", server.hosts()),
            Self::ZooKeeper(server) => format!("zookeeper://{}?session=5s", server.hosts()),
        }
    }

    /// Another program holds this name when this returns: `etcdctl lock`, or ZooKeeper's own shell with a node as Curator makes it.
    fn hold_by_another(&self, name: &str) -> Foreign {
        let (mut command, input) = match self {
            Self::Etcd(server) => (server.ctl_command(&["lock", name]), String::new()),
            Self::ZooKeeper(server) => {
                let node = "_c_6a5b4c3d-0000-4000-8000-000000000000-lock-";
                (server.shell(), format!("create -c /{name}\ncreate -e -s /{name}/{node} 10.1.2.3\n"))
            }
        };
        // Its input stays open: the shell ends with it.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the program starts");
        child.stdin.as_mut().expect("piped").write_all(input.as_bytes()).expect("it reads");
        let foreign = Foreign(child);
        let url = self.url();
        until("the other program has the lock", || told(&["show", "-S", &url, name]).stdout.contains("holders:"));
        foreign
    }
}

/// Runs a test on both, or says why not.
fn on_both(test: &str, run: impl Fn(&Site, &str)) {
    match Etcd::missing() {
        Some(why) => lockkeeper::conformance::skip(test, &why),
        None => {
            let site = Site::Etcd(Etcd::shared());
            run(&site, &site.url());
        }
    }
    match ZooKeeper::missing() {
        Some(why) => lockkeeper::conformance::skip(test, &why),
        None => {
            let site = Site::ZooKeeper(ZooKeeper::shared());
            run(&site, &site.url());
        }
    }
}

/// A runner whose command has said that it runs, and goes on until its input ends.
fn running(url: &str, name: &str, script: &str) -> Child {
    let mut command = run(["-S", url, name, "sh", "-c", &format!("echo running; {script}")]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "running\n");
    child
}

fn told(words: &[&str]) -> Ended {
    end(&mut lockkeeper(words))
}

#[test]
fn a_held_lock_excludes_a_second_runner_and_is_shown() {
    on_both("a_held_lock_excludes_a_second_runner_and_is_shown", |_, url| {
        let mut holder = running(url, "cli-job", "cat");
        assert_refused(&mut run(["-S", url, "-n", "cli-job", "true"]), 1, "is held by ");
        assert_refused(&mut run(["-S", url, "-w", "0.3", "-E", "42", "cli-job", "true"]), 42, "is held by ");
        let pid = holder.id().to_string();
        for words in [&["list", "-S", url, "cli-job"][..], &["show", "-S", url, "cli-job"]] {
            until("the holder is shown with its process", || {
                let seen = told(words);
                seen.code == Some(0) && seen.stdout.contains("cli-job") && seen.stdout.contains(&pid)
            });
        }
        drop(holder.stdin.take());
        assert_eq!(holder.wait().expect("it ends").code(), Some(0));
        assert_eq!(end(&mut run(["-S", url, "-n", "cli-job", "echo", "mine"])).stdout, "mine\n");
        assert_eq!(told(&["list", "-S", url, "cli-job"]).stdout, "");
    });
}

#[test]
fn the_config_file_names_a_store_of_queues() {
    on_both("the_config_file_names_a_store_of_queues", |site, url| {
        let directory = Directory::new(match site {
            Site::Etcd(_) => "etcd",
            Site::ZooKeeper(_) => "zookeeper",
        });
        let file = directory.file("lockkeeper.toml", &format!("store = \"{url}\"\n"), 0o644);
        let configured = |words: &[&str]| {
            let mut command = run(words);
            command.env_remove("LOCKKEEPER_STORE").env("LOCKKEEPER_CONFIG", &file);
            command
        };
        // Held by the URL, and refused by the file: they name the same store.
        let mut holder = running(url, "cli-config", "cat");
        assert_refused(&mut configured(&["-n", "cli-config", "true"]), 1, "is held by ");
        drop(holder.stdin.take());
        assert_eq!(holder.wait().expect("it ends").code(), Some(0));
        assert_eq!(end(&mut configured(&["-n", "cli-config", "echo", "mine"])).stdout, "mine\n");
        // A wrong option is told with the file that has it.
        let wrong = directory.file("wrong.toml", &format!("store = \"{url}&sesion=5s\"\n"), 0o644);
        let mut command = run(["cli-config", "true"]);
        assert_refused(command.env_remove("LOCKKEEPER_STORE").env("LOCKKEEPER_CONFIG", &wrong), 64, "sesion");
    });
}

#[test]
fn a_waiting_runner_gets_the_lock_when_the_holder_ends() {
    on_both("a_waiting_runner_gets_the_lock_when_the_holder_ends", |_, url| {
        let mut holder = running(url, "cli-turn", "cat");
        let waiter =
            run(["-S", url, "-w", "60", "cli-turn", "echo", "my turn"]).stdout(Stdio::piped()).spawn().expect("it starts");
        until("it waits", || told(&["show", "-S", url, "cli-turn"]).stdout.contains("queue, first come first"));
        drop(holder.stdin.take());
        assert_eq!(holder.wait().expect("it ends").code(), Some(0));
        let waited = ended(waiter.wait_with_output().expect("it ends"));
        assert_eq!((waited.code, waited.stdout.as_str()), (Some(0), "my turn\n"));
    });
}

#[test]
fn a_forced_release_frees_the_lock_and_ends_the_command() {
    on_both("a_forced_release_frees_the_lock_and_ends_the_command", |_, url| {
        let holder = running(url, "cli-forced", "exec sleep 600");
        let released = told(&["release", "-S", url, "--yes", "cli-forced"]);
        assert_eq!(released.code, Some(0), "{released:?}");
        assert!(released.stderr.contains("tells the holder at once") && !released.stderr.contains("renewal"), "{released:?}");
        let output = ended(holder.wait_with_output().expect("it ends"));
        assert!(output.code == Some(79) && output.stderr.contains("is lost"), "{output:?}");
        assert_eq!(end(&mut run(["-S", url, "-n", "cli-forced", "echo", "mine"])).stdout, "mine\n");
    });
}

#[test]
fn a_holder_of_another_program_excludes_and_is_shown_as_such() {
    on_both("a_holder_of_another_program_excludes_and_is_shown_as_such", |site, url| {
        let foreign = site.hold_by_another("cli-foreign");
        let who = match site {
            Site::Etcd(_) => "etcd lease ",
            Site::ZooKeeper(_) => "Curator at 10.1.2.3",
        };
        assert_refused(&mut run(["-S", url, "-n", "cli-foreign", "true"]), 1, who);
        for words in [&["list", "-S", url, "cli-foreign"][..], &["show", "-S", url, "cli-foreign"]] {
            let seen = told(words);
            assert!(seen.code == Some(0) && seen.stdout.contains(who), "{words:?}: {seen:?}");
        }
        let waiter =
            run(["-S", url, "-w", "60", "cli-foreign", "echo", "my turn"]).stdout(Stdio::piped()).spawn().expect("it starts");
        until("it waits", || told(&["show", "-S", url, "cli-foreign"]).stdout.contains("queue, first come first"));
        let released = told(&["release", "-S", url, "--yes", "cli-foreign"]);
        assert_eq!(released.code, Some(0), "{released:?}");
        assert_eq!(ended(waiter.wait_with_output().expect("it ends")).stdout, "my turn\n");
        drop(foreign);
    });
}

#[test]
fn doctor_tells_of_a_server_that_is_well_and_of_one_that_is_not_there() {
    on_both("doctor_tells_of_a_server_that_is_well_and_of_one_that_is_not_there", |site, url| {
        let well = told(&["doctor", "-S", url]);
        assert_eq!(well.code, Some(0), "{well:?}");
        let words = match site {
            Site::Etcd(_) => ["quorum", "alarms", "session"],
            Site::ZooKeeper(_) => ["ensemble", "folder", "session"],
        };
        assert!(words.iter().all(|word| well.stdout.contains(word)), "{well:?}");
        let absent = match site {
            Site::Etcd(_) => "etcd://127.0.0.1:1",
            Site::ZooKeeper(_) => "zookeeper://127.0.0.1:1?session=2s",
        };
        let ill = told(&["doctor", "-S", absent]);
        assert!(ill.code == Some(69) && ill.stdout.contains("127.0.0.1:1"), "{ill:?}");
        assert_refused(&mut run(["-S", absent, "-w", "1", "cli-job", "true"]), 69, "127.0.0.1:1");
    });
}
