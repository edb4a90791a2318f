//! `lockkeeper`: run a command under a distributed lock. Parse, run, exit.
#![allow(clippy::disallowed_methods, reason = "the doors to clock and timers are the library's; a program uses the machine's")]

mod args;
mod child;
mod command;
mod config;
mod duration;
mod exit;
mod hold;
mod nested;
mod number;
mod selection;
mod signals;
mod store;
mod table;
mod taking;
mod terminal;
mod view;
mod waiting;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Ourselves between the runner and its command: before anything else, so that it costs next to nothing.
    let code = match child::shim(std::env::args_os()) {
        Some(code) => code,
        None => match args::parse(std::env::args_os()) {
            Ok(verb) => command::run(verb),
            Err(early) => early.show(),
        },
    };
    ExitCode::from(code)
}
