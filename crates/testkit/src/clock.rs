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
pub struct WallClock {
    library: &'static Path,
    path: PathBuf,
    file: File,
}

/// What stands before libc.
const SOURCE: &str = include_str!("clock.c");

/// The library, compiled once by the linker that every Rust toolchain needs; `None`: it cannot be.
fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        // Beside this program, where cargo builds. Under a name of our own first: another run may use the one that is there.
        let program = std::env::current_exe().ok()?;
        let place = |name: String| program.with_file_name(name);
        let (library, ours) = (place("clock.so".to_owned()), place(format!("clock-{}.so", std::process::id())));
        let source = ours.with_extension("c");
        std::fs::write(&source, SOURCE).ok()?;
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&ours).arg(&source).status();
        let _ = std::fs::remove_file(&source);
        (compiled.is_ok_and(|status| status.success()) && std::fs::rename(&ours, &library).is_ok()).then_some(library)
    };
    LIBRARY.get_or_init(compile).as_deref()
}

impl WallClock {
    /// Why there can be none, if so.
    pub fn missing() -> Option<String> {
        library().is_none().then(|| "redis: there is no C compiler (cc) to set its clock with".to_owned())
    }

    /// One that is right; or why there can be none.
    pub fn start() -> Result<Self, String> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let library = library().ok_or_else(|| Self::missing().unwrap_or_default())?;
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lockkeeper-clock-{}-{number}", std::process::id()));
        let file = File::options().create(true).truncate(true).write(true).open(&path).expect("a file for the clock");
        let clock = Self { library, path, file };
        clock.set(0);
        clock.suspended_for(0);
        Ok(clock)
    }

    /// What makes a process see it.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("LD_PRELOAD", self.library.into()), ("LOCKKEEPER_TEST_CLOCK", (&self.path).into())]
    }

    /// So many seconds ahead of the right time, or behind it.
    pub fn set(&self, ahead: i64) {
        self.write(ahead, 0);
    }

    /// As if the machine had been suspended for so many seconds: the boot clock went on, and timers stood still.
    pub fn suspended_for(&self, seconds: i64) {
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
