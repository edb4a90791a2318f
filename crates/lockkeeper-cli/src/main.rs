//! `lockkeeper`: run a command under a distributed lock. Parse, run, exit.
#![allow(clippy::disallowed_methods, reason = "only the library must take time from its runtime")]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the program lockkeeper is for Linux only: its watchdog reads /proc and needs signals at the death of a parent; the library lockkeeper \
     also compiles for macOS and Windows"
);

mod args;
mod child;
mod command;
mod config;
mod duration;
mod exit;
mod held;
mod lock_options;
mod nested;
mod number;
mod selection;
mod signals;
mod store;
mod supervise;
mod system;
mod table;
mod terminal;
mod torture;
mod view;
mod waiting;
mod width;
mod wrap;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The shim and the watchdog come first, so that they start quickly.
    let code = match child::shim(std::env::args_os()) {
        Some(code) => code,
        None if std::env::args_os().nth(1).is_some_and(|word| word == command::names::WORD) => {
            command::names::run(std::io::stdin())
        }
        None if std::env::args_os().nth(1).is_some_and(|word| word == torture::worker::WORD) => torture::worker::main(),
        None => match args::parse(std::env::args_os()) {
            Ok(verb) => command::run(verb),
            Err(early) => early.show(),
        },
    };
    ExitCode::from(code)
}
