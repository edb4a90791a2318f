//! The options of a Redis URL: what stands after the `?`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::config::{Durability, Tls, wrong};
use crate::error::Result;

/// How long replicas or the disk are waited for if the URL does not say.
const DURABLE_WITHIN: Duration = Duration::from_millis(500);

const ACCEPT_ANYBODY: &str = "accept-any-certificate";

/// The options of a URL, taken out as they are understood.
pub(super) struct Options(HashMap<String, String>);

impl Options {
    pub(super) fn of(url: &Url) -> Result<Self> {
        let mut options = HashMap::new();
        for (option, value) in url.query_pairs() {
            if options.insert(option.to_string(), value.into_owned()).is_some() {
                return Err(wrong(format!("the option {option:?} stands twice")));
            }
        }
        Ok(Self(options))
    }

    pub(super) fn take(&mut self, option: &str) -> Option<String> {
        self.0.remove(option)
    }

    /// An option that has one value.
    pub(super) fn only(&mut self, option: &str, value: &str, else_say: &str) -> Result<bool> {
        match self.take(option) {
            None => Ok(false),
            Some(said) if said == value => Ok(true),
            Some(_) => Err(wrong(else_say)),
        }
    }

    pub(super) fn tls(&mut self) -> Result<Tls> {
        let certificate = match (self.take("cert"), self.take("key")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(wrong("a client certificate needs both: ?cert=FILE&key=FILE")),
        };
        let unspelled = format!(
            "without checking the server's certificate anybody can be the server; if that is meant, spell it out: ?insecure={ACCEPT_ANYBODY}"
        );
        let accept_anybody = self.only("insecure", ACCEPT_ANYBODY, &unspelled)?;
        Ok(Tls { ca: self.take("ca").map(PathBuf::from), certificate, accept_anybody })
    }

    pub(super) fn sharded(&mut self) -> Result<Option<bool>> {
        match self.take("sharded").as_deref() {
            None | Some("auto") => Ok(None),
            Some("on") => Ok(Some(true)),
            Some("off") => Ok(Some(false)),
            Some(_) => Err(wrong("?sharded= is auto, on or off, as Redisson's shardedSubscriptionMode")),
        }
    }

    pub(super) fn push(&mut self) -> Result<bool> {
        match self.take("push").as_deref() {
            None | Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(_) => Err(wrong("?push= is on or off; with off waiters poll, and the server needs neither RESP3 nor SUBSCRIBE")),
        }
    }

    pub(super) fn durability(&mut self) -> Result<Durability> {
        let within = match self.take("durable_within") {
            None => DURABLE_WITHIN,
            Some(text) => text
                .strip_suffix("ms")
                .and_then(|number| number.parse().ok())
                .filter(|millis| (1..=60_000).contains(millis))
                .map(Duration::from_millis)
                .ok_or_else(|| wrong("?durable_within= is a number of milliseconds, 1ms to 60000ms"))?,
        };
        match (self.take("replicas"), self.take("aof").as_deref()) {
            (None, None) => Ok(Durability::Master),
            (Some(number), None) => match number.parse() {
                Ok(number @ 1..=100) => Ok(Durability::Replicas(number, within)),
                _ => Err(wrong("?replicas= is how many replicas must have a grant, 1 to 100")),
            },
            (None, Some("required")) => Ok(Durability::Disk(within)),
            (None, Some(_)) => Err(wrong("?aof= can only be required: ?aof=required")),
            (Some(_), Some(_)) => Err(wrong("?replicas= and ?aof= exclude each other")),
        }
    }

    pub(super) fn nothing_is_left(&self, scheme: &str) -> Result<()> {
        const KNOWN: &str = "push=off, eviction=accept, tokens=redisson, replicas=N, aof=required and durable_within=…ms; of rediss: ca, cert, key and \
                             insecure; of a cluster sharded; of sentinels sentinel_user and sentinel_password; of a socket db";
        match self.0.keys().min() {
            None => Ok(()),
            Some(option) => Err(wrong(format!("{scheme}: has no option {option:?}; there are {KNOWN}"))),
        }
    }
}
