//! Curator in a Java process, told what to do through a pipe. What it logs is shown if a test fails.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_testkit::zookeeper::{Release, drivers};
use tokio::sync::oneshot;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);
const JARS: [&str; 6] = ["curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute", "slf4j-simple"];

/// With times: a session that ended is found by its moment.
const LOGGED: &str = "-Dorg.slf4j.simpleLogger.showDateTime=true";

/// A Curator that is tested, each on another ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Debian's 5.4.0, with its jars; on ZooKeeper 3.8.
    Debian,
    /// Built by `cargo xtask setup`; on ZooKeeper 3.9.
    V5_9_0,
}

impl Version {
    /// Of those that Maven builds.
    #[allow(dead_code, reason = "`xtask` checks that it builds as many")]
    const COUNT: usize = 1;

    pub(crate) fn server(self) -> Release {
        match self {
            Self::Debian => Release::Debian,
            Self::V5_9_0 => Release::Maven,
        }
    }

    /// Why it cannot be driven here, if so.
    pub(crate) fn missing(self) -> Option<String> {
        self.server().missing().or_else(|| {
            let lacks = |jar: &&str| !std::path::Path::new(&format!("/usr/share/java/{jar}.jar")).is_file();
            let lacking = JARS.iter().find(|jar| self == Self::Debian && lacks(jar))?;
            Some(format!(
                "zookeeper: there is no /usr/share/java/{lacking}.jar; `cargo xtask setup` installs libcurator-recipes-java"
            ))
        })
    }

    fn class_path(self) -> String {
        match self {
            Self::Debian => format!("{}:{}", debian(), compiled().display()),
            Self::V5_9_0 => {
                let place = drivers().expect("not missing").join("5.9.0");
                format!("{0}/driver.jar:{0}/lib/*", place.display())
            }
        }
    }
}

/// What was added to the numbers of locks: the kind of the lock, and the new number.
pub(crate) type Told = Vec<(String, u64)>;

type Asked = Arc<Mutex<HashMap<u64, oneshot::Sender<String>>>>;

/// A process with Curator in it.
pub(crate) struct Curator {
    child: Child,
    log: PathBuf,
    input: ChildStdin,
    asked: Asked,
    told: Arc<Mutex<Told>>,
    reader: Option<std::thread::JoinHandle<()>>,
    last: u64,
}

fn debian() -> String {
    JARS.map(|jar| format!("/usr/share/java/{jar}.jar")).join(":")
}

/// Compiles the driver with Debian's Curator once, and gives the folder of its classes.
fn compiled() -> PathBuf {
    static BUILT: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    let build = || {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/curator/src/main/java/lockkeeper/interop/Curator.java");
        let classes = std::env::temp_dir().join(format!("lockkeeper-curator-{}", std::process::id()));
        let built = Command::new("javac").args(["-cp", &debian(), "-d"]).arg(&classes).arg(source).output().expect("javac runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        classes
    };
    BUILT.get_or_init(build).clone()
}

impl Curator {
    /// Starts it with a session of this length, and waits until it is connected.
    pub(crate) async fn start(version: Version, hosts: &str, session: Duration) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let log = std::env::temp_dir().join(format!("lockkeeper-curator-{}-{number}.log", std::process::id()));
        let errors = std::fs::File::create(&log).expect("a log file");
        let path = version.class_path();
        let mut child = Command::new("java")
            .args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", LOGGED, "-cp", &path, "lockkeeper.interop.Curator"])
            .args([hosts, &session.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("java runs");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let asked = Asked::default();
        let answers = Arc::clone(&asked);
        let (ready, is_ready) = oneshot::channel();
        asked.lock().unwrap().insert(0, ready);
        let told = Arc::<Mutex<Told>>::default();
        let tells = Arc::clone(&told);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Some((number, said)) = line.split_once(' ') else { continue };
                if let ("value", Some((kind, value))) = (number, said.split_once(' ')) {
                    tells.lock().unwrap().push((kind.to_owned(), value.parse().expect("a number")));
                }
                let Ok(number) = number.parse() else { continue };
                if let Some(answer) = answers.lock().unwrap().remove(&number) {
                    let _ = answer.send(said.to_owned());
                }
            }
        });
        let curator = Self { child, log, input, asked, told, reader: Some(reader), last: 0 };
        assert_eq!(timeout(SOON, is_ready).await.expect("java connects").unwrap(), "ready");
        curator
    }

    /// Sends a command; the answer comes when it has ended.
    pub(crate) fn send(&mut self, command: &str) -> oneshot::Receiver<String> {
        self.last += 1;
        let (answer, answered) = oneshot::channel();
        self.asked.lock().unwrap().insert(self.last, answer);
        writeln!(self.input, "{} {command}", self.last).expect("java reads");
        answered
    }

    pub(crate) async fn ask(&mut self, command: &str) -> String {
        timeout(SOON, self.send(command)).await.expect("an answer in time").expect("an answer")
    }

    /// What it has added so far.
    pub(crate) fn told(&self) -> Told {
        self.told.lock().unwrap().clone()
    }

    /// Ends the process at once, as a crash does (SIGKILL). What it said before is heard.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Curator {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("Curator's log:\n{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
        let _ = std::fs::remove_file(&self.log);
    }
}
