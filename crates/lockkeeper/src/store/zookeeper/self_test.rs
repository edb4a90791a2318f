//! What is wrong with an ensemble is told when connecting, in words, not when a lock is lost.

use std::time::Duration;

use zookeeper_client::{Acl, Acls, CreateMode, Error as Cause, Permission};

use super::config::Config;
use super::error;
use super::names::OWN;
use super::probe::{ANSWER, ask};
use super::session::{Link, Live};
use crate::backend::Finding;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Runtime};

/// A clock that differs by more than this is told: only what people are shown depends on it.
const CLOCK: Duration = Duration::from_secs(5);

const ONLY_READS: &str = "a server that is read-only has lost its ensemble: it grants no locks; start the other servers, or repair the network between them";

/// The folder of the URL is not there.
pub(super) fn no_folder(config: &Config) -> Error {
    let chroot = &config.chroot;
    let message =
        format!("there is no node {chroot} in {config}; create it (zkCli.sh: create {chroot}), or correct the path of the URL");
    Error::new(ErrorKind::Config, message)
}

/// Checks that the folder is there and can be written to.
pub(super) async fn check_folder(live: &Live, config: &Config) -> Result<()> {
    let found = live.client.check_stat("/").await.map_err(|cause| match cause {
        Cause::NoNode => no_folder(config),
        cause => error::of_read(cause),
    })?;
    if found.is_none() {
        return Err(no_folder(config));
    }
    let path = format!("/{OWN}");
    match live.client.create(&path, &[], &CreateMode::Persistent.with_acls(config.acls())).await {
        Ok(_) | Err(Cause::NodeExists) => Ok(()),
        Err(Cause::NoNode) => Err(no_folder(config)),
        Err(cause) => {
            let error = error::of_write(cause);
            Err(Error::new(error.kind(), format!("cannot create nodes in {config}: {error}")).with_source(error))
        }
    }
}

pub(super) async fn examine(config: Config, runtime: &Runtime) -> Vec<Finding> {
    let mut findings = vec![ensemble(&config).await];
    let opened = async {
        let link = Link::new(config, runtime)?;
        let live = link.live().await?;
        Ok::<_, Error>((link, live))
    };
    let (link, live) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            findings.push(Finding::unfit("server", &error));
            return findings;
        }
    };
    let config = &link.config;
    findings.push(session(&live, config, tick(config).await));
    match check_folder(&live, config).await {
        Ok(()) => findings.push(Finding::fine("folder", format!("{config} is there and can be written to"))),
        Err(error) => findings.push(Finding::unfit("folder", &error)),
    }
    findings.push(user(&live, config).await);
    findings.push(new_nodes(config));
    findings.push(folder_rights(&live, config).await);
    findings.push(clock(&live, runtime, config).await);
    findings
}

fn session(live: &Live, config: &Config, tick: Option<Duration>) -> Finding {
    let (asked, given) = (config.session, live.client.session_timeout());
    let says =
        format!("the server keeps a session for {given:?}; holds count as valid for {:?} after the last answer", live.lasts);
    // A follower reports sessions every half tick. That must fit into the quarter of a session in which holds do not count as valid.
    if let Some(tick) = tick.filter(|tick| given < *tick * 2) {
        let hint = "a hold may count as valid after the leader has ended its session; ask for a longer session, or set minSessionTimeout to 2 ticks";
        return Finding::doubtful("session", format!("{says}; that is less than 2 ticks of {tick:?}: {hint}"));
    }
    if asked == given {
        return Finding::fine("session", says);
    }
    let limits = "the server's limits are 2 and 20 ticks unless minSessionTimeout and maxSessionTimeout are set";
    Finding::doubtful("session", format!("{says}; {asked:?} were asked for; {limits}"))
}

/// The state of each server, as far as it tells.
async fn ensemble(config: &Config) -> Finding {
    let (mut said, mut silent) = (Vec::new(), 0);
    for host in &config.hosts {
        let asking = Box::pin(mode(config, host));
        match runtime::within(ANSWER, asking).await.flatten() {
            Some(mode) => said.push(format!("{host} is {mode}")),
            None => {
                silent += 1;
                said.push(format!("{host} does not tell"));
            }
        }
    }
    let reads = said.iter().any(|said| said.ends_with("read-only"));
    let says = said.join(", ");
    match silent {
        0 if !reads => Finding::fine("ensemble", says),
        0 => Finding::doubtful("ensemble", format!("{says}; {ONLY_READS}")),
        _ if reads => Finding::doubtful("ensemble", format!("{says}; {ONLY_READS}")),
        _ => {
            let hint = "is it down, is srvr missing in 4lw.commands.whitelist, or is it a server of another kind?";
            Finding::doubtful("ensemble", format!("{says}; {hint}"))
        }
    }
}

/// The servers' tick, if one of them tells it.
async fn tick(config: &Config) -> Option<Duration> {
    for host in &config.hosts {
        let said = runtime::within(ANSWER, Box::pin(ask(config, host, "conf"))).await.and_then(Result::ok).unwrap_or_default();
        let millis = said.lines().find_map(|line| line.strip_prefix("tickTime=")?.trim().parse().ok());
        if let Some(millis) = millis {
            return Some(Duration::from_millis(millis));
        }
    }
    None
}

/// What a server says it is: `standalone`, `leader`, `follower`, …
async fn mode(config: &Config, host: &str) -> Option<String> {
    let text = ask(config, host, "srvr").await.ok()?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned());
    let version = value("Zookeeper version:").and_then(|version| version.split(['-', ',']).next().map(str::to_owned));
    Some(format!("{} {}", version.unwrap_or_default(), value("Mode:")?).trim().to_owned())
}

/// Whom the server takes us for: a node that only its creator may use has that name in its ACL.
async fn user(live: &Live, config: &Config) -> Finding {
    let asked = match config.user_name() {
        Some(name) => format!("{name:?}"),
        None if config.has_certificate() => "client certificate".to_owned(),
        None => return Finding::fine("user", "none: the server takes this client for anyone"),
    };
    let path = format!("/{OWN}/probe-");
    let seen = async {
        let (_, number) = live.client.create(&path, &[], &CreateMode::EphemeralSequential.with_acls(Acls::creator_all())).await?;
        let probe = format!("{path}{number}");
        let found = live.client.get_acl(&probe).await;
        live.client.delete(&probe, None).await?;
        found.map(|(acls, _)| acls)
    };
    match seen.await {
        Ok(acls) => {
            let known = acls.iter().map(who).collect::<Vec<_>>().join(", ");
            Finding::fine("user", format!("{asked}; the server takes this client for {known}"))
        }
        Err(Cause::InvalidAcl) if !config.is_creator_only() => {
            Finding::fine("user", format!("{asked}; the server takes this client for anyone"))
        }
        Err(cause) => Finding::unfit("user", &error::of_write(cause)),
    }
}

/// Who may use the nodes that we make.
fn new_nodes(config: &Config) -> Finding {
    match (config.user_name(), config.is_creator_only()) {
        (Some(user), true) => Finding::fine("acl", format!("new nodes belong to {user:?} alone (acl=creator)")),
        (Some(user), false) => {
            let hint = "add acl=creator to the URL if other users must not touch them";
            Finding::doubtful("acl", format!("new nodes are open to everybody, although the URL has the user {user:?}; {hint}"))
        }
        (None, true) => Finding::fine("acl", "new nodes belong to the owner of the client certificate alone (acl=creator)"),
        (None, false) => Finding::fine("acl", "new nodes are open to everybody (acl=open)"),
    }
}

/// Who may make and delete nodes in the folder.
async fn folder_rights(live: &Live, config: &Config) -> Finding {
    let folder = if config.chroot.is_empty() { "/" } else { &config.chroot };
    let acls = match live.client.get_acl("/").await {
        Ok((acls, _)) => acls,
        Err(Cause::NoAuth) => return Finding::fine("folder rights", format!("the ACL of {folder} may not be read by this user")),
        Err(cause) => return Finding::doubtful("folder rights", error::of_read(cause).to_string()),
    };
    let listed = acls.iter().map(|acl| format!("{} {}", who(acl), acl.permission())).collect::<Vec<_>>().join(", ");
    let changes = Permission::CREATE | Permission::DELETE;
    let open = acls.iter().any(|acl| acl.scheme() == "world" && acl.permission() & changes != Permission::NONE);
    let says = format!("ACL of {folder}: {listed}");
    if open && config.is_creator_only() {
        let hint = format!("zkCli.sh: setAcl {folder} auth::cdrwa");
        return Finding::doubtful("folder rights", format!("{says}; everybody may make and delete nodes there ({hint})"));
    }
    Finding::fine("folder rights", says)
}

/// Whom an entry of an ACL is for. What follows the name of a digest is made of the password.
fn who(acl: &Acl) -> String {
    let id = if acl.scheme() == "digest" { acl.id().split(':').next().unwrap_or_default() } else { acl.id() };
    format!("{}:{id}", acl.scheme())
}

/// How far the server's clock is from ours.
async fn clock(live: &Live, runtime: &Runtime, config: &Config) -> Finding {
    let path = format!("/{OWN}/probe-");
    let options = CreateMode::EphemeralSequential.with_acls(config.acls());
    let (stat, number) = match live.client.create(&path, &[], &options).await {
        Ok(created) => created,
        Err(cause) => return Finding::unfit("rights", &error::of_write(cause)),
    };
    if let Err(cause) = live.client.delete(&format!("{path}{number}"), None).await {
        return Finding::unfit("rights", &error::of_write(cause));
    }
    let server = u64::try_from(stat.ctime).unwrap_or_default();
    let difference = Duration::from_millis(server.abs_diff(runtime.wall_micros() / 1_000));
    let says = format!("the server's clock differs by {difference:?}");
    if difference > CLOCK {
        return Finding::doubtful("clock", format!("{says}; locks do not depend on it, how long requests are remembered does"));
    }
    Finding::fine("clock", says)
}
