//! `lockkeeper release`: release a lock by force, and say who held it.

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};

use clap::Args;
use lockkeeper::backend::{Claim, Holder};

use super::print;
use crate::args;
use crate::exit::{Code, Failure, say};
use crate::store::StoreOption;
use crate::terminal::plain;
use crate::view::{ago, claim, who};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    store: StoreOption,

    /// Do not ask for confirmation; required without a terminal
    #[arg(short, long)]
    yes: bool,

    /// The name to release
    name: OsString,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    let name = args::name(arguments.name)?;
    let asks = stdin().is_terminal() && stderr().is_terminal();
    if !arguments.yes && !asks {
        return Err(Failure::new(
            Code::Usage,
            format!("this releases {name:?} by force, while its holders may be at work; confirm with --yes"),
        ));
    }
    let nobody = || Failure::new(Code::NotAcquired, format!("nobody holds {name:?}, so there is nothing to release"));
    let nowhere = |missing| Failure::new(Code::NotAcquired, format!("nobody holds {name:?}: {missing}"));
    let client = arguments.store.connect_existing().await?.map_err(nowhere)?;
    if !arguments.yes {
        let found = client.inspect(&name).await?.filter(|found| !found.holders.is_empty()).ok_or_else(nobody)?;
        if !agreed(&name, &found.holders) {
            return Err(Failure::new(Code::NotAcquired, format!("{name:?} was not released")));
        }
    }
    let forced = client.force_release(&name).await?;
    if forced.from.is_empty() {
        return Err(nobody());
    }
    print(forced.from.iter().map(|holder| format!("released {:?}, held by {}", plain(&name), described(holder))))?;
    say(notice(client.url()));
    Ok(0)
}

/// When the holder learns of it. ZooKeeper and etcd notify it; with other stores it asks.
fn notice(url: &str) -> &'static str {
    let notifies = ["zookeeper", "etcd"].iter().any(|scheme| url.starts_with(scheme));
    if notifies {
        "the store tells the holder at once; it may be at work until it has ended"
    } else {
        "the holder notices at its next renewal, within a third of its lease (10 s by default), and may be at work until then"
    }
}

/// Who it was, in the words of all messages that say who holds a lock, and what else tells one hold from another.
fn described(holder: &Holder) -> String {
    let mut text = who(holder);
    if let Some(held) = holder.held_for {
        text.push_str(&format!(" for {}", ago(held)));
    }
    if !matches!(holder.claim, Claim::Mutex | Claim::Fair) {
        text.push_str(&format!(", {}", claim(holder.claim)));
    }
    // Without a client card the owner id is all that is known, and `who` is the owner id.
    if holder.client.is_some() {
        text.push_str(&format!(", owner {}", plain(&holder.owner)));
    }
    text
}

/// Asks the user. Holders learn of it while they are at work, so this must not happen by accident.
fn agreed(name: &str, holders: &[Holder]) -> bool {
    let from: Vec<_> = holders.iter().map(who).collect();
    let _ = write!(stderr(), "release {:?}, held by {}, which may still be at work? [y/N] ", plain(name), from.join(", "));
    let mut answer = String::new();
    let _ = stdin().lock().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}
