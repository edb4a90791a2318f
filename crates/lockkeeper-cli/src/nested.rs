//! What the commands around us hold, as our environment tells it: a lock that is asked for again inside itself.

use std::process::Command;

use lockkeeper::backend::{Claim, Snapshot};
use lockkeeper::{Client, Held};

use crate::exit::{Code, Failure};

pub(crate) const NAME: &str = "LOCKKEEPER_NAME";
pub(crate) const TOKEN: &str = "LOCKKEEPER_TOKEN";
pub(crate) const OWNER: &str = "LOCKKEEPER_OWNER";

/// All holds around us, outermost first: `[["NAME","OWNER"],…]`. [`NAME`] and [`OWNER`] tell the innermost only.
const AROUND: &str = "LOCKKEEPER_AROUND";

/// The holds around us.
fn around() -> Vec<(String, String)> {
    std::env::var(AROUND).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// The hold of a command around us on this name.
#[derive(Clone, Debug)]
pub(crate) struct Outer {
    pub(crate) owner: String,
}

/// The innermost hold around us on `name`, as the environment tells it; whether it is true, the store tells.
pub(crate) fn outer(name: &str) -> Option<Outer> {
    around().into_iter().rev().find(|(held, _)| held == name).map(|(_, owner)| Outer { owner })
}

impl Outer {
    /// Whether `claim` would wait for this hold, and so for itself.
    pub(crate) fn is_in_the_way(&self, found: &Snapshot, claim: Claim) -> bool {
        found.holders.iter().any(|holder| {
            holder.owner == self.owner
                && !matches!((holder.claim, claim), (Claim::Read, Claim::Read) | (Claim::Permits { .. }, _))
        })
    }

    /// Refuses what would wait for itself.
    pub(crate) async fn refuse_to_wait_for_itself(&self, client: &Client, name: &str, claim: Claim) -> Result<(), Failure> {
        let found = client.inspect(name).await?;
        if found.is_some_and(|found| self.is_in_the_way(&found, claim)) {
            return Err(Failure::new(
                Code::Usage,
                format!("a command around this one holds {name:?}, so it would wait for itself; take it again with --reenter"),
            ));
        }
        Ok(())
    }
}

/// Tells a command what is held for it, whatever was told before.
pub(crate) fn tell(command: &mut Command, held: &Held, token: Option<u64>) {
    let (name, owner) = (held.name().to_owned(), held.owner().to_string());
    command.env(NAME, &name).env(OWNER, &owner);
    match token {
        Some(token) => command.env(TOKEN, token.to_string()),
        None => command.env_remove(TOKEN),
    };
    let mut around = around();
    around.push((name, owner));
    command.env(AROUND, serde_json::to_string(&around).unwrap_or_default());
}
