//! `lockkeeper`: run a command under a distributed lock. Parse, run, exit.
#![allow(clippy::disallowed_methods, reason = "the doors to clock and timers are the library's; a program uses the machine's")]

mod args;
mod command;
mod duration;
mod exit;
mod signals;

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = match args::parse(std::env::args_os()) {
        Ok(verb) => command::run(verb),
        Err(early) => early.show(),
    };
    ExitCode::from(code)
}
