//! A process of ours that holds something until it is killed: this very program, started again.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockkeeper::Client;

use crate::object::Object;

/// How the second process is told what to hold: URL, object, name, lease in ms.
const ORDER: &str = "LOCKKEEPER_INTEROP_HOLD";
const OBJECTS: [Object; 6] = [Object::Mutex, Object::Fenced, Object::Fair, Object::Write, Object::Read, Object::Permit];

/// A process that holds something; killed when dropped.
pub(crate) struct Holder(Child);

impl Holder {
    /// Starts one, which keeps its hold with this lease; it has it when this returns.
    pub(crate) fn start(url: &str, object: Object, name: &str, lease: Duration) -> Self {
        let order = format!("{url} {} {name} {}", object.word(), lease.as_millis());
        let mut child = Command::new(std::env::current_exe().expect("a program"))
            .args(["--exact", "holder::holds_until_it_is_killed", "--nocapture", "--test-threads=1"])
            .env(ORDER, order)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped")).lines();
        let holds = output.by_ref().map_while(Result::ok).any(|line| line.ends_with("holding"));
        assert!(holds, "it ended before it had {name}");
        Self(child)
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("a child");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As a test: it can be started, holds, and is killed. As the second process: what it was told to hold.
#[test]
fn holds_until_it_is_killed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let Ok(order) = std::env::var(ORDER) else {
        let test = "holds_until_it_is_killed";
        if let Some(why) = crate::server::Server::missing(crate::server::Flavour::Redis) {
            return lockkeeper::conformance::skip(test, &why);
        }
        let server = crate::server::Server::shared(crate::server::Flavour::Redis);
        let url = server.fresh_url();
        let holder = Holder::start(&url, Object::Mutex, "held", Duration::from_secs(2));
        return runtime.block_on(async {
            let client = Client::connect(&url).await.unwrap();
            assert!(client.mutex("held").try_lock().await.unwrap().is_none());
            holder.kill();
            client.mutex("held").lock().timeout(Duration::from_secs(20)).await.unwrap().release().await.unwrap();
        });
    };
    let words: Vec<&str> = order.split(' ').collect();
    let [url, word, name, lease] = words[..] else { panic!("{order:?}") };
    let object = OBJECTS.into_iter().find(|object| object.word() == word).expect("an object");
    let lease = Duration::from_millis(lease.parse().expect("a number"));
    runtime.block_on(async {
        let client = Client::builder().lease(lease).connect(url).await.unwrap();
        let _held = object.take(&client, name, None).await;
        println!("\nholding");
        // Whoever started us kills us, or is gone when our input ends.
        let ended = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        let _ = tokio::time::timeout(Duration::from_secs(120), ended).await;
    });
}
