//! What can go wrong, by meaning: a program matches on [`ErrorKind`], a reader gets one line of text.
//!
//! The guide says what to retry (`docs/guide/src/errors.md`) and what each message means (`docs/guide/src/troubleshooting.md`).

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// What kind of failure it is, and what to do about it.
///
/// | kind | retry? | alert? | HTTP status |
/// |---|---|---|---|
/// | [`Timeout`](Self::Timeout) | yes, later | if there are many | 409 or 423 |
/// | [`Lost`](Self::Lost) | start the work anew | yes | 503 |
/// | [`Unavailable`](Self::Unavailable) | yes, later | yes | 503 |
/// | [`Indeterminate`](Self::Indeterminate) | yes: what was acquired is released in the background | yes | 503 |
/// | [`Unreplicated`](Self::Unreplicated) | yes, later | yes | 503 |
/// | [`Denied`](Self::Denied), [`Config`](Self::Config), [`Unsupported`](Self::Unsupported) | no: change the configuration | yes | 500 |
/// | [`WrongKind`](Self::WrongKind), [`ForeignKey`](Self::ForeignKey) | no: choose another name | yes | 500 |
/// | [`InvalidName`](Self::InvalidName), [`InvalidArgument`](Self::InvalidArgument) | no: change the request | no | 400 |
/// | [`NotHeld`](Self::NotHeld) | no | no | 409 |
/// | [`Closed`](Self::Closed) | no: connect a new client | no | 503 |
/// | [`Deadlock`](Self::Deadlock) | no: change the program | yes | 500 |
/// | [`Protocol`](Self::Protocol) | no | yes | 502 |
///
/// [`Error::is_busy`], [`Error::is_outage`] and [`Error::is_retryable`] answer the usual questions. The guide has more: what to retry in
/// `docs/guide/src/errors.md`, and what each message means in `docs/guide/src/troubleshooting.md`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// use lockkeeper::ErrorKind;
///
/// let error = client.mutex("").lock().await.unwrap_err();
/// let status = match error.kind() {
///     ErrorKind::Timeout => 409,
///     ErrorKind::InvalidName | ErrorKind::InvalidArgument => 400,
///     _ if error.is_outage() => 503,
///     _ => 500,
/// };
/// assert_eq!(status, 400);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The time limit of the call ended and others still held the lock.
    Timeout,
    /// The hold is gone: it expired, was released by force, or the store forgot it.
    Lost,
    /// The store could not be reached, or could not answer now. Nothing was changed.
    Unavailable,
    /// The request was sent and no answer came: it may or may not have been carried out. What it may have acquired is released in the
    /// background.
    Indeterminate,
    /// Nothing is held under the id that was given.
    NotHeld,
    /// The name is in use by another kind of synchronizer.
    WrongKind,
    /// Under the name lies a value that no lock library put there.
    ForeignKey,
    /// The name is empty, too long or contains a NUL.
    InvalidName,
    /// A number or duration is outside what is allowed.
    InvalidArgument,
    /// The store cannot do this.
    Unsupported,
    /// The store refuses this user.
    Denied,
    /// The URL, the configuration or the runtime of the caller is wrong.
    Config,
    /// The client was closed, or belongs to another process.
    Closed,
    /// The caller would wait for itself.
    Deadlock,
    /// The grant did not reach as many replicas as were asked for, and was undone.
    Unreplicated,
    /// The store gave an answer that the protocol does not allow.
    Protocol,
}

/// One failure: its kind, one line of text, and its cause.
///
/// A busy lock is not an error: `try_lock` returns `Ok(None)`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use std::time::Duration;
/// let client = lockkeeper::Client::connect("memory:").await?;
/// let guard = client.mutex("orders").lock().await?;
/// let error = client.mutex("orders").lock().timeout(Duration::from_millis(5)).await.unwrap_err();
/// assert!(error.is_busy() && error.is_retryable() && !error.is_outage());
/// # drop(guard);
/// # Ok(()) }
/// ```
///
/// A store of your own makes them:
///
/// ```
/// use lockkeeper::{Error, ErrorKind};
///
/// let cause = std::io::Error::other("connection reset");
/// let error = Error::new(ErrorKind::Unavailable, "cannot reach the store").with_source(cause);
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// ```
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// The call consumed what it was about: there is nothing left to try again with.
    is_final: bool,
}

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure of this kind; `message` is one lower-case line that says what failed and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: Arc::from(message.into()), source: None, is_final: false }
    }

    /// The same failure with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What kind of failure this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later without any change: the lock was busy or the store had trouble.
    ///
    /// It is false for a `release()` that failed: the guard is gone, and the release goes on in the background.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        (self.is_busy() || self.is_outage()) && !self.is_final
    }

    /// Whether others held the lock for as long as the call was allowed to wait. The store is well.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(self.kind, ErrorKind::Timeout)
    }

    /// Whether the store had trouble: not reachable, no answer, or too few replicas.
    #[must_use]
    pub const fn is_outage(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::Unreplicated)
    }
}

impl Error {
    /// Whether the same request is sent again: the store did not answer, or not now.
    pub(crate) const fn is_trouble(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Indeterminate)
    }

    /// The same failure of a call that left nothing to try again with.
    pub(crate) fn into_final(mut self) -> Self {
        self.is_final = true;
        self
    }

    /// Whether a request that failed so may have acquired something, or may still do so: it has to be released.
    pub(crate) const fn may_have_taken(&self) -> bool {
        matches!(self.kind, ErrorKind::Indeterminate | ErrorKind::Protocol | ErrorKind::Unreplicated)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, "; caused by: {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_and_outage_are_told_apart_and_both_can_be_retried() {
        let of = |kind| Error::new(kind, "x");
        assert!(of(ErrorKind::Timeout).is_busy() && of(ErrorKind::Timeout).is_retryable() && !of(ErrorKind::Timeout).is_outage());
        for kind in [ErrorKind::Unavailable, ErrorKind::Indeterminate, ErrorKind::Unreplicated] {
            assert!(of(kind).is_outage() && of(kind).is_retryable() && !of(kind).is_busy(), "{kind:?}");
            assert!(!of(kind).into_final().is_retryable(), "nothing is left to try again with");
        }
        for kind in [ErrorKind::Lost, ErrorKind::Closed, ErrorKind::Denied, ErrorKind::Protocol, ErrorKind::Deadlock] {
            assert!(!of(kind).is_retryable() && !of(kind).is_outage() && !of(kind).is_busy(), "{kind:?}");
        }
    }
}
