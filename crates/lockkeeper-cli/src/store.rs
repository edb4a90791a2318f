//! Which store: the option, else the environment, else the config file, else the default.

use std::fmt;

use clap::Args;
use lockkeeper::{Builder, Client};

use crate::config;
use crate::exit::{Code, Failure};

/// The store if none is named.
const DEFAULT: &str = "sqlite:";

const VARIABLE: &str = "LOCKKEEPER_STORE";

#[derive(Args, Clone, Debug)]
pub(crate) struct StoreOption {
    /// Store URL: sqlite:FILE on this machine, redis://HOST across machines, config:FILE for a config file [default: $LOCKKEEPER_STORE, else the config file, else
    /// sqlite: in your state directory]
    // Global: it may also come before the verb.
    #[arg(short = 'S', long, value_name = "URL", global = true)]
    store: Option<String>,
}

/// A store URL and where it comes from. The URL may contain a password: it is never printed.
pub(crate) struct Chosen {
    pub(crate) url: String,
    pub(crate) by: String,
}

/// Whether a store, or one server of a majority, exists inside one process only. `url` is as the library prints it.
pub(crate) fn is_private(url: &str) -> bool {
    match url.strip_prefix("redlock:") {
        Some(servers) => servers.split(',').any(is_private),
        None => url.starts_with("memory:"),
    }
}

impl StoreOption {
    /// Connects to the store. A store inside one process is refused: every lockkeeper is a process, so it would exclude nobody.
    pub(crate) async fn connect(&self, builder: Builder) -> Result<Client, Failure> {
        let client = builder.connect(&self.find()?.url).await?;
        if is_private(client.url()) {
            let message = "memory: lives inside one process, so no other lockkeeper sees its locks; use sqlite: on one machine, or redis://HOST across machines";
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
        Ok(Chosen { url: DEFAULT.to_owned(), by: "default (no -S, no $LOCKKEEPER_STORE, no config file)".to_owned() })
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen").field("by", &self.by).finish_non_exhaustive()
    }
}
