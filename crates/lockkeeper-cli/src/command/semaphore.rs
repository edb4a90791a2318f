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
    /// Set how many permits there are; creates the semaphore
    Set(Set),
    /// Show a semaphore: permits, and who has them
    Show(show::Arguments),
    /// Remove a semaphore of which nobody has a permit: its name may be used for something else then
    Remove(Remove),
}

#[derive(Args, Debug)]
pub(crate) struct Set {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    java: JavaOption,

    /// Which semaphore
    name: OsString,

    /// How many permits; those above it stay with their holders and are not given out again
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    permits: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Remove {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    java: JavaOption,

    /// Which semaphore
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
            // Its size does not matter to be removed.
            if client.semaphore(&name, 1).remove().await? {
                return Ok(0);
            }
            let message = format!("{name:?} is not there, or somebody has a permit; see lockkeeper semaphore show {name}");
            Err(Failure::new(Code::NotAcquired, message))
        }
        Arguments::Show(arguments) => show::show(arguments, Some(Kind::Semaphore)).await,
    }
}
