//! The files of a store: the database, and beside it the directory of liveness pipes. Errors say what is wrong with either.
//!
//! A new database is completed under another name and then linked to its own, so nobody ever sees half of one. SQLite never opens a file
//! that is not a lockkeeper database.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock};

use super::config::Config;
use super::layout::{self, APPLICATION, LAYOUT, LAYOUT_BEFORE};
use super::{error, self_test};
use crate::error::{Error, ErrorKind, Result};

/// The database and the directory beside it.
#[derive(Debug)]
pub(super) struct Files {
    file: PathBuf,
    live: PathBuf,
    /// A short path into `live`: the path of a socket is at most 107 bytes.
    live_fd: OwnedFd,
    /// The permissions of what is made beside the file.
    mode: u32,
}

impl Files {
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
        self_test::link(named, directory)?;
        // One name for one file: the name of the directory beside it depends on it.
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
            self_test::database(&file, directory)?;
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
        let files = Self { file, live, live_fd, mode };
        if is_new {
            files.make()?;
            recognise(&files.file)?;
            // Somebody else may have been faster.
            self_test::database(&files.file, files.file.parent().unwrap_or(Path::new("/")))?;
        }
        Ok(files)
    }

    /// The file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The directory of liveness pipes and sockets.
    pub(super) fn live(&self) -> &Path {
        &self.live
    }

    /// The permissions of what is made beside the file.
    pub(super) fn mode(&self) -> u32 {
        self.mode
    }

    /// A short path of the socket of this name.
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
        // SQLite would take the leftovers of a removed file for parts of the new one.
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
            layout::build(&new).map_err(io::Error::other)?;
            made.sync_all()?;
            // Linked, not renamed: a rename would replace a file that was made meanwhile.
            std::fs::hard_link(&new, &self.file)?;
            std::fs::remove_file(&new)
        });
        kept.map_err(|cause| error::of_file(cause, "make", &self.file))
    }
}

/// Reads the file's header without SQLite, so that a file that is not ours is not touched.
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
        // The log may hold a newer number; `layout::upgrade` asks SQLite.
        LAYOUT | LAYOUT_BEFORE => Ok(()),
        other => Err(layout::unknown(file, other)),
    }
}

/// The permissions of an existing file; for a new one, those that its directory suggests: shared by a group, or private.
fn mode_for(file: &Path, directory: &Path) -> Result<u32> {
    match std::fs::metadata(file) {
        Ok(data) => Ok(data.permissions().mode() & 0o666),
        Err(_) => {
            let data = std::fs::metadata(directory).map_err(|cause| error::of_file(cause, "look at", directory))?;
            Ok(if data.permissions().mode() & 0o022 == 0o020 { 0o660 } else { 0o600 })
        }
    }
}

/// Opens a name for nothing but its own data, without following a link. Fails unless this user has just made a file of this type there: in a
/// directory that a group shares others can put something else in its place.
fn own(path: &Path, kind: FileType) -> io::Result<OwnedFd> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let data = rustix::fs::fstat(&found)?;
    if FileType::from_raw_mode(data.st_mode) == kind && data.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(found);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "somebody put something else in its place"))
}

/// Sets the permissions of what this user has just made.
pub(super) fn set_mode(path: &Path, kind: FileType, mode: u32) -> io::Result<()> {
    let found = own(path, kind)?;
    std::fs::set_permissions(format!("/proc/self/fd/{}", found.as_raw_fd()), Permissions::from_mode(mode))
}

fn make_directory(live: &Path, mode: u32) -> Result<()> {
    // Readers may enter; a shared directory keeps the group of the one above.
    let mode = mode | (mode & 0o444) >> 2 | if mode & 0o060 == 0 { 0 } else { 0o2000 };
    match DirBuilder::new().mode(mode & 0o777).create(live) {
        Ok(()) => set_mode(live, FileType::Directory, mode),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(cause) => Err(cause),
    }
    .map_err(|cause| error::of_file(cause, "make", live))
}
