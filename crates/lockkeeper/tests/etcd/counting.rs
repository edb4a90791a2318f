//! A number in a file to which many add under a lock, and programs that add and are killed: whether an update was lost.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Long enough for anything on a busy machine, also for the end of a session.
const LONG: Duration = Duration::from_secs(60);

/// The number in the file.
pub(crate) fn number(file: &Path) -> u64 {
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

/// Adds one, not atomically on purpose: two at a time lose an update. The file itself is replaced at once, so that a kill leaves the old number or
/// the new one.
pub(crate) fn add(file: &Path) -> u64 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let new = number(file) + 1;
    std::thread::sleep(Duration::from_millis(1));
    let own = format!("{}.{}.{}", file.display(), std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
    std::fs::write(&own, new.to_string()).unwrap();
    std::fs::rename(&own, file).unwrap();
    new
}

/// The file, and what everybody says that they wrote.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    file: PathBuf,
    written: Arc<Mutex<Vec<u64>>>,
}

impl Tally {
    pub(crate) fn new(file: PathBuf) -> Self {
        std::fs::write(&file, "0").unwrap();
        Self { file, written: Arc::default() }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn add(&self) {
        self.tell(add(&self.file));
    }

    /// Somebody wrote this number.
    pub(crate) fn tell(&self, number: u64) {
        self.written.lock().unwrap().push(number);
    }

    /// The number at the end, if no update was lost. Each number is written once. A program that is killed may not have told the last one.
    pub(crate) fn judge(&self, kills: usize) -> Result<u64, String> {
        let (last, mut written) = (number(&self.file), self.written.lock().unwrap().clone());
        written.sort_unstable();
        if let Some(twice) = written.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("{} was written twice: an update was lost", twice[0]));
        }
        let newest = written.last().copied().unwrap_or_default();
        if newest > last {
            return Err(format!("the number is {last}, but {newest} was written: an update was lost"));
        }
        let untold = last - written.len() as u64;
        if untold > kills as u64 {
            return Err(format!("{untold} of {last} additions were not told, with {kills} kills"));
        }
        Ok(last)
    }
}

/// A program that prints a line with `value` for each of its steps. Killed when dropped.
pub(crate) struct Program {
    child: Child,
    steps: Arc<AtomicUsize>,
    reader: Option<JoinHandle<()>>,
}

impl Program {
    /// Starts it; what follows `value ` in a line is told.
    pub(crate) fn start(command: &mut Command, mut tell: impl FnMut(&str) + Send + 'static) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let (output, steps) = (child.stdout.take().expect("piped"), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&steps);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((_, said)) = line.split_once("value ") {
                    tell(said);
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Self { child, steps, reader: Some(reader) }
    }

    /// How many steps it has told.
    pub(crate) fn steps(&self) -> usize {
        self.steps.load(Ordering::SeqCst)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for so many steps.
    pub(crate) fn wait_for(&mut self, steps: usize) {
        let began = Instant::now();
        while self.steps() < steps && !self.has_ended() {
            assert!(began.elapsed() < LONG, "{} of {steps} steps within {LONG:?}", self.steps());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills it with SIGKILL, and gives the number of steps that it has told.
    pub(crate) fn kill(&mut self) -> usize {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.steps()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) {
        self.wait_for(usize::MAX);
        let ended = self.child.wait().expect("a child");
        self.kill();
        assert!(ended.success(), "{ended} after {} steps", self.steps());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The negative control: four that add without a lock.
#[test]
fn an_update_that_was_lost_is_noticed() {
    let file = std::env::temp_dir().join(format!("lockkeeper-counting-{}", std::process::id()));
    let tally = Tally::new(file.clone());
    tally.add();
    assert_eq!(tally.judge(0), Ok(1));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25).for_each(|_| tally.add()));
        }
    });
    let noticed = tally.judge(4).unwrap_err();
    println!("{noticed}");
    assert!(noticed.contains("lost"), "{noticed}");
    std::fs::remove_file(file).unwrap();
}
