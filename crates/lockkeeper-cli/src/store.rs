//! Which store: what was written, else what the environment says, else the config file, else the default.

use std::fmt;

use clap::Args;
use lockkeeper::{Builder, Client};

use crate::config;
use crate::exit::{Code, Failure};

/// Where the locks are when nobody says.
const DEFAULT: &str = "sqlite:";

const VARIABLE: &str = "LOCKKEEPER_STORE";

#[derive(Args, Clone, Debug)]
pub(crate) struct StoreOption {
    /// The store: sqlite:FILE on this machine, redis://HOST across machines, config:FILE for what a file names [default: $LOCKKEEPER_STORE, else the config file's, else
    /// sqlite: in your state directory]
    // Global: it may stand before the verb too, and is handed down to the verb, which reads it.
    #[arg(short = 'S', long, value_name = "URL", global = true)]
    store: Option<String>,
}

/// A store, and who named it. Its URL may hold a password: it is never printed.
pub(crate) struct Chosen {
    pub(crate) url: String,
    pub(crate) by: String,
}

/// Whether a store, by its URL as the library shows it, is seen by one process only: also one of the servers of a majority.
pub(crate) fn is_private(url: &str) -> bool {
    match url.strip_prefix("redlock:") {
        Some(servers) => servers.split(',').any(is_private),
        None => url.starts_with("memory:"),
    }
}

impl StoreOption {
    /// Connects to the store. Every lockkeeper is a process of its own: a store that others do not see has nothing to show, and excludes nobody.
    pub(crate) async fn connect(&self, builder: Builder) -> Result<Client, Failure> {
        let client = builder.connect(&self.find()?.url).await?;
        if is_private(client.url()) {
            let message = "memory: lives inside one process, so no other lockkeeper would see what is done there; use sqlite: on one machine, or \
                           redis://HOST across machines";
            return Err(Failure::new(Code::Usage, message));
        }
        Ok(client)
    }

    /// Finds the store.
    pub(crate) fn find(&self) -> Result<Chosen, Failure> {
        if let Some(url) = &self.store {
            return Ok(Chosen { url: url.clone(), by: "-S".to_owned() });
        }
        if let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            let url = value.into_string();
            let url = url.map_err(|_| Failure::new(Code::Usage, format!("{VARIABLE} is not UTF-8; set it to a store URL")))?;
            return Ok(Chosen { url, by: format!("${VARIABLE}") });
        }
        if let Some(file) = config::find()? {
            let by = file.display().to_string();
            let unnamed = || Failure::new(Code::Usage, format!("the config file {by}: its name is not UTF-8"));
            return Ok(Chosen { url: format!("config:{}", file.to_str().ok_or_else(unnamed)?), by });
        }
        Ok(Chosen { url: DEFAULT.to_owned(), by: "nobody, so it is the default".to_owned() })
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen").field("by", &self.by).finish_non_exhaustive()
    }
}
