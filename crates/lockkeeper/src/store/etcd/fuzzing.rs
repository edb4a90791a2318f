//! A door to what is made of the keys and values of etcd.

use super::keys;
use super::proto::KeyValue;
use super::view::View;
use crate::backend::CountOutcome;
use crate::name::Name;

/// Some keys with values, as a range of etcd answers.
pub(crate) fn keys(name: &Name, pairs: &[(&[u8], &[u8])]) {
    let kv = |at: usize| {
        let (key, value) = (pairs[at].0.to_vec(), pairs[at].1.to_vec());
        let revision = i64::try_from(at).unwrap_or(0) + 1;
        KeyValue { key, value, create_revision: revision, mod_revision: revision, version: 1, lease: 0x1b }
    };
    let all: Vec<KeyValue> = (0..pairs.len()).map(kv).collect();
    for kv in &all {
        let _ = (keys::parse(name, kv), keys::name_of(kv, true), keys::name_of(kv, false));
        let _ = serde_json::from_slice::<crate::backend::Counted>(&kv.value).map(CountOutcome::Counted);
    }
    if let Ok(view) = View::of(name, all) {
        let _ = view.snapshot(name);
    }
}
