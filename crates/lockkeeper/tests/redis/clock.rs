//! A wall clock and a boot clock that a test can set, for a process that the test starts: `clock.c`, loaded before the program.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The wall clock and the boot clock of the processes that run under it.
#[derive(Debug)]
pub(crate) struct WallClock {
    library: &'static Path,
    path: PathBuf,
    file: File,
}

/// The library, compiled once by the linker that every Rust toolchain needs; `None`: it cannot be.
fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        // Beside what cargo builds. Under a name of our own first: another run may use the one that is there.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (library, ours) = (folder.join("clock.so"), folder.join(format!("clock-{}.so", std::process::id())));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/clock.c");
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&ours).arg(source).status();
        (compiled.is_ok_and(|status| status.success()) && std::fs::rename(&ours, &library).is_ok()).then_some(library)
    };
    LIBRARY.get_or_init(compile).as_deref()
}

impl WallClock {
    /// One that is right. `None`: skipped, and said so.
    pub(crate) fn new(test: &str) -> Option<Self> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let Some(library) = library() else {
            lockkeeper::conformance::skip(test, "redis: there is no C compiler (cc) to set its clock with");
            return None;
        };
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lockkeeper-clock-{}-{number}", std::process::id()));
        let file = File::options().create(true).truncate(true).write(true).open(&path).expect("a file for the clock");
        let clock = Self { library, path, file };
        clock.set(0);
        clock.suspended_for(0);
        Some(clock)
    }

    /// What makes a process see it.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("LD_PRELOAD", self.library.into()), ("LOCKKEEPER_TEST_CLOCK", (&self.path).into())]
    }

    /// So many seconds ahead of the right time, or behind it.
    pub(crate) fn set(&self, ahead: i64) {
        self.write(ahead, 0);
    }

    /// As if the machine had been suspended for so many seconds: the boot clock went on, and timers stood still.
    pub(crate) fn suspended_for(&self, seconds: i64) {
        self.write(seconds, 1);
    }

    fn write(&self, number: i64, place: u64) {
        // In place: a file that is cut while others look into it would end them.
        self.file.write_all_at(&number.to_ne_bytes(), 8 * place).expect("the clock can be set");
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
