//! What an error of SQLite or of the file system means to the caller.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::error::{Error, ErrorKind};

/// The error of a request; nothing was done.
pub(super) fn of_request(error: rusqlite::Error, file: &Path) -> Error {
    let file = file.display();
    let (kind, message) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Unavailable, format!("{file} was locked by another writer for 2s; is a process that uses it stopped?"))
        }
        Some(ErrorCode::DiskFull) => (ErrorKind::Unavailable, format!("{file} cannot be written: the disk is full; make room")),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            (ErrorKind::Denied, format!("{file} cannot be written by this user; see its rights and those of its directory"))
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            (ErrorKind::Config, format!("{file} is damaged; it is left as it is: move it away to start with a new file"))
        }
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => {
            (ErrorKind::Unavailable, format!("{file} cannot be used now: {error}"))
        }
        _ => (ErrorKind::Protocol, format!("{file} answered with an error: {error}")),
    };
    Error::new(kind, message).with_source(error)
}

/// The error of a commit: if the disk failed, the outcome is unknown.
pub(super) fn of_commit(error: rusqlite::Error, file: &Path) -> Error {
    if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
        let message = format!("the disk failed while {} was written: {error}", file.display());
        return Error::new(ErrorKind::Indeterminate, message).with_source(error);
    }
    of_request(error, file)
}

/// The error of a file or directory; nothing was done.
pub(super) fn of_file(error: io::Error, doing: &str, path: &Path) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => ErrorKind::Config,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("cannot {doing} {}: {error}", path.display())).with_source(error)
}

/// Whether another writer was in the way, so that the same request may pass in a moment.
pub(super) fn is_busy(error: &Error) -> bool {
    let code = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<rusqlite::Error>()?.sqlite_error_code());
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
