//! What is wrong with a cluster is told when connecting, and by `doctor`, in words.

use std::future::Future;
use std::time::Duration;

use super::connection::Driver;
use super::error::of_request;
use super::proto::{AlarmRequest, AlarmResponse, RangeRequest, StatusRequest, StatusResponse};
use super::request::{delete_range, range, txn, version_is};
use super::rpc::{ALARM, STATUS, send};
use super::{Config, Inner, keys};
use crate::backend::Finding;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::within;

/// How long a cluster may take to answer when a client connects.
const LIMIT: Duration = Duration::from_secs(5);

/// An old server has no watchers that we can number.
const OLDEST: (u32, u32) = (3, 4);

const NO_SPACE: i32 = 1;

/// The answer, if it comes in time.
pub(super) async fn bounded<T>(config: &Config, answer: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let late = || {
        let message = format!("{config} did not answer within {LIMIT:?}; does a majority of its members run?");
        Err(Error::new(ErrorKind::Unavailable, message))
    };
    match within(LIMIT, Box::pin(answer)).await {
        Some(Err(error)) if error.kind() == ErrorKind::Indeterminate => {
            Err(Error::new(ErrorKind::Unavailable, error.to_string()).with_source(error))
        }
        Some(answer) => answer,
        None => late(),
    }
}

impl Inner {
    /// Each member, the alarms, and what a session may be.
    pub(super) async fn findings(&self) -> Vec<Finding> {
        let config = &self.transport.config;
        let mut found = Vec::new();
        let (mut reached, mut leaders) = (0, Vec::new());
        for (number, member) in config.members.iter().enumerate() {
            match bounded(config, self.status(number)).await {
                Ok(status) => {
                    reached += 1;
                    found.push(of_member(member, &status));
                    leaders.push(status.leader);
                }
                Err(error) => found.push(Finding::doubtful("member", format!("{member}: {error}"))),
            }
        }
        leaders.retain(|leader| *leader != 0);
        leaders.dedup();
        found.push(match leaders.as_slice() {
            [_] => {
                Finding::fine("quorum", format!("{reached} of {} members reached, and they have a leader", config.members.len()))
            }
            [] => Finding::unfit("quorum", &Error::new(ErrorKind::Unavailable, "no member knows a leader; a majority must run")),
            _ => Finding::doubtful("quorum", "members name different leaders: an election, or two clusters in one URL"),
        });
        found.push(match bounded(config, self.alarms()).await {
            Ok(alarms) if alarms.is_empty() => Finding::fine("alarms", "none"),
            Ok(alarms) => Finding::unfit("alarms", &Error::new(ErrorKind::Unavailable, alarms)),
            Err(error) => Finding::doubtful("alarms", format!("cannot be asked for: {error}")),
        });
        found.push(match &config.user {
            Some((user, _)) => Finding::fine("user", format!("{user:?}, accepted")),
            None => Finding::fine("user", "none: the cluster lets everybody in"),
        });
        if let Some((user, _)) = &config.user {
            found.push(self.rights(user).await);
        }
        let session = async { self.session.fresh(&self.transport).await.map_err(super::Failed::into_error) };
        found.push(match bounded(config, session).await {
            Ok(lease) => Finding::fine("session", format!("granted, lasts {:?} without contact", lease.ttl)),
            Err(error) => Finding::unfit("session", &error),
        });
        found.push(Finding::fine("clock", "not used: sessions are counted on each side by its own clock"));
        found
    }

    /// What the roles of the user allow: our own bookkeeping, and all names below the prefix of the URL.
    async fn rights(&self, user: &str) -> Finding {
        let config = &self.transport.config;
        let prefix = config.namespace.shown();
        let own = format!("{prefix}{}", keys::OURS);
        let names = if prefix.is_empty() { "all names".to_owned() } else { format!("all names below {prefix:?}") };
        let bookkeeping = self.may_change(keys::OURS.as_bytes().to_vec(), keys::end_of(keys::OURS.as_bytes()));
        match bounded(config, bookkeeping).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Denied => {
                let hint = format!("etcdctl role grant-permission ROLE readwrite {own} --prefix");
                let message = format!("{user:?} may not change keys below {own:?}, where lockkeeper keeps its sessions; {hint}");
                return Finding::unfit("rights", &Error::new(ErrorKind::Denied, message));
            }
            Err(error) => return Finding::doubtful("rights", format!("cannot be asked for: {error}")),
        }
        // From the first key, without an end.
        match bounded(config, self.may_change(vec![0], vec![0])).await {
            Ok(()) => Finding::fine("rights", format!("{user:?} may use {names}")),
            Err(error) if error.kind() == ErrorKind::Denied => {
                let hint = "a lock that its roles do not allow fails with Denied; `etcdctl role get ROLE` shows what they allow";
                Finding::doubtful("rights", format!("{user:?} may change {own:?}, but not {names}; {hint}"))
            }
            Err(error) => Finding::doubtful("rights", format!("cannot be asked for: {error}")),
        }
    }

    /// Whether the user may read and change all keys of a range. Changes nothing: etcd checks the rights of both branches of a transaction, and no key
    /// has the version that this one asks for.
    async fn may_change(&self, key: Vec<u8>, range_end: Vec<u8>) -> Result<()> {
        let read = RangeRequest { key: key.clone(), range_end: range_end.clone(), limit: 1, ..RangeRequest::default() };
        let request = txn(vec![version_is(key.clone(), -1)], vec![range(read), delete_range(key, range_end)], Vec::new());
        self.transport.txn(request).await.map(drop).map_err(super::Failed::into_error)
    }

    async fn status(&self, member: usize) -> Result<StatusResponse> {
        let (channel, token) = self.transport.connect(member, Driver::Thread).await?;
        let answer = send(&channel, STATUS, StatusRequest {}, token.as_deref()).await;
        answer.map_err(|status| of_request(&status, &self.transport.config).into_error())
    }

    /// The alarms that are raised, in words; empty: none.
    async fn alarms(&self) -> Result<String> {
        let answer: AlarmResponse =
            self.transport.ask(ALARM, AlarmRequest { action: 0 }).await.map_err(super::Failed::into_error)?;
        let words = |alarm: i32| match alarm {
            NO_SPACE => "NOSPACE: the database is full; compact and defragment it, then `etcdctl alarm disarm`",
            _ => "CORRUPT: a member has other data than the rest; replace it",
        };
        Ok(answer
            .alarms
            .iter()
            .map(|raised| format!("member {:x}: {}", raised.member_id, words(raised.alarm)))
            .collect::<Vec<_>>()
            .join("; "))
    }
}

fn of_member(member: &str, status: &StatusResponse) -> Finding {
    let says = format!("{member}: etcd {}, database {} MiB", status.version, status.db_size >> 20);
    let mut numbers = status.version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < OLDEST {
        let message = format!("{says}; lockkeeper needs {}.{} or newer", OLDEST.0, OLDEST.1);
        return Finding::unfit("member", &Error::new(ErrorKind::Config, message));
    }
    match status.errors.as_slice() {
        [] if status.is_learner => Finding::doubtful("member", format!("{says}, a learner: it answers no requests of ours")),
        [] => Finding::fine("member", says),
        errors => Finding::doubtful("member", format!("{says}; it reports {}", errors.join(", "))),
    }
}
