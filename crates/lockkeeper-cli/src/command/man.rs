//! `lockkeeper man`: the manual page, or that of a verb.

use clap::Args;
use clap_mangen::Man;

use super::{help, internal, print};
use crate::exit::Failure;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The verb [default: the page of all verbs]
    verb: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let mut text = Vec::new();
    Man::new(help::find(&arguments.verb)?).render(&mut text).map_err(|error| internal("the page cannot be written", &error))?;
    print([String::from_utf8_lossy(&text).trim_end()])
}
