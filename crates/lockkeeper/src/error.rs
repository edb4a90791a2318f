//! What can go wrong, by meaning: a caller matches on [`ErrorKind`], a person reads the one line.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The time allowed for waiting ended and others still held it.
    Timeout,
    /// The hold is gone: it expired, was freed by force, or the store forgot it.
    Lost,
    /// The store could not be reached, or could not answer now. Nothing was done.
    Unavailable,
    /// The request was sent and no answer came: it may or may not have happened. What it may have taken is being given back.
    Indeterminate,
    /// The caller holds nothing there.
    NotHeld,
    /// The name is in use by another kind of synchronizer.
    WrongKind,
    /// Under the name lies something that no lock library put there.
    ForeignKey,
    /// The name is empty, too long or holds a NUL.
    InvalidName,
    /// A number or duration outside what is allowed.
    InvalidArgument,
    /// The store cannot do this.
    Unsupported,
    /// The store refuses this user.
    Denied,
    /// The URL or the configuration is wrong.
    Config,
    /// The client was closed.
    Closed,
    /// The caller would wait for itself.
    Deadlock,
    /// The grant did not reach as many replicas as were asked for, and was undone.
    Unreplicated,
    /// The store answered something that the protocol does not allow.
    Protocol,
}

/// One failure: its kind, one line for people, and its cause.
///
/// Busy is not an error: `try_lock` answers `Ok(None)`.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure of this kind; `message` is one lower-case line that says what to do about it.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: Arc::from(message.into()), source: None }
    }

    /// The same failure with the cause below it.
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

    /// Whether the same request may succeed later without any change.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Indeterminate)
    }
}

impl Error {
    /// Whether a request that failed so may have taken something, or may still: it has to be given back.
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
