//! A program that uses the library can be run under valgrind.

use std::process::Command;
use std::time::Duration;

use lockkeeper::Client;

/// What runs under valgrind: clock, keeper thread, a lock.
#[tokio::test]
async fn a_lock_is_acquired_and_released() {
    // Under valgrind everything takes fifty times as long.
    let builder = Client::builder().lease(Duration::from_secs(600)).command_timeout(Duration::from_secs(60));
    let client = builder.connect("memory:").await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    client.close().await.unwrap();
}

#[test]
fn valgrind_finds_no_error() {
    let this = std::env::current_exe().unwrap();
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--error-exitcode=99"]).arg(this).args(["--exact", "a_lock_is_acquired_and_released"]);
    match valgrind.output() {
        Err(error) => lockkeeper::conformance::skip("valgrind_finds_no_error", &format!("valgrind cannot be started: {error}")),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}\n{said}", output.status);
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
        }
    }
}
