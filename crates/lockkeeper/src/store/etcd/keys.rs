//! The layout: which key stands for what. Pure.
//!
//! | key | what | whose layout |
//! |---|---|---|
//! | `NAME/<lease>`, `NAME/<lease>.<n>` | a holder or waiter of a mutex | `concurrency.Mutex`, `etcdctl lock` |
//! | `NAME/read/…`, `NAME/write/…` | a reader, a writer | `recipe.RWMutex` |
//! | `NAME/permit/<lease>.<n>` | a holder of permits, or a waiter | ours |
//! | `NAME/.record` | the number of a counter or latch, the size of a semaphore | ours |
//! | `__lockkeeper/…` | sessions, cards of clients, gates, remembered counting requests | ours |
//!
//! Keys of one name have the prefix `NAME/`. Go's and `etcdctl`'s locks count every key there, so nothing else of ours lies below it.

use serde::{Deserialize, Serialize};

use super::proto::KeyValue;
use crate::backend::Claim;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::store::queue::Want;

/// Where our own bookkeeping lies.
pub(super) const OURS: &str = "__lockkeeper/";

const RECORD: &str = ".record";

/// What we write into the key of a holder or waiter. Others ignore it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Value {
    pub(super) owner: String,
    /// How many permits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) take: Option<u32>,
    /// The place in the queue, if it is not that of the key: that of the writer beside which this owner reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) order: Option<i64>,
}

/// A holder or waiter, as its key says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) key: Vec<u8>,
    /// The revision at which the key was created: its number in the queue.
    pub(super) revision: i64,
    pub(super) order: i64,
    pub(super) want: Want,
    /// `None`: another program made it.
    pub(super) owner: Option<WireOwner>,
    pub(super) lease: i64,
}

/// What lies under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Node(Node),
    Record,
}

/// Refuses names that would mean something else to etcd's other users.
pub(super) fn check(name: &Name, slashes: bool) -> Result<()> {
    let refused = |message: String| Err(Error::new(ErrorKind::InvalidName, message));
    let text = name.as_str();
    if format!("{text}/").starts_with(OURS) {
        return refused(format!("{name:?} cannot be a lock on etcd: keys below {OURS} are lockkeeper's own"));
    }
    if text.contains('/') && !slashes {
        return refused(format!(
            "{name:?} contains a /: on etcd a lock \"a\" of Go or etcdctl waits for every key below a/; choose another name, or add \
             ?slashes=allow to the URL"
        ));
    }
    Ok(())
}

/// The prefix of all keys of a name.
pub(super) fn prefix(name: &Name) -> Vec<u8> {
    format!("{name}/").into_bytes()
}

/// The prefix of those that ask for this.
pub(super) fn prefix_of(name: &Name, want: Want) -> Vec<u8> {
    let folder = match want {
        Want::Mutex => "",
        Want::Read => "read/",
        Want::Write => "write/",
        Want::Permits { .. } => "permit/",
    };
    format!("{name}/{folder}").into_bytes()
}

/// The first key behind all that begin with `prefix`, which ends with a `/`.
pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// The key of an owner. Its client is named only if it is not the one that the session was opened for.
pub(super) fn node_key(name: &Name, claim: Claim, lease: i64, owner: WireOwner, of: ClientId) -> Vec<u8> {
    let mut key = prefix_of(name, Want::of(claim));
    let client = if owner.client == of { String::new() } else { format!("{}.", owner.client) };
    key.extend(format!("{lease:x}.{client}{}", owner.number).into_bytes());
    key
}

pub(super) fn record_key(name: &Name) -> Vec<u8> {
    format!("{name}/{RECORD}").into_bytes()
}

/// The number of the gate of a name. Names share gates, so that a session has no more of them than this, however many names it uses; a raised gate
/// only makes requests for the other names learn of it.
pub(super) fn gate_of(name: &Name) -> u8 {
    // FNV-1a.
    let hash = name.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.to_le_bytes().into_iter().fold(0, |bits, byte| bits ^ byte)
}

/// Its version is compared by every request that makes a node, so that what was given up cannot arrive later.
pub(super) fn gate_key(name: &Name, lease: i64) -> Vec<u8> {
    format!("{OURS}gate/{lease:x}/{:02x}", gate_of(name)).into_bytes()
}

/// Deleted when the session ends, and written to when somebody deletes holds of the session.
pub(super) fn session_key(lease: i64) -> Vec<u8> {
    format!("{OURS}session/{lease:x}").into_bytes()
}

/// Who the client of a session is.
pub(super) fn card_key(lease: i64) -> Vec<u8> {
    format!("{OURS}card/{lease:x}").into_bytes()
}

/// The answer to a counting request, for repetitions.
pub(super) fn done_key(lease: i64, id: WireOwner) -> Vec<u8> {
    format!("{OURS}done/{lease:x}/{id}").into_bytes()
}

pub(super) fn identity_key() -> Vec<u8> {
    format!("{OURS}identity").into_bytes()
}

/// What a key of this name stands for; `None`: something that is no part of the lock, such as the key of a lock `NAME/more`.
pub(super) fn parse(name: &Name, kv: &KeyValue) -> Option<Found> {
    let rest = kv.key.strip_prefix(prefix(name).as_slice())?;
    let rest = std::str::from_utf8(rest).ok()?;
    if rest == RECORD {
        return Some(Found::Record);
    }
    let value: Option<Value> = serde_json::from_slice(&kv.value).ok();
    let take = value.as_ref().and_then(|value| value.take);
    let (want, id) = match rest.split_once('/') {
        None => (Want::Mutex, rest),
        Some(("read", id)) => (Want::Read, id),
        Some(("write", id)) => (Want::Write, id),
        Some(("permit", id)) => (Want::Permits { take: take?, granted: false }, id),
        Some(_) => return None,
    };
    if id.contains('/') || id.is_empty() {
        return None;
    }
    let owner = value.as_ref().and_then(|value| value.owner.parse().ok());
    let order = value.and_then(|value| value.order).unwrap_or(kv.create_revision);
    Some(Found::Node(Node { key: kv.key.clone(), revision: kv.create_revision, order, want, owner, lease: kv.lease }))
}

/// The name that a key belongs to, if it looks like one of a lock: what is held or waits has a lease.
pub(super) fn name_of(kv: &KeyValue, slashes: bool) -> Option<Name> {
    let text = std::str::from_utf8(&kv.key).ok().filter(|text| !text.starts_with(OURS))?;
    let (folder, last) = text.rsplit_once('/')?;
    let lease = last.split('.').next().unwrap_or_default();
    let is_hex = !lease.is_empty() && lease.len() <= 16 && lease.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let of_rwlock = folder.strip_suffix("/read").or_else(|| folder.strip_suffix("/write"));
    let digits = last.bytes().all(|byte| byte.is_ascii_digit());
    let name = match of_rwlock.or_else(|| folder.strip_suffix("/permit")) {
        Some(name) if kv.lease != 0 && (is_hex || digits) => name,
        None if kv.lease != 0 && is_hex || last == RECORD => folder,
        _ => return None,
    };
    Name::new(name).ok().filter(|name| check(name, slashes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &str, value: &str) -> KeyValue {
        let (key, value) = (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        KeyValue { key, value, create_revision: 7, mod_revision: 7, version: 1, lease: 0x1b }
    }

    fn want(key: &str, value: &str) -> Option<Want> {
        match parse(&Name::new("a").unwrap(), &kv(key, value)) {
            Some(Found::Node(node)) => Some(node.want),
            Some(Found::Record) | None => None,
        }
    }

    #[test]
    fn keys_of_go_and_ours_are_understood_and_those_of_longer_names_are_not() {
        assert_eq!(want("a/1b", ""), Some(Want::Mutex));
        assert_eq!(want("a/1b.4", r#"{"owner":"x"}"#), Some(Want::Mutex));
        assert_eq!(want("a/read/1700000000000000000", ""), Some(Want::Read));
        assert_eq!(want("a/write/1b.4", ""), Some(Want::Write));
        assert_eq!(want("a/permit/1b.4", r#"{"owner":"x","take":3}"#), Some(Want::Permits { take: 3, granted: false }));
        for other in ["a/b/1b", "a/read/x/y", "a/permit/1b", "a/read/", "ab/1b", "a/.record"] {
            assert_eq!(want(other, ""), None, "{other}");
        }
        let owner = WireOwner { client: ClientId::from_bits(1), number: 4 };
        let name = Name::new("a").unwrap();
        assert_eq!(node_key(&name, Claim::Fair, 0x1b, owner, owner.client), b"a/1b.4");
        let key = node_key(&name, Claim::Read, 0x1b, owner, ClientId::from_bits(2));
        assert_eq!(key, format!("a/read/1b.{}.4", owner.client).into_bytes());
    }

    #[test]
    fn names_are_found_by_their_keys() {
        for (key, name) in [
            ("a/1b", Some("a")),
            ("a/1b.4", Some("a")),
            ("a/read/1700000000000000000", Some("a")),
            ("a/permit/1b.4", Some("a")),
            ("a/.record", Some("a")),
            ("a", None),
            ("registry/pods/x", None),
            ("__lockkeeper/session/1b", None),
            ("a/b/1b", None),
        ] {
            assert_eq!(name_of(&kv(key, ""), false).as_ref().map(Name::as_str), name, "{key}");
        }
        assert_eq!(name_of(&kv("a/b/1b", ""), true).unwrap().as_str(), "a/b");
        let without_lease = |key: &str| name_of(&KeyValue { lease: 0, ..kv(key, "") }, false);
        assert!(without_lease("users/42").is_none() && without_lease("a/.record").is_some());
        assert_eq!(end_of(b"a/"), b"a0");
    }

    #[test]
    fn many_names_share_few_gates() {
        let gate = |number: u32| gate_key(&Name::new(format!("order-{number}")).unwrap(), 0x1b);
        let gates: std::collections::HashSet<_> = (0..100_000).map(gate).collect();
        assert_eq!(gates.len(), 256);
        assert!(gates.iter().all(|gate| gate.starts_with(b"__lockkeeper/gate/1b/")));
    }

    #[test]
    fn names_that_others_would_read_differently_are_refused() {
        for (name, slashes, refused) in [
            ("a", false, false),
            ("a/b", false, true),
            ("a/b", true, false),
            ("__lockkeeper", true, true),
            ("__lockkeeper/x", true, true),
        ] {
            assert_eq!(check(&Name::new(name).unwrap(), slashes).is_err(), refused, "{name}");
        }
    }
}
