//! What a contestant is told: a workload, and words like `tasks=64`.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::Till;

/// A workload and its numbers.
#[derive(Debug)]
pub struct Order {
    /// Which one.
    pub workload: String,
    values: BTreeMap<String, String>,
    till: OnceCell<Option<Arc<Till>>>,
}

impl Order {
    pub(crate) fn from_arguments() -> Self {
        let mut words = std::env::args().skip(1);
        let workload = words.next().expect("a workload");
        let values = words.map(|word| {
            let (key, value) = word.split_once('=').expect("key=value");
            (key.to_owned(), value.to_owned())
        });
        Self { workload, values: values.collect(), till: OnceCell::new() }
    }

    /// What was said of `key`.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The number under `key`; nothing said means one.
    ///
    /// # Panics
    ///
    /// If it is no number.
    #[must_use]
    pub fn number(&self, key: &str) -> usize {
        self.text(key).map_or(1, |text| text.parse().expect("a number"))
    }

    /// The number under `key`; nothing said means none.
    ///
    /// # Panics
    ///
    /// If it is no number.
    #[must_use]
    pub fn fraction(&self, key: &str) -> f64 {
        self.text(key).map_or(0.0, |text| text.parse().expect("a number"))
    }

    /// What is sold under the lock, with `sell=`: opened once.
    pub(crate) async fn till(&self) -> Option<Arc<Till>> {
        self.till.get_or_init(async || Till::open(self).await.map(Arc::new)).await.clone()
    }

    /// The servers.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.text("url").unwrap_or_default().split(',').map(str::to_owned).collect()
    }

    /// Names of locks, one per task: its own, or the one that all want.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let prefix = self.text("name").unwrap_or("bench");
        let own = self.workload == "cycle";
        (0..self.number("tasks")).map(|task| if own { format!("{prefix}:{task}") } else { prefix.to_owned() }).collect()
    }
}
