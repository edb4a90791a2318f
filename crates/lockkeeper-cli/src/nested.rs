//! The locks that commands around this one hold, as the environment tells: a lock that is requested again inside itself.

use std::process::Command;

use lockkeeper::backend::{Claim, Snapshot};
use lockkeeper::fence::SqlFence;
use lockkeeper::{Client, Held};

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

/// The innermost hold on `name` around this process, according to the environment. The store tells whether it still exists.
pub(crate) fn outer(name: &str) -> Option<Outer> {
    around().into_iter().rev().filter(|hold| hold.first().is_some_and(|held| held == name)).find_map(|hold| {
        let mut rest = hold.into_iter().skip(1);
        Some(Outer { owner: rest.next()?, token: rest.next() })
    })
}

impl Outer {
    /// Whether `claim` would wait for this hold, and so for itself.
    pub(crate) fn is_in_the_way(&self, found: &Snapshot, claim: Claim) -> bool {
        found.holders.iter().any(|holder| {
            holder.owner == self.owner
                && !matches!((holder.claim, claim), (Claim::Read, Claim::Read) | (Claim::Permits { .. }, _))
        })
    }

    /// Refuses a lock that would wait for itself.
    pub(crate) async fn refuse_to_wait_for_itself(&self, client: &Client, name: &str, claim: Claim) -> Result<(), Failure> {
        let found = client.inspect(name).await?;
        if found.is_some_and(|found| self.is_in_the_way(&found, claim)) {
            return Err(Failure::new(
                Code::Usage,
                format!("a command around this one holds {name:?}, so this one would wait for itself; use --reenter"),
            ));
        }
        Ok(())
    }

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
