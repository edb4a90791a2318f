//! The locks that commands around this one hold, as the environment tells: a lock that is requested again inside itself.

use std::process::Command;

use lockkeeper::backend::{Claim, Snapshot};
use lockkeeper::fence::SqlFence;
use lockkeeper::{Client, Held, WireOwner};

use crate::exit::{Code, Failure};

pub(crate) const NAME: &str = "LOCKKEEPER_NAME";
pub(crate) const TOKEN: &str = "LOCKKEEPER_TOKEN";
pub(crate) const OWNER: &str = "LOCKKEEPER_OWNER";
const FENCE_SQL: &str = "LOCKKEEPER_FENCE_SQL";

/// All holds around this process, outermost first: `[["NAME","OWNER","TOKEN"],…]`, without a token where there is none. [`NAME`] and [`OWNER`] are those of
/// the hold that the command runs under.
const AROUND: &str = "LOCKKEEPER_AROUND";

/// The holds around this process.
fn around() -> Vec<Vec<String>> {
    std::env::var(AROUND).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// A lock that a command around this one holds.
#[derive(Clone, Debug)]
pub(crate) struct Outer {
    pub(crate) owner: String,
    token: Option<String>,
}

/// The holds on `name` around this process, innermost first, according to the environment. The store tells whether they still exist.
fn all(name: &str) -> impl Iterator<Item = Outer> {
    around().into_iter().rev().filter(move |hold| hold.first().is_some_and(|held| held == name)).filter_map(|hold| {
        let mut rest = hold.into_iter().skip(1);
        Some(Outer { owner: rest.next()?, token: rest.next() })
    })
}

/// The innermost hold on `name` around this process.
pub(crate) fn outer(name: &str) -> Option<Outer> {
    all(name).next()
}

/// Refuses a claim that would wait for a command around this one, and so for itself.
pub(crate) async fn refuse_to_wait_for_itself(client: &Client, name: &str, claim: Claim) -> Result<(), Failure> {
    let outer: Vec<WireOwner> = all(name).filter_map(|outer| outer.owner.parse().ok()).collect();
    if outer.is_empty() {
        return Ok(());
    }
    match client.inspect(name).await?.and_then(|found| in_the_way(&found, &outer, claim)) {
        Some(message) => {
            Err(Failure::new(Code::Usage, format!("{message} {name:?}, so this one would wait for itself; {}", remedy(claim))))
        }
        None => Ok(()),
    }
}

const fn remedy(claim: Claim) -> &'static str {
    match claim {
        Claim::Permits { .. } => "take them all in the outer command, or give the semaphore more permits",
        _ => "use --reenter",
    }
}

/// What the commands around this one hold, if `claim` would wait for it. `outer` are their owners.
fn in_the_way(found: &Snapshot, outer: &[WireOwner], claim: Claim) -> Option<String> {
    let mut held =
        found.holders.iter().filter(|holder| outer.iter().any(|outer| holder.is_of(*outer))).map(|holder| holder.claim);
    let Claim::Permits { take, of } = claim else {
        let waits = |held| !matches!((held, claim), (Claim::Read, Claim::Read) | (Claim::Permits { .. }, _));
        return held.any(waits).then(|| "a command around this one holds".to_owned());
    };
    let taken: u32 = held.map(|held| if let Claim::Permits { take, .. } = held { take } else { 0 }).fold(0, u32::saturating_add);
    let size = found.total.unwrap_or(of);
    // More than there are is refused by the store, in its own words.
    (taken > 0 && take <= size && taken.saturating_add(take) > size)
        .then(|| format!("commands around this one hold {taken} of the {size} permits of"))
}

impl Outer {
    /// Sets the environment of a command that runs under this hold; `known` is the token that the store told, if it did.
    pub(crate) fn set_environment(&self, command: &mut Command, name: &str, known: Option<u64>) {
        let token = self.token.clone().or_else(|| known.map(|token| token.to_string()));
        set(command, name, &self.owner, token.as_deref());
        // The statement that was inherited is of the innermost hold.
        if ![(NAME, name), (OWNER, &self.owner)].iter().all(|(key, value)| std::env::var(key).is_ok_and(|known| known == **value))
        {
            set_fence(command, None);
        }
    }
}

/// Sets the environment of a command that runs under a new hold.
pub(crate) fn set_environment(command: &mut Command, held: &Held, token: Option<u64>) {
    let (name, owner, token) = (held.name(), held.owner().to_string(), token.map(|token| token.to_string()));
    set(command, name, &owner, token.as_deref());
    let mut around = around();
    around.push([name.to_owned(), owner].into_iter().chain(token).collect());
    command.env(AROUND, serde_json::to_string(&around).unwrap_or_default());
}

/// Tells a command the statement that fences its transactions, where the locks are in an SQL database.
pub(crate) fn set_fence(command: &mut Command, fence: Option<&SqlFence>) {
    match fence {
        Some(fence) => command.env(FENCE_SQL, fence.literal()),
        None => command.env_remove(FENCE_SQL),
    };
}

/// Replaces what was inherited.
fn set(command: &mut Command, name: &str, owner: &str, token: Option<&str>) {
    command.env(NAME, name).env(OWNER, owner);
    match token {
        Some(token) => command.env(TOKEN, token),
        None => command.env_remove(TOKEN),
    };
}
