//! What is wrong with a server is told when connecting, in words, not when a lock is lost.

use std::sync::Arc;

use redis::Value;

use super::config::Durability;
use super::node::Node;
use super::request::{Failed, Sent, Site};
use super::{RedisStore, error, parsed, script};
use crate::backend::Ringer;
use crate::error::{Error, ErrorKind, Result};

/// The oldest server that has all we use.
const OLDEST: (u32, u32) = (6, 2);

/// The oldest that can wait for its disk.
const OLDEST_WITH_AOF: (u32, u32) = (7, 2);

/// A clock that is further off than this is worth a warning: tokens lean on it between servers.
const SKEW_MICROS: u64 = 5_000_000;

impl RedisStore {
    /// Looks at role, version, eviction, rights and clock of every server; the first thing that locks cannot live with is the error.
    pub(super) async fn self_test(&self) -> Result<()> {
        for (tag, node) in self.transport.servers() {
            self.test_server(&tag, &node).await?;
        }
        // Waiting is by push: the right to listen is one that no script can try.
        self.transport.listen("redisson_lock__channel:{lockkeeper:selftest}".to_owned(), Ringer::default()).await?;
        Ok(())
    }

    async fn test_server(&self, tag: &str, node: &Arc<Node>) -> Result<()> {
        let settings = self.transport.config();
        let info = told(node, &redis::cmd("INFO")).await?;
        let of = |field: &str| info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim);
        if let Some(version) = of("valkey_version").or_else(|| of("redis_version")) {
            let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
            let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            if found < OLDEST {
                return Err(config(format!("the server is version {version}; locks need {}.{} or later", OLDEST.0, OLDEST.1)));
            }
            if matches!(settings.durability, Durability::Disk(_)) && found < OLDEST_WITH_AOF {
                let (major, minor) = OLDEST_WITH_AOF;
                return Err(config(format!("the server is version {version}; ?aof=required needs {major}.{minor} or later")));
            }
        }
        if of("role").is_some_and(|role| role != "master") {
            return Err(Error::new(ErrorKind::Unavailable, "the server is a replica and takes no locks; connect to its master"));
        }
        if let Some(policy) = of("maxmemory_policy").filter(|policy| *policy != "noeviction")
            && !settings.accept_eviction
        {
            return Err(config(format!(
                "the server evicts keys when memory is short (maxmemory-policy {policy}), and locks with them; set noeviction, or accept it \
                 with ?eviction=accept"
            )));
        }
        let key = format!("lockkeeper:selftest:{{{tag}}}");
        let (keys, arguments) = ([key.as_str()], |_: &Site<'_>| Vec::new());
        let tried = node.send(&Sent::script(&script::SELF_TEST, &keys, &arguments)).await.map_err(Failed::into_error)?;
        let refused: Vec<String> = parsed(tried)?;
        if !refused.is_empty() {
            let message = format!("this user lacks rights that locks need: {}", refused.join("; "));
            return Err(Error::new(ErrorKind::Denied, message));
        }
        let time = node.send(&Sent::command(&redis::cmd("TIME"))).await.map_err(Failed::into_error)?;
        let (seconds, micros): (u64, u64) = parsed(time)?;
        let skew = (seconds * 1_000_000 + micros).abs_diff(self.transport.runtime().wall_micros());
        if skew > SKEW_MICROS {
            tracing::warn!(seconds = skew / 1_000_000, "the clocks of redis and of this machine differ");
        }
        Ok(())
    }
}

/// Text that a server may keep to itself: then there is none.
async fn told(node: &Arc<Node>, command: &redis::Cmd) -> Result<String> {
    match node.send(&Sent::command(command)).await.map_err(Failed::into_error) {
        Ok(Value::VerbatimString { text, .. }) => Ok(text),
        Ok(Value::BulkString(text)) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Ok(other) => Err(error::unexpected(&other)),
        Err(error) if error.kind() == ErrorKind::Denied => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn config(message: String) -> Error {
    Error::new(ErrorKind::Config, message)
}
