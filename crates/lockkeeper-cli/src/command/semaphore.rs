//! `lockkeeper semaphore`: the size of a semaphore.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use lockkeeper::backend::Kind;

use super::{connect, print, show};
use crate::exit::{Code, Failure};
use crate::number::JavaOption;
use crate::store::StoreOption;
use crate::{args, number};

#[derive(Debug, Subcommand)]
pub(crate) enum Arguments {
    /// Set the number of permits; creates the semaphore
    Set(Set),
    /// Show a semaphore: its permits and their holders
    Show(show::Arguments),
    /// Remove a semaphore that nobody holds a permit of; its name is free for another kind of lock
    Remove(Remove),
}

#[derive(Args, Debug)]
pub(crate) struct Set {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    java: JavaOption,

    /// The name of the semaphore
    name: OsString,

    /// The number of permits; permits above it stay with their holders until these release them
    #[arg(value_parser = number::permits)]
    permits: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Remove {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    java: JavaOption,

    /// The name of the semaphore
    name: OsString,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    match arguments {
        Arguments::Set(set) => {
            let name = args::name(set.name)?;
            let client = connect(&set.store).await?;
            number::check(&client, &name, Kind::Semaphore, set.java.java).await?;
            let semaphore = client.semaphore(&name, set.permits).resize(set.permits).await?;
            print([format!("{} of {} free", semaphore.available().await?, set.permits)])
        }
        Arguments::Remove(remove) => {
            let name = args::name(remove.name)?;
            let client = connect(&remove.store).await?;
            number::check(&client, &name, Kind::Semaphore, remove.java.java).await?;
            // The size does not matter here.
            if client.semaphore(&name, 1).remove().await? {
                return Ok(0);
            }
            let message = format!("{name:?} does not exist, or somebody has a permit; see lockkeeper semaphore show {name}");
            Err(Failure::new(Code::NotAcquired, message))
        }
        Arguments::Show(arguments) => show::show(arguments, Some(Kind::Semaphore)).await,
    }
}
