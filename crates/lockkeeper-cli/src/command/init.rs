//! `lockkeeper init`: prepares the store before its first use.

use clap::Args;
use lockkeeper::Client;

use super::{connect, print, print_text};
use crate::exit::Failure;
use crate::store::StoreOption;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    store: StoreOption,

    /// Print the SQL instead, for somebody who may create tables; connects to nothing
    #[arg(long)]
    print: bool,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    if arguments.print {
        return match Client::setup_sql(&arguments.store.find()?.url)? {
            Some(sql) => print_text(&sql),
            None => print_text("-- this store needs no SQL; it is ready when it is first used\n"),
        };
    }
    // Connecting creates what is missing.
    let client = connect(&arguments.store).await?;
    print([format!("{} is ready", client.url())])
}
