//! `lockkeeper list`: the locks that are held.

use clap::Args;

use super::{json, print};
use crate::exit::{Failure, say};
use crate::selection::Selection;
use crate::store::StoreOption;
use crate::terminal;
use crate::view::{self, Output, OutputOption, Seen};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    output: OutputOption,

    #[command(flatten)]
    selection: Selection,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    let client = match arguments.store.connect_existing().await? {
        Ok(client) => client,
        Err(missing) => {
            say(&format!("nothing is held: {missing}"));
            return if arguments.output.output == Output::Json { print(["[]"]) } else { Ok(0) };
        }
    };
    let selected = arguments.selection.of(&client).await?;
    match arguments.output.output {
        Output::Json => print([json(&selected.found.iter().map(Seen::from).collect::<Vec<_>>())?]),
        Output::Table if selected.found.is_empty() => {
            say(&arguments.selection.nothing(&selected, &client));
            Ok(0)
        }
        Output::Table => print(view::table(&selected.found, terminal::room())),
    }
}
