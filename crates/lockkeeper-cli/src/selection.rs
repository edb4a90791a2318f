//! Which names `list` and `watch` show: what matches, without what lies there unused.

use clap::Args;
use lockkeeper::backend::{Kind, Snapshot};
use lockkeeper::{Client, Error};

#[derive(Args, Clone, Debug)]
pub(crate) struct Selection {
    /// Show also semaphores of which nobody has a permit; without it, one is shown only if PATTERN is its name
    #[arg(short, long)]
    all: bool,

    /// Only names that match: * is any text, ? any character
    #[arg(default_value = "*", hide_default_value = true)]
    pattern: String,
}

/// What was found, and how many semaphores that nobody uses were left out.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) found: Vec<Snapshot>,
    unused: usize,
}

impl Selection {
    pub(crate) async fn of(&self, client: &Client) -> Result<Selected, Error> {
        let mut found = client.list(&self.pattern).await?;
        let before = found.len();
        found.retain(|found| self.all || found.name.as_str() == self.pattern || !is_unused(found));
        Ok(Selected { unused: before - found.len(), found })
    }

    /// What is said where there is nothing to show.
    pub(crate) fn nothing(&self, selected: &Selected, client: &Client) -> String {
        let matching = if self.pattern == "*" { String::new() } else { format!(" that matches {:?}", self.pattern) };
        let unused = match selected.unused {
            0 => String::new(),
            1 => "; there is a semaphore that nobody uses, which --all shows".to_owned(),
            more => format!("; there are {more} semaphores that nobody uses, which --all shows"),
        };
        format!("nothing{matching} is held at {}{unused}", client.url())
    }
}

/// A semaphore stays when its last permit is given back, so that all keep agreeing on its size: that is not held.
fn is_unused(found: &Snapshot) -> bool {
    found.kind == Kind::Semaphore && found.holders.is_empty() && found.queue.is_empty()
}
