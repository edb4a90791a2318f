//! Where the store lies: the file, and beside it the directory of those who live. What is wrong with either is told here, in words.
//!
//! The file is made whole under another name and then given its own, so nobody ever meets half a store; a file that is not ours is never
//! opened by SQLite at all.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use super::config::Config;
use super::{error, self_test};
use crate::error::{Error, ErrorKind, Result};

/// Marks the file as ours, in SQLite's header: "LKPR".
const APPLICATION: u32 = 0x4c4b_5052;
/// The layout of the tables.
const LAYOUT: u32 = 1;

const TABLES: &str = "
    CREATE TABLE store (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL, machine TEXT NOT NULL, boot TEXT NOT NULL);
    INSERT INTO store VALUES (1, 0, '', '');
    CREATE TABLE lock (name TEXT PRIMARY KEY, version INTEGER NOT NULL, body TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE listener (name TEXT NOT NULL, instance TEXT NOT NULL, PRIMARY KEY (name, instance)) WITHOUT ROWID;
    CREATE TABLE client (id TEXT PRIMARY KEY, ends INTEGER NOT NULL, card TEXT NOT NULL) WITHOUT ROWID;
";

/// The file and its neighbourhood.
#[derive(Debug)]
pub(super) struct Place {
    file: PathBuf,
    live: PathBuf,
    /// A short way into `live`: the path of a socket is at most 107 bytes.
    live_fd: OwnedFd,
    /// The rights of what is made beside the file.
    mode: u32,
}

impl Place {
    /// Finds the store, or makes an empty one.
    pub(super) fn open(config: &Config) -> Result<Self> {
        let named = config.path();
        let (directory, name) = match (named.parent(), named.file_name()) {
            (Some(directory), Some(name)) if directory.as_os_str().is_empty() => (Path::new("."), name),
            (Some(directory), Some(name)) => (directory, name),
            _ => return Err(Error::new(ErrorKind::Config, format!("{} is no file; name one", named.display()))),
        };
        if config.is_own() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(|cause| error::of_file(cause, "make the directory", directory))?;
        }
        // One name for one file: the directory of the living goes by it.
        let file = match std::fs::canonicalize(named) {
            Ok(file) => file,
            Err(_) => {
                directory.canonicalize().map_err(|cause| error::of_file(cause, "find the directory", directory))?.join(name)
            }
        };
        let directory = file.parent().unwrap_or(directory);
        self_test::filesystem(directory)?;
        let is_new = !file.exists();
        if !is_new {
            recognise(&file)?;
        }
        let mode = mode_for(&file, directory)?;
        let mut live = file.clone().into_os_string();
        live.push("-live");
        let live = PathBuf::from(live);
        make_directory(&live, mode)?;
        self_test::live_directory(&live, &file, mode)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let live_fd =
            rustix::fs::open(&live, flags, Mode::empty()).map_err(|cause| error::of_file(cause.into(), "open", &live))?;
        let place = Self { file, live, live_fd, mode };
        if is_new {
            place.make()?;
            recognise(&place.file)?;
        }
        Ok(place)
    }

    /// The file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The directory of the living.
    pub(super) fn live(&self) -> &Path {
        &self.live
    }

    /// The rights of what is made beside the file.
    pub(super) fn mode(&self) -> u32 {
        self.mode
    }

    /// Where the socket of this name is, shortly.
    pub(super) fn socket(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}.sock", self.live_fd.as_raw_fd()))
    }

    /// Which file lies there now: device and inode.
    pub(super) fn identity(&self) -> io::Result<(u64, u64)> {
        std::fs::metadata(&self.file).map(|data| (data.dev(), data.ino()))
    }

    /// Makes the file if it is not there; one process at a time.
    pub(super) fn make(&self) -> Result<()> {
        make_directory(&self.live, self.mode)?;
        let door = File::open(&self.live).map_err(|cause| error::of_file(cause, "open", &self.live))?;
        flock(&door, FlockOperation::LockExclusive).map_err(|cause| error::of_file(cause.into(), "lock", &self.live))?;
        if self.file.exists() {
            return Ok(());
        }
        let beside = |suffix: &str| {
            let mut path = self.file.clone().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        };
        // What a file that was removed left behind would be taken for a part of the new one.
        for stale in ["-wal", "-shm", "-journal", "-new", "-new-wal", "-new-shm", "-new-journal"] {
            match std::fs::remove_file(beside(stale)) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    return Err(error::of_file(cause, "remove", &beside(stale)));
                }
                _ => {}
            }
        }
        let new = beside("-new");
        let made = OpenOptions::new().write(true).create_new(true).mode(self.mode).open(&new);
        let made = made.map_err(|cause| error::of_file(cause, "make", &self.file))?;
        let kept = made.set_permissions(Permissions::from_mode(self.mode)).and_then(|()| {
            build(&new).map_err(io::Error::other)?;
            made.sync_all()?;
            // Not renamed: that would replace a file that somebody else made meanwhile.
            std::fs::hard_link(&new, &self.file)?;
            std::fs::remove_file(&new)
        });
        kept.map_err(|cause| error::of_file(cause, "make", &self.file))
    }
}

fn build(file: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open(file)?;
    // Synced once, when it is whole.
    connection.pragma_update(None, "synchronous", "off")?;
    connection.pragma_update(None, "application_id", APPLICATION)?;
    connection.pragma_update(None, "user_version", LAYOUT)?;
    connection.execute_batch(TABLES)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)
}

/// Looks at the file's own header, without SQLite: what is not ours is not touched.
fn recognise(file: &Path) -> Result<()> {
    let config = |message: String| Err(Error::new(ErrorKind::Config, message));
    let shown = file.display();
    let data = std::fs::metadata(file).map_err(|cause| error::of_file(cause, "look at", file))?;
    if data.is_dir() {
        return config(format!("{shown} is a directory; name a file in it"));
    }
    // Opening a named pipe would wait for a writer, for ever.
    if !data.is_file() {
        return config(format!("{shown} is not a regular file; name another one"));
    }
    let mut header = Vec::new();
    File::open(file)
        .and_then(|file| file.take(100).read_to_end(&mut header))
        .map_err(|cause| error::of_file(cause, "read", file))?;
    let number =
        |at: usize| header.get(at..at + 4).map_or(0, |bytes| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
    if !header.starts_with(b"SQLite format 3\0") || number(68) != APPLICATION {
        return config(format!("{shown} is no store of lockkeeper; it is left as it is: name another file, or move it away"));
    }
    match number(60) {
        LAYOUT => Ok(()),
        other => config(format!("{shown} has layout {other}, and this version knows {LAYOUT}; use one version of lockkeeper")),
    }
}

/// An existing file says for whom it is; for a new one its directory does: shared by a group, or private.
fn mode_for(file: &Path, directory: &Path) -> Result<u32> {
    match std::fs::metadata(file) {
        Ok(data) => Ok(data.permissions().mode() & 0o666),
        Err(_) => {
            let data = std::fs::metadata(directory).map_err(|cause| error::of_file(cause, "look at", directory))?;
            Ok(if data.permissions().mode() & 0o022 == 0o020 { 0o660 } else { 0o600 })
        }
    }
}

fn make_directory(live: &Path, mode: u32) -> Result<()> {
    // Who may read may enter; of a shared one the group stays that of the directory above.
    let mode = mode | (mode & 0o444) >> 2 | if mode & 0o060 == 0 { 0 } else { 0o2000 };
    match DirBuilder::new().mode(mode & 0o777).create(live) {
        Ok(()) => std::fs::set_permissions(live, Permissions::from_mode(mode)),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(cause) => Err(cause),
    }
    .map_err(|cause| error::of_file(cause, "make", live))
}
