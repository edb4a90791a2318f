//! The web service of the examples, as a process of its own: one order per user, a loss that is answered with 503, an orderly end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use lockkeeper::blocking::Client;
use lockkeeper_testkit::examples::program;
use lockkeeper_testkit::poll::until_within;

const LIMIT: Duration = Duration::from_secs(30);

/// The service on a file of its own, and a client at the same store.
struct Service {
    process: Child,
    output: BufReader<ChildStdout>,
    address: String,
    folder: PathBuf,
    store: Client,
}

impl Service {
    /// Starts it; an order takes so many seconds.
    fn start(test: &str, seconds: u32) -> Self {
        let folder = std::env::temp_dir().join(format!("axum-service-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let store = format!("sqlite:{}", folder.join("locks.db").display());
        let mut process = Command::new(program("axum_service"))
            .args([&store, "127.0.0.1:0", &seconds.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cargo has built it");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").expect("where it listens").to_owned();
        Self { process, output, address, folder, store: Client::connect(store).expect("the same store") }
    }

    /// Status and body of the answer.
    fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), body.to_owned())
    }

    fn is_locked(&self, user: &str) -> bool {
        self.store.mutex(format!("order:{user}")).is_locked().expect("the store answers")
    }

    /// Sends SIGTERM.
    fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_second_order_of_one_user_is_refused_and_all_of_it_is_counted() {
    let service = Service::start("orders", 1);
    assert_eq!(service.ask("GET", "/ready").0, 200);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| service.ask("POST", "/orders/ann"));
        until_within(LIMIT, "ann's order is being made", || service.is_locked("ann"));
        assert_eq!(service.ask("POST", "/orders/ann").0, 409);
        assert_eq!(service.ask("POST", "/orders/bob"), (200, "ordered for bob\n".to_owned()));
        assert_eq!(first.join().expect("an answer").0, 200);
    });
    assert!(!service.is_locked("ann") && !service.is_locked("bob"));
    let (status, metrics) = service.ask("GET", "/metrics");
    assert_eq!(status, 200);
    for name in ["lockkeeper_wait_seconds", "lockkeeper_hold_seconds"] {
        assert!(metrics.contains(name), "{name} is not in:\n{metrics}");
    }
}

#[test]
fn an_order_whose_lock_is_lost_is_answered_with_503() {
    // It ends long before the payment would: a loss is told within a third of the lease.
    let service = Service::start("loss", 600);
    std::thread::scope(|scope| {
        let order = scope.spawn(|| service.ask("POST", "/orders/ann"));
        until_within(LIMIT, "ann's order is being made", || service.is_locked("ann"));
        service.store.force_release("order:ann").expect("the store answers");
        let (status, why) = order.join().expect("an answer");
        assert_eq!(status, 503, "{why}");
        assert!(why.contains("the hold on \"order:ann\" is lost"), "{why}");
    });
    let (_, metrics) = service.ask("GET", "/metrics");
    assert!(metrics.contains("lockkeeper_losses_total"), "{metrics}");
}

#[test]
fn at_the_end_running_orders_are_finished_and_everything_is_released() {
    let mut service = Service::start("end", 2);
    let answer = std::thread::scope(|scope| {
        let order = scope.spawn(|| service.ask("POST", "/orders/ann"));
        until_within(LIMIT, "ann's order is being made", || service.is_locked("ann"));
        service.terminate();
        until_within(LIMIT, "no new connections", || TcpStream::connect(&service.address).is_err());
        assert!(service.is_locked("ann"), "its order is still being made");
        order.join().expect("an answer")
    });
    assert_eq!(answer, (200, "ordered for ann\n".to_owned()));
    assert!(service.process.wait().expect("it ends").success());
    let mut rest = String::new();
    service.output.read_to_string(&mut rest).expect("the rest");
    assert_eq!(rest, "closed\n");
    assert!(!service.is_locked("ann"));
}
