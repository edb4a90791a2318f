//! A process that forks while it holds a lock: the child has a copy of the guard, and of the connection, and must use neither.
//!
//! Safe Rust cannot fork. So the test runs itself again with a small C library loaded before it, in which `getppid` forks.

use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::{Command, ExitCode};

use lockkeeper::ErrorKind;
use lockkeeper::blocking::Client;

use crate::server::{Flavour, Server};

const STORE: &str = "LOCKKEEPER_TEST_FORK";

#[test]
fn after_a_fork_the_child_holds_nothing_and_the_parent_goes_on() {
    if let Ok(url) = std::env::var(STORE) {
        return fork_while_holding(&url);
    }
    if let Some(why) = Server::missing(Flavour::Redis) {
        return lockkeeper::conformance::skip("fork", &why);
    }
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fork-{}.so", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/fork.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    if !compiled.is_ok_and(|status| status.success()) {
        return lockkeeper::conformance::skip("fork", "redis: there is no C compiler (cc) to fork with");
    }
    let server = Server::shared(Flavour::Redis);
    let url = server.fresh_url();
    let test = "fork::after_a_fork_the_child_holds_nothing_and_the_parent_goes_on";
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(STORE, &url).env("LD_PRELOAD", &library);
    let ended = again.output().unwrap();
    let _ = std::fs::remove_file(&library);
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && said.contains("the child is done"), "{said}");
}

fn fork_while_holding(url: &str) {
    let client = Client::connect(url).unwrap();
    let mutex = client.mutex("m");
    let (guard, other) = (mutex.lock().unwrap(), client.mutex("n").lock().unwrap());
    let child = parent_id();
    if child == 0 {
        // Never back into the test harness, whose threads are the parent's.
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| in_the_child(url, &client, guard, other)));
        #[allow(clippy::exit, reason = "the forked child must not go on as a test")]
        std::process::exit(i32::from(code.is_err()));
    }
    let pid = i32::try_from(child).ok().and_then(rustix::process::Pid::from_raw).expect("forked");
    let (_, ended) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(ended.exit_status(), Some(0), "the child failed");
    assert!(guard.is_valid(), "the parent holds it");
    guard.extend(std::time::Duration::from_secs(40)).unwrap();
    guard.release().unwrap();
    other.release().unwrap();
    mutex.lock().unwrap().release().unwrap();
    client.close().unwrap();
    println!("the child is done");
}

type Guard = lockkeeper::blocking::LockGuard<lockkeeper::MutexGuard>;

fn in_the_child(url: &str, client: &Client, guard: Guard, other: Guard) -> ExitCode {
    assert!(!guard.is_valid(), "the parent has it, not the child");
    assert!(guard.remaining().is_zero());
    let refused = |error: lockkeeper::Error| {
        assert!(error.kind() == ErrorKind::Closed && error.to_string().contains("fork"), "{error:?}");
    };
    refused(guard.extend(std::time::Duration::from_secs(1)).unwrap_err());
    refused(guard.reenter().unwrap_err());
    refused(client.mutex("m").lock().unwrap_err());
    refused(client.mutex("other").try_lock().unwrap_err());
    refused(client.latch("l").count().unwrap_err());
    refused(client.inspect("m").unwrap_err());
    refused(client.force_release("m").unwrap_err());
    refused(other.release().unwrap_err());
    refused(client.close().unwrap_err());
    drop(guard);
    // A client of its own works, and the lock is held: by the parent.
    let own = Client::connect(url).unwrap();
    assert!(own.mutex("m").try_lock().unwrap().is_none(), "the child's drop released the parent's lock");
    assert!(own.mutex("n").try_lock().unwrap().is_none(), "the child's release released the parent's lock");
    own.mutex("other").lock().unwrap().release().unwrap();
    own.close().unwrap();
    ExitCode::SUCCESS
}
