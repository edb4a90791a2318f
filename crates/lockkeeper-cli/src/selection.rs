//! Which names `list` and `watch` show: those that match, without unused semaphores.

use clap::Args;
use lockkeeper::backend::{Kind, Snapshot};
use lockkeeper::{Client, Error};

#[derive(Args, Clone, Debug)]
pub(crate) struct Selection {
    /// Also show semaphores that nobody holds a permit of; without it, only if PATTERN is the exact name
    #[arg(short, long)]
    all: bool,

    /// Only names that match this pattern: * is any text, ? any character
    #[arg(default_value = "*", hide_default_value = true)]
    pattern: String,
}

/// The names that were found, and how many unused semaphores were left out.
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

    /// The message if there is nothing to show.
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

/// A semaphore stays when its last permit is released, so that all users keep the same size. It is not held then.
fn is_unused(found: &Snapshot) -> bool {
    found.kind == Kind::Semaphore && found.holders.is_empty() && found.queue.is_empty()
}
