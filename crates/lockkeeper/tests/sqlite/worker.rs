//! A process of its own: this test binary, started again by a test, does what its environment says and nothing else.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::Client;

const ROLE: &str = "LOCKKEEPER_TEST_ROLE";
const STORE: &str = "LOCKKEEPER_TEST_STORE";

/// A worker under way; killed when dropped.
pub(crate) struct Worker {
    pub(crate) child: Child,
    lines: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) fn start(role: &str, url: &str) -> Self {
        Self::start_by(Command::new(std::env::current_exe().expect("this program")), role, url)
    }

    /// As [`Worker::start`], by a command that runs the program that its last words name.
    pub(crate) fn start_by(mut command: Command, role: &str, url: &str) -> Self {
        let mut child = command
            .args(["--exact", "worker::a_process_of_its_own", "--nocapture"])
            .env(ROLE, role)
            .env(STORE, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    /// What it says next, without the words of the test runner. A worker bounds itself in time, so this ends.
    pub(crate) fn says(&mut self) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).expect("text") > 0 {
            if let Some((_, said)) = line.split_once("worker> ") {
                return said.trim().to_owned();
            }
            line.clear();
        }
        panic!("the worker ended without a word");
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kill -9");
        self.child.wait().expect("its status");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(words: impl std::fmt::Display) {
    let mut out = std::io::stdout();
    writeln!(out, "worker> {words}").and_then(|()| out.flush()).expect("somebody listens");
}

/// Until the one who started us says something or goes away.
fn wait_for_a_word() {
    let _ = std::io::stdin().read(&mut [0]);
}

/// A number in a file.
pub(crate) fn number(file: &Path) -> u64 {
    u64::from_le_bytes(std::fs::read(file).expect("a number").try_into().expect("eight bytes"))
}

/// Writes it over the one before, without a moment in which there is none.
pub(crate) fn set_number(file: &Path, number: u64) {
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(file).expect("a file");
    file.write_at(&number.to_le_bytes(), 0).expect("written");
}

/// Adds one, as badly as can be.
async fn increment(file: &Path) {
    let number = number(file);
    tokio::task::yield_now().await;
    std::thread::yield_now();
    set_number(file, number + 1);
}

/// A lock in SQLite as it is often written: is there a row? If not, write one.
struct Naive(rusqlite::Connection);

impl Naive {
    fn open(beside: &Path) -> Self {
        let connection = rusqlite::Connection::open(beside.with_extension("naive")).expect("a file");
        connection.busy_timeout(Duration::from_secs(30)).expect("a timeout");
        connection.execute_batch("PRAGMA synchronous = OFF; CREATE TABLE IF NOT EXISTS held (one)").expect("a table");
        Self(connection)
    }

    async fn lock(&self) {
        while self.0.query_row("SELECT count(*) FROM held", [], |row| row.get::<_, u32>(0)).expect("a number") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.0.execute("INSERT INTO held VALUES (1)", []).expect("written");
    }

    fn unlock(&self) {
        self.0.execute("DELETE FROM held", []).expect("written");
    }
}

/// Not a test by itself: without a role it has nothing to do.
#[test]
fn a_process_of_its_own() {
    let (Ok(role), Ok(url)) = (std::env::var(ROLE), std::env::var(STORE)) else { return };
    // A worker whose test died must not live on.
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(120));
        std::process::abort();
    });
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an executor");
    executor.block_on(act(&role, &url));
}

async fn act(role: &str, url: &str) {
    let (role, argument) = role.split_once(' ').unwrap_or((role, ""));
    let client = Client::builder().lease(Duration::from_secs(60)).connect(url).await.expect("a store");
    match role {
        // `count KIND TIMES FILE`
        "count" => {
            let words: Vec<&str> = argument.split(' ').collect();
            let (times, file) = (words[1].parse::<u32>().expect("a number"), Path::new(words[2]));
            say("ready");
            wait_for_a_word();
            for _ in 0..times {
                match words[0] {
                    "mutex" => {
                        let guard = client.mutex("c").lock().await.expect("a lock");
                        increment(file).await;
                        guard.release().await.expect("released");
                    }
                    "fair" => {
                        let guard = client.fair_mutex("c").lock().await.expect("a lock");
                        increment(file).await;
                        guard.release().await.expect("released");
                    }
                    "write" => {
                        let guard = client.rwlock("c").write().await.expect("a lock");
                        increment(file).await;
                        guard.release().await.expect("released");
                    }
                    "permit" => {
                        let guard = client.semaphore("c", 1).acquire().await.expect("a permit");
                        increment(file).await;
                        guard.release().await.expect("released");
                    }
                    "naive" => {
                        let naive = Naive::open(file);
                        naive.lock().await;
                        increment(file).await;
                        naive.unlock();
                    }
                    _ => increment(file).await,
                }
            }
            say("done");
        }
        // `share MILLIS`: how often it comes first to the table within that time, holding it for a millisecond.
        "share" => {
            let time = Duration::from_millis(argument.parse().expect("a number"));
            say("ready");
            wait_for_a_word();
            let (began, mut turns) = (Instant::now(), 0);
            while began.elapsed() < time {
                let guard = client.fair_mutex("c").lock().await.expect("a lock");
                tokio::time::sleep(Duration::from_millis(1)).await;
                guard.release().await.expect("released");
                turns += 1;
            }
            say(turns);
        }
        "hold" => {
            let guard = client.fair_mutex("m").lock().await.expect("a lock");
            say(guard.token().unwrap().number());
            wait_for_a_word();
        }
        // Holds it, and has a command inherit its life; says the command's pid.
        "run" => {
            let _guard = client.fair_mutex("m").lock().await.expect("a lock");
            let life = client.liveness().expect("a descriptor").expect("a life");
            rustix::io::fcntl_setfd(&life, rustix::io::FdFlags::empty()).expect("inheritable");
            let mut command = Command::new("sleep").arg("100").stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("sleep");
            drop(life);
            say(command.id());
            wait_for_a_word();
            command.kill().and_then(|()| command.wait()).expect("ended");
        }
        // `full FOLDER`: releases on a disk without room.
        "full" => {
            let filler = Path::new(argument).join("filler");
            let names = || -> Vec<String> {
                let living = std::fs::read_dir(Path::new(argument).join("locks.db-live")).expect("a folder");
                living.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
            };
            let guard = client.mutex("m").lock().await.expect("a lock");
            let before = names();
            let mut file = std::fs::File::create(&filler).expect("a file");
            while file.write_all(&[0; 4096]).is_ok() {}
            let released = guard.release().await;
            say(format!("released {released:?} {} {}", before.len(), names().len()));
            drop(file);
            std::fs::remove_file(&filler).expect("removed");
            let began = Instant::now();
            let other = Client::connect(url).await.expect("a store");
            let guard = other.mutex("m").lock().timeout(Duration::from_secs(10)).await;
            say(format!("taken {} {:?} {:?}", guard.is_ok(), began.elapsed(), guard.err()));
        }
        other => panic!("no role {other}"),
    }
}
