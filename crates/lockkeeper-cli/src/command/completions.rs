//! `lockkeeper completions`: the completions for a shell.

use clap::Args;
use clap_complete::{Shell, generate};

use super::print;
use crate::args::command;
use crate::exit::Failure;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Which shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let mut text = Vec::new();
    generate(arguments.shell, &mut command(), "lockkeeper", &mut text);
    print([String::from_utf8_lossy(&text).trim_end()])
}
