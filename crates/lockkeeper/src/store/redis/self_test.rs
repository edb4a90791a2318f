//! What is wrong with a server is told when connecting, in words, not when a lock is lost.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::config::Durability;
use super::node::Node;
use super::request::{Failed, Request, Site};
use super::{RedisStore, error, parsed, script};
use crate::backend::{Finding, Notifier};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime;

/// The oldest server that has all we use.
const OLDEST: (u32, u32) = (6, 2);

/// The oldest that can wait for its disk.
const OLDEST_WITH_AOF: (u32, u32) = (7, 2);

/// The least that a user needs, beside the keys of its names; the page on Redis tells the same.
const RULE: &str =
    "~redisson_* ~lockkeeper:* &redisson_* +@read +@write +@scripting +@pubsub +@connection +info +time +role +cluster|slots";

/// A clock that is further off than this is worth a warning: tokens lean on it between servers.
const SKEW_MICROS: u64 = 5_000_000;

/// How long one server may take to be looked at.
const PATIENCE: Duration = Duration::from_secs(3);

impl RedisStore {
    /// Looks at version, role, eviction, rights and clock of every server, all of them; what cannot be looked at is the error.
    pub(super) async fn self_test(&self) -> Result<Vec<Finding>> {
        let (mut found, mut down) = (Vec::new(), Vec::new());
        let servers = self.transport.servers();
        for (tag, node) in &servers {
            let slow = || Err(Error::new(ErrorKind::Unavailable, format!("no answer within {PATIENCE:?}")));
            let of_this = runtime::within(PATIENCE, Box::pin(self.test_server(tag, node))).await.unwrap_or_else(slow);
            let at = node.address().filter(|_| servers.len() > 1).map(ToString::to_string);
            match (of_this, at) {
                (Ok(of_this), None) => found.extend(of_this),
                (Ok(of_this), Some(at)) => found.extend(of_this.into_iter().map(|finding| finding.at(&at))),
                // The names of the others can be locked.
                (Err(error), Some(at)) if error.is_retryable() => down.push((error, at)),
                (Err(error), _) => return Err(error),
            }
        }
        if let (true, Some((error, _))) = (found.is_empty(), down.first()) {
            return Err(error.clone());
        }
        // Waiting is by push: the right to listen is one that no script can try.
        match self.transport.listen("redisson_lock__channel:{lockkeeper:selftest}".to_owned(), Notifier::default()).await {
            Err(error) if error.kind() == ErrorKind::Denied => found.push(lacking(&[error.to_string()])),
            Err(error) if !down.is_empty() && error.is_retryable() => {}
            listening => drop(listening?),
        }
        found.extend(
            down.iter().map(|(error, at)| Finding::doubtful("server", format!("cannot be looked at now: {error}")).at(at)),
        );
        Ok(found)
    }

    async fn test_server(&self, tag: &str, node: &Arc<Node>) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        let settings = self.transport.config();
        let info = told(node, &redis::cmd("INFO")).await?;
        let of = |field: &str| info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim);
        found.push(match of("valkey_version").or_else(|| of("redis_version")) {
            Some(version) => of_version(version, settings.durability),
            None => Finding::doubtful("version", "the server does not tell its version; allow this user INFO to have it checked"),
        });
        found.push(match of("role") {
            Some(role) if role != "master" => {
                unfit("role", ErrorKind::Unavailable, "the server is a replica and takes no locks; connect to its master")
            }
            Some(_) => Finding::fine("role", "master"),
            None => Finding::doubtful(
                "role",
                "the server does not tell whether it is a master; allow this user INFO to have it checked",
            ),
        });
        found.push(match of("maxmemory_policy") {
            None => Finding::doubtful("eviction", "the server does not tell its maxmemory-policy; allow this user INFO to have it checked"),
            Some("noeviction") => Finding::fine("eviction", "none: locks stay when memory is short"),
            Some(policy) if settings.accept_eviction => Finding::doubtful(
                "eviction",
                format!("the server drops locks when memory is short (maxmemory-policy {policy}); accepted with ?eviction=accept"),
            ),
            Some(policy) => unfit(
                "eviction",
                ErrorKind::Config,
                format!(
                    "the server evicts keys when memory is short (maxmemory-policy {policy}), and locks with them; set noeviction, or \
                     accept it with ?eviction=accept"
                ),
            ),
        });
        let key = format!("lockkeeper:selftest:{{{tag}}}");
        let (keys, arguments) = ([key.as_str()], |_: &Site<'_>| Vec::new());
        let tried = node.send(&Request::script(&script::SELF_TEST, &keys, &arguments)).await.map_err(Failed::into_error)?;
        let refused: Vec<String> = parsed(tried)?;
        found.push(if refused.is_empty() { Finding::fine("rights", "all that locks need") } else { lacking(&refused) });
        let time = node.send(&Request::command(&redis::cmd("TIME"))).await.map_err(Failed::into_error)?;
        let (seconds, micros): (u64, u64) = parsed(time)?;
        let skew = (seconds * 1_000_000 + micros).abs_diff(self.transport.runtime().wall_micros());
        found.push(if skew > SKEW_MICROS {
            tracing::warn!(seconds = skew / 1_000_000, "the clocks of redis and of this machine differ");
            let seconds = skew / 1_000_000;
            Finding::doubtful(
                "clock",
                format!("the server's and this machine's clocks differ by {seconds} s; see to their time service"),
            )
        } else {
            Finding::fine("clock", format!("{} ms from this machine's", skew / 1000))
        });
        Ok(found)
    }
}

/// Text that a server may keep to itself: then there is none.
async fn told(node: &Arc<Node>, command: &redis::Cmd) -> Result<String> {
    match node.send(&Request::command(command)).await.map_err(Failed::into_error) {
        Ok(Value::VerbatimString { text, .. }) => Ok(text),
        Ok(Value::BulkString(text)) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Ok(other) => Err(error::unexpected(&other)),
        Err(error) if error.kind() == ErrorKind::Denied => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn of_version(version: &str, durability: Durability) -> Finding {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let this = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (what, (major, minor)) = match durability {
        Durability::Disk(_) => ("?aof=required needs", OLDEST_WITH_AOF),
        Durability::Master | Durability::Replicas(..) => ("locks need", OLDEST),
    };
    if this < (major, minor) {
        let says = format!("the server is version {version}; {what} {major}.{minor} or later");
        return unfit("version", ErrorKind::Config, says);
    }
    Finding::fine("version", version)
}

fn lacking(refused: &[String]) -> Finding {
    let refused = refused.join("; ");
    let says = format!(
        "this user lacks rights that locks need: {refused}; what it needs, with your names for app: ~app:* ~{{app:*}}* {RULE}"
    );
    unfit("rights", ErrorKind::Denied, says)
}

fn unfit(about: &'static str, kind: ErrorKind, says: impl Into<String>) -> Finding {
    Finding::unfit(about, &Error::new(kind, says))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_tells_the_same_rule() {
        assert!(include_str!("../../../../../docs/backends/redis.md").contains(super::RULE));
    }
}
