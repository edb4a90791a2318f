//! Looks whether locks can live on a server, when connecting: what is wrong is told then, in words, not when a lock is lost.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::config::Durability;
use super::names;
use super::node::Node;
use super::notify::Wanted;
use super::request::{Failed, Request, Site};
use super::{RedisStore, error, parsed, replicas, script};
use crate::backend::{Backend, Finding, Kind, Notifier};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{self, log};

/// What is listened to here is named after it. It holds nothing, and nothing is stored under it.
const SELF_TEST: &str = "lockkeeper:selftest";

/// The oldest server that has all we use.
const OLDEST: (u32, u32) = (6, 2);

/// The oldest that can wait for its disk.
const OLDEST_WITH_AOF: (u32, u32) = (7, 2);

/// The least that a user needs on one server, beside the keys of its names; the page on Redis tells the same.
const RULE: &str = "~redisson_* ~lockkeeper:* &redisson_* \
     +hello +select +info +time +role +eval +evalsha +script|load +subscribe +unsubscribe +publish +pubsub|numsub +scan +type +exists +get +getrange +set \
     +del +pttl +pexpire +incrby +decr +decrby +hset +hget +hgetall +hexists +hrandfield +hdel +rpush +lpos +lindex +lrange \
     +lrem +llen +lpush +ltrim +persist +zadd +zscore +zmscore +zcard +zcount +zrange +zrangebyscore +zrem +zremrangebyscore +zremrangebyrank";

/// What it needs beside that in a cluster; and there since 7.0.
const RULE_OF_CLUSTERS: &str = "+cluster|slots +pubsub|shardchannels +asking";
const RULE_OF_SHARDED: &str = "+ssubscribe +sunsubscribe +spublish +pubsub|shardnumsub";

/// A clock that is further off than this is worth a warning: tokens lean on it between servers.
const SKEW_MICROS: u64 = 5_000_000;

/// How long one server may take to be looked at.
const PATIENCE: Duration = Duration::from_secs(3);

impl RedisStore {
    /// Looks at version, role, eviction, rights and clock of every server, all of them; what cannot be looked at is the error. Replicas are asked
    /// only by a thorough look: they may not be reachable from here.
    pub(super) async fn self_test(&self, thorough: bool) -> Result<Vec<Finding>> {
        let (mut found, mut down) = (Vec::new(), Vec::new());
        let servers = self.transport.servers();
        for (tag, node) in &servers {
            let slow = || Err(Error::new(ErrorKind::Unavailable, format!("no answer within {PATIENCE:?}")));
            let of_this = runtime::within(PATIENCE, Box::pin(self.test_server(tag, node, thorough))).await.unwrap_or_else(slow);
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
        if !self.transport.config().push {
            found.push(Finding::doubtful("notifications", "turned off with ?push=off: waiters poll, about once a second"));
            return Ok(self.with_servers_that_are_down(found, &down));
        }
        // Waiters listen: the right to subscribe is one that no script can try.
        let shared = names::channel(&Name::new(SELF_TEST)?, Kind::Mutex, None);
        match self.transport.listen(Wanted::All(vec![shared]), &Notifier::default()).await {
            Err(error) if error.kind() == ErrorKind::Denied => found.push(self.lacking(&[error.to_string()])),
            Err(error) if error.kind() == ErrorKind::Unsupported => found.push(Finding::unfit("notifications", &error)),
            Err(error) if !down.is_empty() && error.is_retryable() => {}
            Err(error) => return Err(error),
            Ok(_shared) if self.capabilities().wakes_in_turn => found.extend(self.of_turns().await?),
            Ok(_shared) => {}
        }
        Ok(self.with_servers_that_are_down(found, &down))
    }

    /// The channels of our own, which a user may lack that has Redisson's: then a waiter has only those.
    async fn of_turns(&self) -> Result<Option<Finding>> {
        match self.transport.listen(Wanted::All(names::like_those_of_turns(SELF_TEST)), &Notifier::default()).await {
            Err(error) if error.kind() == ErrorKind::Denied => {
                let says = format!("every release of a mutex wakes all waiters, not one: allow this user &redisson_* ({error})");
                Ok(Some(Finding::doubtful("notifications", says)))
            }
            listening => listening.map(|_| None),
        }
    }

    fn with_servers_that_are_down(&self, mut found: Vec<Finding>, down: &[(Error, String)]) -> Vec<Finding> {
        let trouble =
            |(error, at): &(Error, String)| Finding::doubtful("server", format!("cannot be looked at now: {error}")).at(at);
        found.extend(down.iter().map(trouble));
        found
    }

    async fn test_server(&self, tag: &str, node: &Arc<Node>, thorough: bool) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        let settings = self.transport.config();
        let info = told(node, &redis::cmd("INFO")).await?;
        let of = |field: &str| info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim);
        found.push(match of("valkey_version").or_else(|| of("redis_version")) {
            Some(version) => of_version(version, settings.durability),
            None => Finding::doubtful("version", "the server does not tell its version; allow this user INFO to have it checked"),
        });
        if of("cluster_enabled") == Some("1") && !settings.is_cluster() {
            let at = node.address().map_or_else(|| settings.to_string(), ToString::to_string);
            let says = format!("{at} is a server of a cluster and has only a part of the names; write redis+cluster://{at}");
            found.push(unfit("cluster", ErrorKind::Config, says));
            return Ok(found);
        }
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
        found.extend(of_replicas(&info));
        let tried = node.send(&Request::script(&script::SELF_TEST, &keys, &arguments)).await.map_err(Failed::into_error)?;
        let (listeners, lines): (Vec<String>, Vec<String>) =
            parsed::<Vec<String>>(tried)?.into_iter().partition(|line| line.starts_with("PUBSUB:"));
        let (unknown, mut refused): (Vec<String>, Vec<String>) = lines.into_iter().partition(|line| line.contains("nknown"));
        if let Err(error) = self.try_waiting(node).await {
            refused.extend((error.kind() == ErrorKind::Denied).then(|| error.to_string()));
            found.extend((error.kind() == ErrorKind::Unsupported).then(|| Finding::unfit("commands", &error)));
        }
        found.push(if refused.is_empty() { Finding::fine("rights", "all that locks need") } else { self.lacking(&refused) });
        found.extend(of_unknown_commands(&unknown));
        found.extend(listeners.first().map(|why| not_counted(why)));
        let time = node.send(&Request::command(&redis::cmd("TIME"))).await.map_err(Failed::into_error)?;
        let (seconds, micros): (u64, u64) = parsed(time)?;
        let (server, ours) = (seconds * 1_000_000 + micros, self.transport.runtime().wall_micros());
        let skew = server.abs_diff(ours);
        found.push(if skew > SKEW_MICROS {
            log!(warn, seconds = skew / 1_000_000, "the clocks of redis and of this machine differ");
            let seconds = skew / 1_000_000;
            Finding::doubtful(
                "clock",
                format!("the server's and this machine's clocks differ by {seconds} s; see to their time service"),
            )
        } else {
            Finding::fine("clock", format!("{} ms from this machine's", skew / 1000))
        });
        if thorough {
            let ahead = i64::try_from(skew).unwrap_or(i64::MAX) * if server < ours { -1 } else { 1 };
            found.extend(replicas::clocks(settings, self.transport.runtime(), &info, ahead).await);
        }
        Ok(found)
    }

    /// The command by which replicas or the disk are waited for, with nothing to wait for.
    async fn try_waiting(&self, node: &Arc<Node>) -> Result<()> {
        let mut wait = match self.transport.config().durability {
            Durability::Master => return Ok(()),
            Durability::Replicas(..) => redis::cmd("WAIT"),
            Durability::Disk(_) => redis::cmd("WAITAOF").arg(0).to_owned(),
        };
        node.send(&Request::command(wait.arg(0).arg(1))).await.map(drop).map_err(Failed::into_error)
    }

    fn lacking(&self, refused: &[String]) -> Finding {
        let (config, refused) = (self.transport.config(), refused.join("; "));
        let mut rule = RULE.to_owned();
        if config.is_cluster() {
            rule = format!("{rule} {RULE_OF_CLUSTERS} (and since 7.0: {RULE_OF_SHARDED})");
        }
        match config.durability {
            Durability::Master => {}
            Durability::Replicas(..) => rule.push_str(" +wait"),
            Durability::Disk(_) => rule.push_str(" +waitaof"),
        }
        let says = format!(
            "this user lacks rights that locks need: {refused}; what it needs, with your names for app: ~app:* ~{{app:*}}* {rule}"
        );
        unfit("rights", ErrorKind::Denied, says)
    }
}

/// Text that a server may keep to itself: then there is none.
async fn told(node: &Arc<Node>, command: &redis::Cmd) -> Result<String> {
    match node.send(&Request::command(command)).await.map_err(Failed::into_error) {
        Ok(Value::VerbatimString { text, .. }) => Ok(text),
        Ok(Value::BulkString(text)) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Ok(other) => Err(error::unexpected(&other)),
        Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unsupported) => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn of_version(version: &str, durability: Durability) -> Finding {
    let this = numbers(version);
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

/// Commands that a script could not call because the server does not have them. Without `PUBLISH` waiters find out by polling.
fn of_unknown_commands(unknown: &[String]) -> Option<Finding> {
    let commands: Vec<&str> = unknown.iter().filter_map(|line| line.split(':').next()).collect();
    match commands[..] {
        [] => None,
        ["PUBLISH"] => Some(Finding::doubtful("notifications", "the server does not have the command PUBLISH: waiters poll")),
        _ => Some(Finding::unfit("commands", &error::lacking_command(&commands.join(", ")))),
    }
}

/// Locks work without it; so it is told, and nothing more.
fn not_counted(why: &str) -> Finding {
    let says = format!(
        "who listens is not known, so a release costs requests that it could save, and clients of Redisson may have fewer turns: allow this user \
         +pubsub|numsub ({why})"
    );
    Finding::doubtful("notifications", says)
}

/// Before 7.0 `min-replicas-to-write` does not hold for what scripts write.
fn of_replicas(info: &str) -> Option<Finding> {
    // Told only where it is set.
    let is_set = info.lines().any(|line| line.starts_with("min_slaves_good_slaves:"));
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"))?;
    let says = "Redis before 7.0 ignores min-replicas-to-write for scripts, and locks are taken by scripts; ask for replicas with ?replicas=N";
    (is_set && numbers(version) < (7, 0)).then(|| Finding::doubtful("replicas", says))
}

fn numbers(version: &str) -> (u32, u32) {
    let mut numbers = version.trim().split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn unfit(about: &'static str, kind: ErrorKind, says: impl Into<String>) -> Finding {
    Finding::unfit(about, &Error::new(kind, says))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_tells_the_same_rule() {
        let page = include_str!("../../../../../docs/backends/redis.md");
        for rule in [RULE, RULE_OF_CLUSTERS, RULE_OF_SHARDED] {
            assert!(page.contains(rule), "{rule}");
        }
    }

    #[test]
    fn the_rule_allows_every_command_that_the_self_test_tries_and_no_category() {
        let script = include_str!("scripts/self_test.lua");
        // `{'PUBSUB', 'NUMSUB', channel}` is the right `pubsub|numsub`.
        let of_call = |call: &str| {
            let mut words = call.split('\'').step_by(2).take(2).map(str::to_lowercase);
            let command = words.next()?;
            let part = words.next().filter(|_| command == "pubsub");
            Some(part.map_or(command.clone(), |part| format!("{command}|{part}")))
        };
        let tried: Vec<String> = script.split("{'").skip(1).filter_map(of_call).collect();
        assert!(tried.len() > 25, "{tried:?}");
        let allowed: Vec<&str> = RULE.split(' ').collect();
        for command in tried {
            assert!(
                allowed.contains(&format!("+{command}").as_str()),
                "{command} is missing in the rule, and on the page on Redis"
            );
        }
        assert!(!RULE.contains("+@"), "a category allows more than locks need");
    }

    #[test]
    fn old_servers_ignore_min_replicas_for_scripts() {
        let info = |version: &str, more: &str| format!("redis_version:{version}\r\n{more}\r\n");
        assert!(of_replicas(&info("6.2.14", "min_slaves_good_slaves:1")).is_some());
        assert!(of_replicas(&info("6.2.14", "connected_slaves:1")).is_none());
        assert!(of_replicas(&info("7.0.15", "min_slaves_good_slaves:1")).is_none());
    }
}
