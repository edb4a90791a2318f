//! `lockkeeper semaphore`: the size of a semaphore.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use lockkeeper::backend::Kind;

use super::{connect, print, show};
use crate::args;
use crate::exit::Failure;
use crate::store::StoreOption;

#[derive(Debug, Subcommand)]
pub(crate) enum Arguments {
    /// Set how many permits there are; creates the semaphore
    Set(Set),
    /// Show a semaphore: permits, and who has them
    Show(show::Arguments),
}

#[derive(Args, Debug)]
pub(crate) struct Set {
    #[command(flatten)]
    store: StoreOption,

    /// Which semaphore
    name: OsString,

    /// How many permits; those above it stay with their holders and are not given out again
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    permits: u32,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    match arguments {
        Arguments::Set(set) => {
            let name = args::name(set.name)?;
            let client = connect(&set.store).await?;
            let semaphore = client.semaphore(&name, set.permits).resize(set.permits).await?;
            print([format!("{} of {} free", semaphore.available().await?, set.permits)])
        }
        Arguments::Show(arguments) => show::show(arguments, Some(Kind::Semaphore)).await,
    }
}
