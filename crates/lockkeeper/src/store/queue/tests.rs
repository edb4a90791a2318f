//! Properties of the rules, on histories of nodes that come and go; and broken rules that they notice.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

/// A step of a history. Numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A new node at the end.
    Join(u8),
    /// A reader beside a writer that holds.
    JoinBeside(usize),
    /// A node goes: released, cancelled or expired.
    Leave(usize),
    /// What a waiter watches goes.
    LeaveWatched(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u8..3).prop_map(Step::Join),
        1 => any::<usize>().prop_map(Step::JoinBeside),
        3 => any::<usize>().prop_map(Step::Leave),
        1 => any::<usize>().prop_map(Step::LeaveWatched),
    ];
    prop::collection::vec(step, 1..60)
}

const SIZE: u32 = 4;

/// The claim of the `nth` sort of a kind.
fn want(kind: Kind, nth: u8) -> Want {
    match kind {
        Kind::RwLock if nth == 0 => Want::Write,
        Kind::RwLock => Want::Read,
        Kind::Semaphore => Want::Permits { take: u32::from(nth) + 1, granted: false },
        _ => Want::Mutex,
    }
}

/// Who holds, as the rules under test say: by the node's id.
type Rules = fn(&Queue<u64>, u64, Want) -> Option<bool>;

fn sound(queue: &Queue<u64>, id: u64, want: Want) -> Option<bool> {
    match queue.standing(&id, want) {
        Standing::Holds(_) => Some(true),
        Standing::Waits { .. } => Some(false),
        Standing::Absent | Standing::WrongKind(_) => None,
    }
}

/// A store with one name, and whom it has told that they hold it.
struct History {
    kind: Kind,
    nodes: Vec<Node<u64>>,
    told: BTreeMap<u64, Want>,
    granted_in_order: Vec<u64>,
    next: u64,
}

impl History {
    fn queue(&self) -> Queue<u64> {
        Queue::new(self.nodes.clone(), SIZE)
    }

    fn leave(&mut self, id: u64) {
        self.nodes.retain(|node| node.id != id);
        self.told.remove(&id);
    }

    fn step(&mut self, step: Step, rules: Rules) {
        match step {
            Step::Join(nth) => {
                self.nodes.push(Node::new(self.next, self.next, want(self.kind, nth)));
            }
            Step::JoinBeside(which) => {
                let writers: Vec<_> = self.nodes.iter().filter(|node| node.want == Want::Write).collect();
                let holding = |node: &&&Node<u64>| rules(&self.queue(), node.id, Want::Write) == Some(true);
                let Some(writer) = writers.get(which % writers.len().max(1)).filter(holding) else { return };
                self.nodes.push(Node::new(self.next, writer.order, Want::Read));
            }
            Step::Leave(which) => {
                let Some(node) = self.nodes.get(which % self.nodes.len().max(1)) else { return };
                self.leave(node.id);
            }
            Step::LeaveWatched(which) => {
                let queue = self.queue();
                let Some(node) = self.nodes.get(which % self.nodes.len().max(1)) else { return };
                if let Standing::Waits { blocker: Blocker::Node(watched), .. } = queue.standing(&node.id, node.want) {
                    self.leave(watched.id);
                }
            }
        }
        self.next += 1;
    }

    /// Asks for everybody, as clients do when they are woken, and tells them.
    fn tell(&mut self, rules: Rules) {
        let queue = self.queue();
        for node in &self.nodes {
            if rules(&queue, node.id, node.want) == Some(true) && self.told.insert(node.id, node.want).is_none() {
                self.granted_in_order.push(node.order);
            }
        }
    }

    fn excludes(&self) -> Result<(), TestCaseError> {
        let count = |want| self.told.values().filter(|told| **told == want).count();
        let permits: u32 = self.told.values().map(|want| want.permits()).sum();
        prop_assert!(count(Want::Mutex) <= 1 && count(Want::Write) <= 1 && permits <= SIZE, "{:?}", self.told);
        if let Some(writer) = self.nodes.iter().find(|node| self.told.get(&node.id) == Some(&Want::Write)) {
            let stranger = |node: &&Node<u64>| self.told.get(&node.id) == Some(&Want::Read) && node.order != writer.order;
            prop_assert!(!self.nodes.iter().any(|node| stranger(&node)), "a reader beside a writer of another: {:?}", self.nodes);
        }
        Ok(())
    }
}

/// Exclusion, stability, order and liveness over one history.
fn holds_for(kind: Kind, steps: &[Step], rules: Rules) -> Result<(), TestCaseError> {
    let mut history = History { kind, nodes: Vec::new(), told: BTreeMap::new(), granted_in_order: Vec::new(), next: 1 };
    for step in steps {
        history.step(*step, rules);
        history.tell(rules);
        history.excludes()?;
        let queue = history.queue();
        for (id, want) in &history.told {
            prop_assert_eq!(rules(&queue, *id, *want), Some(true), "{} was told that it holds, and does not any more", id);
        }
        let mut waiting = 0;
        for (node, holds) in queue.standings() {
            match queue.standing(&node.id, node.want) {
                Standing::Waits { blocker: Blocker::Node(blocker), ahead, .. } => {
                    prop_assert!(!holds && blocker.order < node.order && history.nodes.contains(blocker));
                    prop_assert_eq!(ahead, waiting);
                }
                Standing::Waits { blocker: Blocker::Permits, .. } => {
                    prop_assert!(node.want.kind() == Kind::Semaphore && queue.used() > 0, "nothing to watch: {:?}", node);
                }
                standing => prop_assert!(holds, "{:?}", standing),
            }
            waiting += u32::from(!holds);
        }
        prop_assert!(queue.nodes.is_empty() || queue.standings().any(|(_, holds)| holds), "nobody holds it");
    }
    // Readers and permits come in together; what is alone comes in by its number.
    if kind == Kind::Mutex {
        prop_assert!(history.granted_in_order.is_sorted(), "{:?}", history.granted_in_order);
    }
    Ok(())
}

fn prove(kind: Kind, rules: Rules) -> bool {
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(&steps(), |steps| holds_for(kind, &steps, rules)).is_ok()
}

#[test]
fn a_mutex_excludes_serves_in_order_and_every_waiter_has_a_node_to_watch() {
    assert!(prove(Kind::Mutex, sound));
}

#[test]
fn a_read_write_lock_excludes_and_every_waiter_has_a_node_to_watch() {
    assert!(prove(Kind::RwLock, sound));
}

#[test]
fn permits_never_exceed_the_size_and_the_first_waiter_waits_for_one() {
    assert!(prove(Kind::Semaphore, sound));
}

/// The properties notice rules that are wrong, each in another way.
#[test]
fn broken_rules_are_noticed() {
    /// Forgets that readers keep a writer out.
    fn writers_look_at_writers_only(queue: &Queue<u64>, id: u64, want: Want) -> Option<bool> {
        let node = queue.nodes.iter().find(|node| node.id == id)?;
        let earlier_writer = queue.nodes.iter().any(|other| other.want == Want::Write && other.order < node.order);
        if want == Want::Write { Some(!earlier_writer) } else { sound(queue, id, want) }
    }
    /// The last node holds the mutex: a newcomer takes it from the holder.
    fn the_last_holds(queue: &Queue<u64>, id: u64, _: Want) -> Option<bool> {
        queue.nodes.last().map(|node| node.id == id)
    }
    /// Each waiter compares its own permits with the size, and forgets what others have.
    fn permits_are_not_added_up(queue: &Queue<u64>, id: u64, want: Want) -> Option<bool> {
        queue.nodes.iter().any(|node| node.id == id).then_some(want.permits() <= SIZE)
    }
    assert!(!prove(Kind::RwLock, writers_look_at_writers_only));
    assert!(!prove(Kind::Mutex, the_last_holds));
    assert!(!prove(Kind::Semaphore, permits_are_not_added_up));
}

fn queue(nodes: &[(u64, Want)]) -> Queue<u64> {
    Queue::new(nodes.iter().enumerate().map(|(order, (id, want))| Node::new(*id, order as u64, *want)), SIZE)
}

/// An owner's node, and which one it is. Nodes of one owner are equal.
#[derive(Clone, Copy, Debug)]
struct Named(u64, char);

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

#[test]
fn of_two_nodes_of_one_owner_only_its_own_counts_and_the_other_is_taken_out() {
    let nodes = [(1, 'a'), (2, 'b'), (1, 'c')];
    let named = |want| nodes.iter().zip(0..).map(move |((id, name), order)| Node::new(Named(*id, *name), order, want));
    let ours = Named(1, '-');
    for (own, others, holds) in [('a', vec!['c'], true), ('c', vec!['a'], false), ('d', vec!['a', 'c'], false)] {
        let mut queue = Queue::new(named(Want::Mutex), 0);
        let out = queue.take_out_others(&ours, Want::Mutex, |id| id.1 == own);
        assert_eq!(out.iter().map(|node| node.id.1).collect::<Vec<_>>(), others, "{own}");
        match queue.standing(&ours, Want::Mutex) {
            Standing::Holds(node) => assert!(holds && node.id.1 == own),
            Standing::Waits { node, blocker: Blocker::Node(blocker), .. } => {
                assert!(!holds && node.id.1 == own && blocker.id.1 == 'b');
            }
            standing => assert!(own == 'd' && standing == Standing::Absent, "{own}: {standing:?}"),
        }
    }
    // The other side of a read-write lock is another request.
    let mut queue = Queue::new(named(Want::Write), 0);
    assert!(queue.take_out_others(&ours, Want::Read, |_| false).is_empty());
}

#[test]
fn the_first_node_decides_the_kind_and_others_do_not_count() {
    let queue = queue(&[(1, Want::Write), (2, Want::Mutex), (3, Want::Write)]);
    assert_eq!(queue.standing(&2, Want::Mutex), Standing::WrongKind(Kind::RwLock));
    assert!(
        matches!(queue.standing(&3, Want::Write), Standing::Waits { blocker: Blocker::Node(node), ahead: 0, .. } if node.id == 1)
    );
    assert_eq!(queue.standing(&4, Want::Read), Standing::Absent);
}

#[test]
fn a_writer_that_reads_has_two_nodes_and_its_reader_stays_first_when_it_goes() {
    let mut nodes = vec![Node::new(1, 5, Want::Write), Node::new(2, 6, Want::Write), Node::new(1, 5, Want::Read)];
    let both = Queue::new(nodes.clone(), 0);
    for want in [Want::Write, Want::Read] {
        assert!(matches!(both.standing(&1, want), Standing::Holds(node) if node.want == want));
        assert!(both.clone().take_out_others(&1, want, |_| true).is_empty());
    }
    nodes.remove(0);
    let downgraded = Queue::new(nodes, 0);
    assert!(matches!(downgraded.standing(&1, Want::Read), Standing::Holds(_)));
    assert!(matches!(downgraded.standing(&2, Want::Write), Standing::Waits { blocker: Blocker::Node(node), .. } if node.id == 1));
}

#[test]
fn what_was_given_out_stays_so_when_the_size_shrinks_and_a_large_request_keeps_its_turn() {
    let permits = |take, granted| Want::Permits { take, granted };
    let nodes = [(1, permits(2, true)), (2, permits(1, true)), (3, permits(3, false)), (4, permits(1, false))];
    let mut queue = queue(&nodes);
    assert_eq!(queue.used(), 3);
    assert!(matches!(queue.standing(&3, permits(3, false)), Standing::Waits { blocker: Blocker::Permits, ahead: 0, .. }));
    assert!(
        matches!(queue.standing(&4, permits(1, false)), Standing::Waits { blocker: Blocker::Node(node), ahead: 1, .. } if node.id == 3)
    );
    queue.size = 1;
    assert!(matches!(queue.standing(&1, permits(2, false)), Standing::Holds(_)));
    assert_eq!(queue.used(), 3);
}

#[test]
fn permits_that_add_up_to_more_than_can_be_counted_are_not_few() {
    let granted = |id| Node::new(id, id, Want::Permits { take: u32::MAX, granted: true });
    let asks = Node::new(3, 3, Want::Permits { take: 1, granted: false });
    let queue = Queue::new([granted(1), granted(2), asks], 3);
    assert_eq!(queue.used(), u32::MAX);
    assert_eq!(queue.standings().map(|(_, holds)| holds).collect::<Vec<_>>(), [true, true, false]);
}
