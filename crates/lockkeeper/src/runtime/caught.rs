//! Calls into code of the user's that the library cannot choose: log subscribers. The keeper logs too, and a panic there must not end it.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What code of the user's gives, or `None` if it panicked: the caller goes on without it.
pub(crate) fn caught<T>(of_the_user: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(of_the_user)).ok()
}

/// Logs an event: `log!(warn, %error, "text")`. If the subscriber panics, the event is dropped and nothing else.
macro_rules! log {
    ($level:ident, $($event:tt)+) => {
        {
            let _: Option<()> = $crate::runtime::caught(|| tracing::$level!($($event)+));
        }
    };
}
pub(crate) use log;
