//! `lockkeeper hold`: acquire the lock, print a line of JSON, hold it until a signal or the end of stdin.

use std::ffi::OsString;
use std::io::Read as _;
use std::time::Instant;

use clap::Args;
use lockkeeper::ErrorKind;
use serde::Serialize;

use super::{internal, json, print};
use crate::child::reap_orphans;
use crate::exit::{Code, Failure, say};
use crate::lock_options::LockOptions;
use crate::signals::Signals;
use crate::{args, view};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    lock: LockOptions,

    /// The name to hold
    name: OsString,
}

/// The line on stdout.
#[derive(Debug, Serialize)]
struct Line<'a> {
    name: &'a str,
    kind: &'static str,
    holds: String,
    owner: String,
    token: Option<u64>,
    store: &'a str,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    let began = Instant::now();
    let name = args::name(arguments.name)?;
    let lock = arguments.lock;
    let mut signals = Signals::take().map_err(|error| internal("cannot receive signals", &error))?;
    let client = lock.connect("lockkeeper hold", &mut signals).await?;
    let guard = lock.acquire(&client, &name, began, &mut signals).await?;
    let claim = lock.claim();
    let line = Line {
        name: &name,
        kind: view::kind(claim.kind()),
        holds: view::claim(claim),
        owner: guard.owner().to_string(),
        token: guard.token(),
        store: client.url(),
    };
    print([json(&line)?])?;
    let reason = tokio::select! {
        biased;
        reason = guard.lost() => Some(reason),
        () = end_of_input() => None,
        _ = signals.end(|| {}) => None,
        // Process 1 collects them at all times.
        never = reap_orphans() => match never {},
    };
    let released = guard.release().await;
    match (reason, released) {
        (Some(reason), _) => Err(Failure::new(Code::Lost, format!("the lock {name:?} is lost: {reason}"))),
        (None, Err(error)) if error.kind() != ErrorKind::Lost => {
            say(&format!("could not release {name:?}, it is free when its lease ends: {error}"));
            Ok(0)
        }
        (None, released) => released.map(|()| 0).map_err(Failure::from),
    }
}

/// Reads on its own thread: a read cannot be cancelled, and the process ends without waiting for it.
async fn end_of_input() {
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let mut some = [0; 4096];
        while std::io::stdin().read(&mut some).is_ok_and(|read| read > 0) {}
        drop(tell);
    });
    let _ = told.await;
}
