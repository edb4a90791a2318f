//! The rules of stores that keep an ordered list of nodes under each name, as ZooKeeper and etcd do: who holds the name, and whom a waiter
//! watches. Pure: what a node is made of, how it is written and when it ends is the store's.
//!
//! Nodes are ordered by a number that the store gives at creation (a sequence number, a create revision). A node that holds keeps holding
//! until it is removed, whatever is added behind it or removed around it: a client that was told so never has to ask again. That is what makes
//! these rules safe, and what the properties in `tests.rs` check first.

#[cfg(test)]
mod tests;

use crate::backend::{Claim, Kind};

/// What a node asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Want {
    /// All of a mutex.
    Mutex,
    /// A share of a read-write lock.
    Read,
    /// All of a read-write lock.
    Write,
    /// Some permits of a semaphore.
    Permits {
        /// How many.
        take: u32,
        /// The node itself says that they were given out. `false`: it follows from the order and the size.
        granted: bool,
    },
}

impl Want {
    /// What a claim asks for before anything was given out.
    pub(crate) const fn of(claim: Claim) -> Self {
        match claim {
            Claim::Mutex | Claim::Fair => Self::Mutex,
            Claim::Read => Self::Read,
            Claim::Write => Self::Write,
            Claim::Permits { take, .. } => Self::Permits { take, granted: false },
        }
    }

    /// The kind of synchronizer that it is a part of.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Mutex => Kind::Mutex,
            Self::Read | Self::Write => Kind::RwLock,
            Self::Permits { .. } => Kind::Semaphore,
        }
    }

    /// Whether two nodes of one owner are the same request. A writer may read beside its own hold, so these are two.
    fn is_same_side(self, other: Self) -> bool {
        matches!((self, other), (Self::Permits { .. }, Self::Permits { .. })) || self == other
    }

    const fn permits(self) -> u32 {
        if let Self::Permits { take, .. } = self { take } else { 0 }
    }

    const fn is_granted(self) -> bool {
        matches!(self, Self::Permits { granted: true, .. })
    }
}

/// One node of the list. `I` is whatever names its owner: nodes of one owner and one side are one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node<I> {
    /// Whose it is.
    pub(crate) id: I,
    /// Its place in the queue. A reader beside its own writer has the writer's.
    pub(crate) order: u64,
    pub(crate) want: Want,
}

impl<I> Node<I> {
    pub(crate) const fn new(id: I, order: u64, want: Want) -> Self {
        Self { id, order, want }
    }
}

/// The nodes under one name, in the order of the queue.
#[derive(Clone, Debug)]
pub(crate) struct Queue<I> {
    nodes: Vec<Node<I>>,
    /// The size of a semaphore.
    size: u32,
}

/// How a request stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing<'a, I> {
    /// It has no node.
    Absent,
    /// The name is in use as something else; the node must be removed.
    WrongKind(Kind),
    /// It holds the name.
    Holds(&'a Node<I>),
    /// It waits.
    Waits {
        node: &'a Node<I>,
        /// What must change before it can hold the name.
        blocker: Blocker<'a, I>,
        /// How many wait before it.
        ahead: u32,
    },
}

/// What a waiter watches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Blocker<'a, I> {
    /// The end of this node.
    Node(&'a Node<I>),
    /// Any permit that comes back, or another size: it is the first in the queue of a semaphore.
    Permits,
}

impl<I: PartialEq> Queue<I> {
    /// Sorts the nodes. The size is a semaphore's; others ignore it.
    ///
    /// What a store cannot read as a node (a foreign child of the folder) is not given to it.
    pub(crate) fn new(nodes: impl IntoIterator<Item = Node<I>>, size: u32) -> Self {
        let mut nodes: Vec<_> = nodes.into_iter().collect();
        // A reader beside its own writer has the writer's order and comes behind it.
        nodes.sort_by_key(|node| (node.order, node.want == Want::Read));
        Self { nodes, size }
    }

    /// What the name is in use as: the first node decides.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.nodes.first().map(|node| node.want.kind())
    }

    /// The nodes with whether they hold the name, in the order of the queue. Nodes of another kind than the first are left out: they will be
    /// removed by those who made them.
    pub(crate) fn standings(&self) -> impl Iterator<Item = (&Node<I>, bool)> {
        let mut used = sum(self.nodes.iter().filter(|node| node.want.is_granted()));
        let (mut first, mut somebody_waits, mut writer) = (true, false, None);
        self.nodes.iter().filter(|node| Some(node.want.kind()) == self.kind()).map(move |node| {
            let holds = match node.want {
                Want::Mutex | Want::Write => first,
                Want::Read => writer.is_none_or(|order| order >= node.order),
                Want::Permits { granted: true, .. } => true,
                Want::Permits { take, granted: false } => {
                    let fits = !somebody_waits && used.saturating_add(take) <= self.size;
                    used = if fits { used.saturating_add(take) } else { used };
                    fits
                }
            };
            first = false;
            somebody_waits |= !holds;
            if node.want == Want::Write {
                writer = writer.or(Some(node.order));
            }
            (node, holds)
        })
    }

    /// How the request of this owner stands. Of several nodes that it may have, the first counts; a store that can have several takes out all but
    /// one ([`take_out_others`](Self::take_out_others)).
    pub(crate) fn standing(&self, id: &I, want: Want) -> Standing<'_, I> {
        let is_ours = |node: &Node<I>| node.id == *id && node.want.is_same_side(want);
        let Some(kind) = self.kind() else { return Standing::Absent };
        if kind != want.kind() {
            return Standing::WrongKind(kind);
        }
        let (mut ahead, mut before, mut waiter, mut writer) = (0, None, None, None);
        for (node, holds) in self.standings() {
            if is_ours(node) {
                let blocker = match want {
                    Want::Read => writer,
                    Want::Mutex | Want::Write => before,
                    Want::Permits { .. } => waiter,
                };
                return match (holds, blocker) {
                    (true, _) => Standing::Holds(node),
                    (false, Some(blocker)) => Standing::Waits { node, blocker: Blocker::Node(blocker), ahead },
                    (false, None) => Standing::Waits { node, blocker: Blocker::Permits, ahead },
                };
            }
            ahead += u32::from(!holds);
            before = Some(node);
            waiter = if holds { waiter } else { Some(node) };
            writer = if node.want == Want::Write { Some(node) } else { writer };
        }
        Standing::Absent
    }

    /// Keeps only those nodes of this request that `is_own` says are its own, and takes the others out: an answer was lost, or a session ended,
    /// and the node was made again. The caller must delete them, or they block the name.
    pub(crate) fn take_out_others(&mut self, id: &I, want: Want, is_own: impl Fn(&I) -> bool) -> Vec<Node<I>> {
        let is_other = |node: &mut Node<I>| node.id == *id && node.want.is_same_side(want) && !is_own(&node.id);
        self.nodes.extract_if(.., is_other).collect()
    }

    /// The permits that are given out.
    pub(crate) fn used(&self) -> u32 {
        sum(self.standings().filter(|(_, holds)| *holds).map(|(node, _)| node))
    }
}

/// The permits of these nodes. Others write nodes too: what they add up to may be more than can be counted, and must not count as few.
fn sum<'a, I: 'a>(nodes: impl Iterator<Item = &'a Node<I>>) -> u32 {
    nodes.fold(0, |sum, node| sum.saturating_add(node.want.permits()))
}
