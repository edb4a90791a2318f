//! Maps by owner, written as a list of pairs: an owner is a structure, and text formats take only text as a key.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::owner::WireOwner;

pub(super) fn serialize<V: Serialize, S: Serializer>(map: &BTreeMap<WireOwner, V>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(map)
}

pub(super) fn deserialize<'de, V: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<WireOwner, V>, D::Error> {
    Ok(Vec::deserialize(deserializer)?.into_iter().collect())
}
