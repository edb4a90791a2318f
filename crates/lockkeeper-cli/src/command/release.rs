//! `lockkeeper release`: take a lock from whoever holds it, and say from whom.

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};

use clap::Args;
use lockkeeper::backend::Holder;

use super::{connect, print};
use crate::args;
use crate::exit::{Code, Failure, say};
use crate::store::StoreOption;
use crate::terminal::plain;
use crate::view::{claim, who};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    store: StoreOption,

    /// Do not ask; needed where there is no terminal to ask on
    #[arg(short, long)]
    yes: bool,

    /// What to take from its holders
    name: OsString,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    let name = args::name(arguments.name)?;
    let asks = stdin().is_terminal() && stderr().is_terminal();
    if !arguments.yes && !asks {
        return Err(Failure::new(Code::Usage, format!("this takes {name:?} from its holders; say --yes if that is meant")));
    }
    let client = connect(&arguments.store).await?;
    let nobody = || Failure::new(Code::NotAcquired, format!("nobody holds {name:?}, so there is nothing to release"));
    if !arguments.yes {
        let found = client.inspect(&name).await?.filter(|found| !found.holders.is_empty()).ok_or_else(nobody)?;
        if !agreed(&name, &found.holders) {
            return Err(Failure::new(Code::NotAcquired, format!("{name:?} stays with its holders")));
        }
    }
    let forced = client.force_release(&name).await?;
    if forced.from.is_empty() {
        return Err(nobody());
    }
    print(forced.from.iter().map(|holder| format!("took {:?} from {}", plain(&name), described(holder))))?;
    say(
        "whoever had it learns of it at the next renewal, within about a third of the lease (10 s if none was given), and may be at work until then",
    );
    Ok(0)
}

fn described(holder: &Holder) -> String {
    format!("{} ({}, owner {})", who(holder), claim(holder.claim), plain(&holder.owner))
}

/// They learn it only at their next renewal: nobody should do this by accident.
fn agreed(name: &str, holders: &[Holder]) -> bool {
    let from: Vec<_> = holders.iter().map(who).collect();
    let _ = write!(stderr(), "take {:?} from {}, which may still be at work? [y/N] ", plain(name), from.join(", "));
    let mut answer = String::new();
    let _ = stdin().lock().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}
