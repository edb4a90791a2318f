//! The names of keys and channels, byte for byte as Redisson writes them, and our own.

use super::slots;
use crate::backend::Kind;
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};

/// The name as it stands inside other names: in braces, unless it has one.
fn tagged(name: &Name) -> String {
    if name.as_str().contains('{') { name.to_string() } else { format!("{{{name}}}") }
}

/// The word of a name that is one word in braces: the names of what belongs to it are those of the word without braces.
pub(super) fn braced_word(name: &Name) -> Option<&str> {
    name.as_str().strip_prefix('{')?.strip_suffix('}').filter(|word| !word.is_empty() && !word.contains(['{', '}']))
}

/// The key that counts the tokens of all names.
pub(super) const TOKENS: &str = "lockkeeper:token";

/// The key that counts the tokens of one name, where they are shared with Redisson's fenced locks.
pub(super) fn tokens_of(name: &Name) -> String {
    format!("redisson_lock_token:{}", tagged(name))
}

/// The channel that notifies waiters. A fair waiter has one of its own.
pub(super) fn channel(name: &Name, kind: Kind, owner: Option<WireOwner>) -> String {
    let tagged = tagged(name);
    match (kind, owner) {
        (Kind::Mutex, None) => format!("redisson_lock__channel:{tagged}"),
        (Kind::Mutex, Some(owner)) => format!("redisson_lock__channel:{tagged}:{owner}"),
        (Kind::RwLock, _) => format!("redisson_rwlock:{tagged}"),
        (Kind::Semaphore | Kind::CountingSemaphore, _) => format!("redisson_sc:{tagged}"),
        // Redisson's latch puts braces around every name.
        (Kind::Latch, _) => format!("redisson_countdownlatch__channel__{{{name}}}"),
    }
}

/// Channels of our own, under a prefix that users of Redisson have allowed.
const TURN: &str = "redisson_lockkeeper_turn:";
const COUNT: &str = "redisson_lockkeeper_count:";
const EVERY: &str = "redisson_lockkeeper_every:";

/// The channels of a waiter that is woken in turn.
pub(super) struct TurnChannels {
    /// Redisson's: its releases are notified here.
    pub(super) shared: String,
    /// Where this client is notified when it is its turn.
    pub(super) own: String,
    /// To which nobody publishes: by it the server counts who listens in turn.
    pub(super) counted: String,
}

impl TurnChannels {
    pub(super) fn new(name: &Name, client: ClientId) -> Self {
        let tagged = tagged(name);
        Self {
            shared: channel(name, Kind::Mutex, None),
            own: format!("{TURN}{tagged}:{client}"),
            counted: format!("{COUNT}{tagged}"),
        }
    }
}

/// Channels that need the same rights as those of turns and belong to no client: a client that leaves them has nothing to take back.
pub(super) fn like_those_of_turns(word: &str) -> Vec<String> {
    vec![format!("{COUNT}{{{word}}}"), format!("{TURN}{{{word}}}:")]
}

/// Which mutex a channel belongs to that tells a client of its turn, and an owner of the client.
pub(super) fn turn_of(channel: &str) -> Option<(Name, WireOwner)> {
    let (tagged, client) = channel.strip_prefix(TURN)?.rsplit_once(':')?;
    Some((behind(tagged, "")?, format!("{client}:0").parse().ok()?))
}

/// Where releases that wake one client also notify those of ours that want every message.
pub(super) fn every(name: &Name) -> String {
    format!("{EVERY}{}", tagged(name))
}

/// Whether all keys and channels of a name lie in one slot of a cluster.
pub(super) fn share_a_slot(name: &Name, kind: Kind) -> bool {
    let (slot, tagged) = (slots::slot(name.as_str()), tagged(name));
    slots::slot(&format!("lockkeeper:kind:{tagged}")) == slot
        && slots::slot(&format!("{tagged}:timeout")) == slot
        && slots::slot(&channel(name, kind, None)) == slot
}

/// The key of the store's own id.
pub(super) const STORE: &str = "lockkeeper:store";

/// The key that says who a client is. A permit has no room for more of its client's id.
pub(super) fn card(folded: u64) -> String {
    format!("lockkeeper:client:{folded:016x}")
}

/// Keys that belong to a lock or to a client and are no lock themselves.
pub(super) fn is_reserved(key: &str) -> bool {
    is_own(key) || key.starts_with("redisson_") || key.contains(":rwlock_timeout:")
}

/// Keys that this store keeps beside locks. A lock must not have such a name: it would be taken for what belongs there, or the other way round.
pub(super) fn is_own(key: &str) -> bool {
    const WHOLE: [&str; 3] = ["run", "store", "token"];
    const BEGIN: [&str; 10] =
        ["client:", "fair:", "fence:", "kind:", "pending:", "request:", "selftest:", "told:", "token:", "waiting:"];
    key.strip_prefix("lockkeeper:")
        .is_some_and(|rest| WHOLE.contains(&rest) || BEGIN.iter().any(|prefix| rest.starts_with(prefix)))
}

/// The name that a key of ours or Redisson's with this prefix belongs to.
pub(super) fn behind(key: &str, prefix: &str) -> Option<Name> {
    let tagged = key.strip_prefix(prefix)?;
    let bare = tagged.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).filter(|bare| !bare.contains('{'));
    Name::new(bare.unwrap_or(tagged)).ok()
}

/// The ids of an owner's permits, 16 bytes each as Redisson's: its short form, and which permit it is. So the same owner asks for the same
/// permits again, and permits of one owner can be told to belong together.
pub(super) fn permit_ids(owner: WireOwner, count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|which| [&owner.short()[..], &which.to_be_bytes()[1..]].concat()).collect()
}

/// What permits of one owner have in common.
pub(super) fn permit_owner(id: &[u8]) -> &[u8] {
    id.get(..13).unwrap_or(id)
}

/// The folded client and the number of a permit's owner. Of Redisson's random ids they mean nothing.
pub(super) fn permit_parts(id: &str) -> Option<(u64, u64)> {
    let bits = if id.len() == 32 { u128::from_str_radix(id, 16).ok()? } else { return None };
    Some((u64::try_from(bits >> 64).ok()?, u64::try_from(bits >> 24 & 0xff_ffff_ffff).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_brace_rule() {
        let (plain, braced) = (Name::new("orders").unwrap(), Name::new("{orders}:42").unwrap());
        assert_eq!(channel(&plain, Kind::Mutex, None), "redisson_lock__channel:{orders}");
        assert_eq!(channel(&braced, Kind::Mutex, None), "redisson_lock__channel:{orders}:42");
        assert_eq!(channel(&braced, Kind::Latch, None), "redisson_countdownlatch__channel__{{orders}:42}");
        assert_eq!(behind("redisson_lock_queue:{orders}", "redisson_lock_queue:"), Some(plain));
        assert_eq!(behind("redisson_lock_queue:{orders}:42", "redisson_lock_queue:"), Some(braced));
    }

    #[test]
    fn the_channel_of_a_client_tells_the_mutex_and_the_client() {
        let client = ClientId::from_bits(7);
        for name in ["orders", "{orders}:42", "a{b}c"] {
            let name = Name::new(name).unwrap();
            let TurnChannels { own, shared, counted } = TurnChannels::new(&name, client);
            let owner = WireOwner { client, number: 0 };
            assert_eq!(turn_of(&own), Some((name.clone(), owner)));
            let others = [&shared, &counted, &every(&name), &channel(&name, Kind::Mutex, Some(owner))];
            assert!(others.into_iter().all(|other| turn_of(other).is_none()), "{name}");
        }
        assert!(like_those_of_turns("m").iter().all(|channel| turn_of(channel).is_none()));
    }

    #[test]
    fn one_word_in_braces_is_noticed() {
        let word = |name: &str| braced_word(&Name::new(name).unwrap()).map(str::to_owned);
        assert_eq!(word("{orders}").as_deref(), Some("orders"));
        for name in ["orders", "{orders}:42", "a{b}", "{a}{b}", "{}", "{", "{a{b}"] {
            assert_eq!(word(name), None, "{name}");
        }
    }

    #[test]
    fn only_keys_of_our_own_are_no_names_of_locks() {
        for own in [TOKENS, "lockkeeper:token:{x}", "lockkeeper:kind:{orders}", "lockkeeper:run"] {
            assert!(is_own(own) && is_reserved(own), "{own}");
        }
        for name in ["lockkeeper:nightly", "lockkeeper:tokens", "lockkeeper", "orders"] {
            assert!(!is_own(name) && !is_reserved(name), "{name}");
        }
    }

    #[test]
    fn braces_that_split_slots_are_noticed() {
        let shares = |name: &str, kind| share_a_slot(&Name::new(name).unwrap(), kind);
        for name in ["orders", "{orders}:42", "a{b}c"] {
            assert!(shares(name, Kind::Mutex), "{name}");
        }
        for name in ["{}orders", "a{b", "{", "a{}{b}", "a}b"] {
            assert!(!shares(name, Kind::Mutex), "{name}");
        }
        assert!(shares("orders", Kind::Latch) && !shares("{orders}:42", Kind::Latch));
    }

    #[test]
    fn permits_of_an_owner_are_distinct_and_belong_together() {
        let owner = |number| WireOwner { client: ClientId::from_bits(7 << 100), number };
        let ids = permit_ids(owner(1), 3);
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        assert!(ids.iter().all(|id| id.len() == 16 && permit_owner(id) == permit_owner(&ids[0])));
        assert_ne!(permit_owner(&permit_ids(owner(2), 1)[0]), permit_owner(&ids[0]));
        let text: String = ids[2].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(permit_parts(&text), Some((7 << 36, 1)));
        assert_eq!(permit_parts(&owner(1).to_string()), None);
    }
}
