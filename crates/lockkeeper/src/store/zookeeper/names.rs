//! Names of nodes: a lock's name as one path element, and Curator's names of the nodes below it.
//!
//! ```text
//! /orders                                  the name, a container
//! /orders/_c_<uuid>-lock-0000000007        a mutex
//! /orders/_c_<uuid>-__READ__0000000003     a reader; a writer has __WRIT__
//! /orders/locks/_c_<uuid>-lock-…           a waiter of a semaphore; /orders/leases/_c_<uuid>-lease-… is one permit
//! /orders/_lockkeeper                      the numbers of a semaphore, a counting semaphore or a latch
//! ```

use uuid::Uuid;

use crate::backend::Claim;
use crate::name::Name;
use crate::owner::WireOwner;
use crate::store::queue::{Node, Want};

/// The child with our own data: below a name its numbers, below the root what clients tell of themselves.
pub(super) const OWN: &str = "_lockkeeper";
/// The queue of a semaphore.
pub(super) const LOCKS: &str = "locks";
/// The permits of a semaphore that are given out.
pub(super) const LEASES: &str = "leases";

const LOCK: &str = "lock-";
const READ: &str = "__READ__";
const WRITE: &str = "__WRIT__";
const LEASE: &str = "lease-";

/// The name as one path element. What ZooKeeper refuses in a path, and what would be mistaken for something else, is written as `%XX`.
pub(super) fn element(name: &Name) -> String {
    let name = name.as_str();
    // These have a meaning of their own: relative paths, the server's own folder, and ours.
    let reserved = matches!(name, "." | ".." | "zookeeper" | OWN);
    let mut element = String::with_capacity(name.len() + 3);
    for (at, character) in name.char_indices() {
        // The server counts in UTF-16, and refuses the halves of which characters above U+FFFF are made.
        let refused = matches!(character, '/' | '%' | '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{10ffff}');
        if refused || (reserved && at == 0) {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                element.push_str(&format!("%{byte:02X}"));
            }
        } else {
            element.push(character);
        }
    }
    element
}

/// The name that a path element stands for; `None` if no name is written like this.
pub(super) fn name_of(text: &str) -> Option<Name> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    let name = Name::new(String::from_utf8(bytes).ok()?).ok()?;
    (element(&name) == text).then_some(name)
}

/// The id in the names of an owner's nodes: Curator's protected names have room for one UUID. Two owners of one client differ in it, because
/// multiplication by an odd number loses nothing; clients differ in their random upper half.
pub(super) fn id_of(owner: WireOwner) -> u128 {
    owner.client.bits() ^ u128::from(owner.number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Who a node belongs to, and its name. Nodes of one id are one owner's.
#[derive(Clone, Debug)]
pub(super) struct Child {
    id: Option<u128>,
    pub(super) name: String,
}

impl Child {
    /// What an owner's nodes compare equal to.
    pub(super) fn of(owner: WireOwner) -> Self {
        Self { id: Some(id_of(owner)), name: String::new() }
    }

    pub(super) fn id(&self) -> Option<u128> {
        self.id
    }
}

impl PartialEq for Child {
    fn eq(&self, other: &Self) -> bool {
        self.id.is_some() && self.id == other.id
    }
}

/// What the name of a new node begins with; the server adds the number.
pub(super) fn prefix(owner: WireOwner, claim: Claim) -> String {
    let base = match claim {
        Claim::Read => READ,
        Claim::Write => WRITE,
        _ => LOCK,
    };
    format!("_c_{}-{base}", Uuid::from_u128(id_of(owner)).hyphenated())
}

/// What the names of an owner's permits begin with.
pub(super) fn lease_prefix(owner: WireOwner) -> String {
    format!("_c_{}-{LEASE}", Uuid::from_u128(id_of(owner)).hyphenated())
}

/// The ten digits at the end of a node's path. The names of the folders before it may look like a node's.
pub(super) fn digits(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    [LOCK, READ, WRITE, LEASE].iter().find_map(|base| name.rfind(base).map(|at| &name[at + base.len()..]))
}

/// A child as a node of the queue; `None` if it is no lock's.
pub(super) fn node(name: &str) -> Option<Node<Child>> {
    let (want, base) = if name.contains(READ) {
        (Want::Read, READ)
    } else if name.contains(WRITE) {
        (Want::Write, WRITE)
    } else if name.contains(LEASE) {
        (Want::Permits { take: 1, granted: true }, LEASE)
    } else {
        (Want::Mutex, LOCK)
    };
    let number: i64 = name[name.rfind(base)? + base.len()..].parse().ok()?;
    // The server counts in 32 bits and goes on below zero: these come after the others, not before them.
    let order = if number < 0 { number.checked_add(1 << 32)? } else { number };
    let id = name.strip_prefix("_c_").and_then(|rest| Uuid::try_parse(rest.get(..36)?).ok());
    let child = Child { id: id.map(|id| id.as_u128()), name: name.to_owned() };
    Some(Node::new(child, u64::try_from(order).ok()?, want))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::ClientId;

    #[test]
    fn a_name_is_one_path_element_and_is_read_back() {
        for (name, expected) in [
            ("orders:42", "orders:42"),
            ("a/b", "a%2Fb"),
            ("..", "%2E."),
            (".", "%2E"),
            ("zookeeper", "%7Aookeeper"),
            ("_lockkeeper", "%5Flockkeeper"),
            ("100%", "100%25"),
            ("注文", "注文"),
            ("🔒", "%F0%9F%94%92"),
            ("\u{feff}\n", "\u{feff}%0A"),
        ] {
            let name = Name::new(name).unwrap();
            assert_eq!(element(&name), expected);
            assert_eq!(name_of(expected), Some(name));
        }
        for foreign in ["a%2fb", "%zz", "%", "%41", "%FF", ""] {
            assert_eq!(name_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn nodes_are_named_as_curator_names_them() {
        let owner = WireOwner { client: ClientId::from_bits(7), number: 0 };
        assert_eq!(prefix(owner, Claim::Fair), "_c_00000000-0000-0000-0000-000000000007-lock-");
        for (name, order, want) in [
            ("_c_00000000-0000-0000-0000-000000000007-lock-0000000003", 3, Want::Mutex),
            ("_c_00000000-0000-0000-0000-000000000007-__READ__0000000012", 12, Want::Read),
            ("_c_00000000-0000-0000-0000-000000000007-__WRIT__2147483647", 2_147_483_647, Want::Write),
            ("_c_00000000-0000-0000-0000-000000000007-__WRIT__-2147483648", 2_147_483_648, Want::Write),
            ("_c_00000000-0000-0000-0000-000000000007-lease-0000000001", 1, Want::Permits { take: 1, granted: true }),
        ] {
            let node = node(name).unwrap();
            assert_eq!((node.order, node.want, node.id == Child::of(owner)), (order, want, true), "{name}");
        }
        assert!(node("lock-0000000001").is_some_and(|node| node.id.id().is_none() && node.id != node.id.clone()));
        for foreign in ["config", "lock-", "lock-abc", "_lockkeeper", "leases", "locks"] {
            assert!(node(foreign).is_none(), "{foreign}");
        }
    }

    #[test]
    fn the_digits_are_those_of_the_last_element_of_a_path() {
        for folder in ["", "/orders", "/lock-a", "/block-1", "/a__READ__b", "/__WRIT__7", "/release-2"] {
            for node in ["lock-", "__READ__", "__WRIT__", "lease-"] {
                let path = format!("{folder}/_c_00000000-0000-0000-0000-000000000007-{node}0000000012");
                assert_eq!(digits(&path), Some("0000000012"), "{path}");
            }
        }
    }

    #[test]
    fn owners_of_one_client_have_different_ids() {
        let id = |number| id_of(WireOwner { client: ClientId::from_bits(9), number });
        let ids: std::collections::HashSet<_> = (0..10_000).map(id).collect();
        assert_eq!(ids.len(), 10_000);
    }
}
