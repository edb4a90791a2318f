//! What a look at a store found: whether locks can live there, and what to do if not.

use crate::error::{Error, ErrorKind, Result};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at: `version`, `eviction`, …
    pub about: &'static str,
    /// What was found, in one line; what to do about it if something is wrong.
    pub says: String,
    /// What it means for locks.
    pub verdict: Verdict,
}

/// What a finding means for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// Locks are safe, something else may surprise.
    Doubtful,
    /// Locks cannot live there: connecting fails with this kind.
    Unfit(ErrorKind),
}

impl Finding {
    /// Something that is as it should be.
    pub fn fine(about: &'static str, says: impl Into<String>) -> Self {
        Self { about, says: says.into(), verdict: Verdict::Fine }
    }

    /// Something that may surprise.
    pub fn doubtful(about: &'static str, says: impl Into<String>) -> Self {
        Self { about, says: says.into(), verdict: Verdict::Doubtful }
    }

    /// Something that locks cannot live with.
    #[must_use]
    pub fn unfit(about: &'static str, error: &Error) -> Self {
        Self { about, says: error.to_string(), verdict: Verdict::Unfit(error.kind()) }
    }

    /// The same, of one store among several.
    #[must_use]
    pub fn at(mut self, store: &str) -> Self {
        self.says = format!("{store}: {}", self.says);
        self
    }

    /// The first finding that locks cannot live with, as the error of connecting.
    ///
    /// # Errors
    ///
    /// That finding.
    pub fn judge(findings: &[Self]) -> Result<()> {
        findings.iter().try_for_each(|finding| match finding.verdict {
            Verdict::Unfit(kind) => Err(Error::new(kind, finding.says.clone())),
            Verdict::Fine | Verdict::Doubtful => Ok(()),
        })
    }
}
