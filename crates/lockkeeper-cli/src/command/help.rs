//! `lockkeeper help`: the help of a verb, or the exit statuses.

use clap::{Args, Command};

use super::print;
use crate::args::command;
use crate::exit::{Code, Failure, table};
use crate::wrap::to_terminal;

/// The topic that is not a verb.
const EXIT_CODES: &str = "exit-codes";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// A verb, or exit-codes
    topic: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    if arguments.topic == [EXIT_CODES] {
        return print([to_terminal(&format!("Exit statuses of lockkeeper:\n\n{}", table().trim_end()))]);
    }
    print([to_terminal(find(&arguments.topic)?.render_long_help().to_string().trim_end())])
}

/// The verb with this path.
pub(super) fn find(path: &[String]) -> Result<Command, Failure> {
    let mut found = command();
    found.build();
    for word in path {
        let verbs: Vec<_> =
            found.get_subcommands().filter(|verb| !verb.is_hide_set()).map(|verb| verb.get_name().to_owned()).collect();
        found = found.find_subcommand(word).cloned().ok_or_else(|| {
            let verbs = if verbs.is_empty() { "nothing below that".to_owned() } else { verbs.join(", ") };
            Failure::new(Code::Usage, format!("there is no topic {word:?}; there is {verbs}, {EXIT_CODES}"))
        })?;
    }
    Ok(found)
}
