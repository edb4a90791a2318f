//! The verbs, one file each: its options, and what it does.

pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod help;
pub(crate) mod hold;
pub(crate) mod init;
pub(crate) mod latch;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod names;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod semaphore;
pub(crate) mod show;
pub(crate) mod torture;
pub(crate) mod watch;

use std::fmt::Write as _;
use std::future::Future;
use std::io::{self, Write as _};

use lockkeeper::Client;
use serde::Serialize;

use crate::args::Verb;
use crate::exit::{Code, Failure};
use crate::store::StoreOption;
use crate::terminal::is_unsafe;

/// Runs the verb and returns the exit status.
pub(crate) fn run(verb: Verb) -> u8 {
    let ended = match verb {
        Verb::Run(arguments) => arguments.check().and_then(|job| block_on(run::run(job))),
        Verb::Hold(arguments) => block_on(hold::run(*arguments)),
        Verb::List(arguments) => block_on(list::run(arguments)),
        Verb::Show(arguments) => block_on(show::run(arguments)),
        Verb::Watch(arguments) => block_on(watch::run(arguments)),
        Verb::Release(arguments) => block_on(release::run(arguments)),
        Verb::Semaphore(arguments) => block_on(semaphore::run(arguments)),
        Verb::Latch(arguments) => block_on(latch::run(arguments)),
        Verb::Init(arguments) => block_on(init::run(arguments)),
        Verb::Doctor(arguments) => block_on(doctor::run(arguments)),
        Verb::Torture(arguments) => block_on(torture::run(arguments)),
        Verb::Completions(arguments) => completions::run(&arguments),
        Verb::Man(arguments) => man::run(&arguments),
        Verb::Help(arguments) => help::run(&arguments),
    };
    ended.unwrap_or_else(|failure| failure.show())
}

/// Runs on one thread: the library renews locks on its own thread. It is the main thread, because the parent-death signal of a command is sent when the
/// thread that started it ends.
fn block_on(verb: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| internal("cannot start the async runtime", &error))?;
    executor.block_on(Box::pin(verb))
}

fn internal(what: &str, error: &io::Error) -> Failure {
    Failure::new(Code::Internal, format!("{what}: {error}"))
}

async fn connect(store: &StoreOption) -> Result<Client, Failure> {
    store.connect(Client::builder()).await
}

/// The status of a program that the end of its reader ended: 128 and SIGPIPE. Nothing is said, as by any program in a pipe.
const READER_GONE: u8 = 128 + 13;

/// Prints lines. What could not be written is a failure: a script must not take an empty list for no locks.
fn print<S: AsRef<str>>(lines: impl IntoIterator<Item = S>) -> Result<u8, Failure> {
    let text: String = lines.into_iter().map(|line| format!("{}\n", line.as_ref())).collect();
    print_text(&text)
}

/// Prints text as it is; see [`print`].
pub(crate) fn print_text(text: &str) -> Result<u8, Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure { code: READER_GONE, message: None }),
        Err(error) => Err(internal("cannot write to stdout", &error)),
    }
}

/// One line of JSON. What could move the cursor or turn the direction of text is written as `\u202e`, which means the same.
fn json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::new(Code::Internal, format!("cannot write this as JSON: {error}")))?;
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unsafe(character) {
            let _ = write!(safe, "\\u{:04x}", u32::from(character));
        } else {
            safe.push(character);
        }
    }
    Ok(safe)
}
