//! `lockkeeper list`: what is held.

use clap::Args;

use super::{connect, json, print};
use crate::exit::{Failure, say};
use crate::store::StoreOption;
use crate::view::{self, Output, OutputOption, Seen};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    output: OutputOption,

    /// Only names that match: * is any text, ? any character
    #[arg(default_value = "*", hide_default_value = true)]
    pattern: String,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    let client = connect(&arguments.store).await?;
    let found = client.list(&arguments.pattern).await?;
    match arguments.output.output {
        Output::Json => print([json(&found.iter().map(Seen::from).collect::<Vec<_>>())?]),
        Output::Table if found.is_empty() => {
            say(&view::nothing(&arguments.pattern, client.url()));
            Ok(0)
        }
        Output::Table => print(view::table(&found)),
    }
}
