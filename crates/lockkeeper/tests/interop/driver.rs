//! A Java process with the real Redisson in it (`interop/redisson`): a command is a line, and so is its answer.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;

/// A Redisson that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V4_7_0,
    V3_52_0,
    V3_16_4,
}

impl Version {
    const COUNT: usize = 3;

    fn name(self) -> &'static str {
        match self {
            Self::V4_7_0 => "4.7.0",
            Self::V3_52_0 => "3.52.0",
            Self::V3_16_4 => "3.16.4",
        }
    }

    /// After how many ms without use a client closes a connection: Redisson's own 10 s. Before 3.28 that also closes connections on which
    /// waiters are subscribed, among Java clients alone too, and they sleep for good: there it is a day.
    pub(crate) fn idle_timeout(self) -> u32 {
        match self {
            Self::V4_7_0 | Self::V3_52_0 => 10_000,
            Self::V3_16_4 => 86_400_000,
        }
    }

    fn place(self) -> Option<PathBuf> {
        let all = std::env::var_os("LOCKKEEPER_REDISSON").filter(|place| !place.is_empty())?;
        Some(PathBuf::from(all).join(self.name()))
    }

    /// Why it cannot be driven here, if so.
    pub(crate) fn missing(self) -> Option<String> {
        let Some(place) = self.place() else {
            return Some("redisson: LOCKKEEPER_REDISSON is not set; `cargo xtask interop` sees to it".to_owned());
        };
        let built = place.join("driver.jar").is_file();
        (!built).then(|| format!("redisson: there is no driver in {}; `cargo xtask interop` builds it", place.display()))
    }
}

/// What an exception says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Thrown {
    pub(crate) class: String,
    pub(crate) message: String,
}

type Answer = Result<Value, Thrown>;

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) version: Version,
    child: Mutex<Child>,
    input: Mutex<ChildStdin>,
    last_id: AtomicU64,
    asked: Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>,
    /// The last that it said on its standard error.
    complaints: Arc<Mutex<VecDeque<String>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// The process of this version that the tests share: starting one is dear. It ends with its input, which ends with us.
    pub(crate) fn shared(version: Version) -> Arc<Self> {
        static SHARED: [OnceLock<Arc<Driver>>; Version::COUNT] = [const { OnceLock::new() }; Version::COUNT];
        Arc::clone(SHARED[version as usize].get_or_init(|| Self::start(version)))
    }

    /// A process of its own, for a test that kills it.
    pub(crate) fn start(version: Version) -> Arc<Self> {
        let place = version.place().expect("not missing");
        let path = format!("{0}/driver.jar:{0}/lib/*", place.display());
        let mut child = Command::new("java")
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &path, "lockkeeper.interop.Driver"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("java starts");
        let input = Mutex::new(child.stdin.take().expect("piped"));
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let errors = BufReader::new(child.stderr.take().expect("piped"));
        let asked = Arc::<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>::default();
        let complaints = Arc::<Mutex<VecDeque<String>>>::default();
        std::thread::spawn({
            let asked = Arc::clone(&asked);
            move || {
                for line in output.lines().map_while(Result::ok) {
                    let (id, answer) = parsed(&line);
                    if let Some(asker) = locked(&asked).remove(&id) {
                        // A test that ended does not want it any more.
                        let _ = asker.send(answer);
                    }
                }
                // Nobody will answer any more: whoever waits is told.
                locked(&asked).clear();
            }
        });
        std::thread::spawn({
            let complaints = Arc::clone(&complaints);
            move || {
                for line in errors.lines().map_while(Result::ok) {
                    let mut complaints = locked(&complaints);
                    complaints.push_back(line);
                    if complaints.len() > 40 {
                        complaints.pop_front();
                    }
                }
            }
        });
        Arc::new(Self { version, child: Mutex::new(child), input, last_id: AtomicU64::new(0), asked, complaints })
    }

    /// Sends a command; the answer is awaited by the one who needs it.
    pub(crate) fn tell(self: &Arc<Self>, client: &str, thread: &str, command: &str) -> Told {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (asker, answer) = oneshot::channel();
        locked(&self.asked).insert(id, asker);
        // If it is dead, the answer never comes, and says so.
        let _ = writeln!(locked(&self.input), "{id} {client} {thread} {command}");
        Told { answer, command: command.to_owned(), driver: Arc::clone(self) }
    }

    /// Ends it without a word, as a crash does.
    pub(crate) fn kill(&self) {
        let mut child = locked(&self.child);
        child.kill().expect("it runs");
        child.wait().expect("a child");
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn parsed(line: &str) -> (u64, Answer) {
    let mut answer: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
    let id = answer["id"].as_u64().expect("an answer has an id");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if answer["error"].is_null() {
        return (id, Ok(answer["value"].take()));
    }
    (id, Err(Thrown { class: text(&answer["error"]), message: text(&answer["message"]) }))
}

/// A command under way.
#[derive(Debug)]
pub(crate) struct Told {
    answer: oneshot::Receiver<Answer>,
    command: String,
    driver: Arc<Driver>,
}

impl Told {
    pub(crate) async fn answer(self) -> Answer {
        let Self { answer, command, driver } = self;
        match tokio::time::timeout(Duration::from_secs(60), answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => panic!("java ended before it answered {command:?}: {:#?}", locked(&driver.complaints)),
            Err(_) => panic!("java did not answer {command:?} within a minute: {:#?}", locked(&driver.complaints)),
        }
    }

    /// The answer, which is no exception.
    pub(crate) async fn value(self) -> Value {
        let command = self.command.clone();
        self.answer().await.unwrap_or_else(|thrown| panic!("{command:?} threw {thrown:?}"))
    }

    /// The class of the exception that it throws.
    pub(crate) async fn thrown(self) -> String {
        let command = self.command.clone();
        match self.answer().await {
            Err(thrown) => thrown.class,
            Ok(value) => panic!("{command:?} threw nothing, and gave {value}"),
        }
    }

    /// Whether the answer is not there within `time`.
    pub(crate) async fn silent_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, &mut self.answer).await.is_err()
    }
}
