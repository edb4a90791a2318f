//! The verbs, one file each.

mod run;

use std::future::Future;

use crate::args::Verb;
use crate::exit::{Code, Failure};

/// Does what was asked, and gives the exit status.
pub(crate) fn run(verb: Verb) -> u8 {
    let ended = match verb {
        Verb::Run(run) => block_on(run::run(run)),
    };
    ended.unwrap_or_else(|failure| failure.show())
}

/// One thread is enough: the library keeps locks alive on a thread of its own.
fn block_on(verb: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Code::Internal, format!("the machine gives no executor: {error}")))?;
    executor.block_on(verb)
}
