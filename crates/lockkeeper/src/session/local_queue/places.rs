//! A list that keeps the order of arrival and can be left anywhere in constant time.

const END: u32 = u32::MAX;

/// Where an element stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position(u32);

#[derive(Debug)]
struct Node<T> {
    item: Option<T>,
    before: u32,
    /// The next element, or the next free node.
    after: u32,
}

#[derive(Debug)]
pub(super) struct Places<T> {
    nodes: Vec<Node<T>>,
    first: u32,
    last: u32,
    free: u32,
    len: usize,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), first: END, last: END, free: END, len: 0 }
    }
}

impl<T> Places<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, item: T) -> Position {
        steps::count();
        let node = Node { item: Some(item), before: self.last, after: END };
        let at = if self.free == END {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let at = self.free;
            self.free = self.nodes[at as usize].after;
            self.nodes[at as usize] = node;
            at
        };
        match self.last {
            END => self.first = at,
            last => self.nodes[last as usize].after = at,
        }
        self.last = at;
        self.len += 1;
        Position(at)
    }

    pub(super) fn remove(&mut self, Position(at): Position) {
        steps::count();
        let Some(node) = self.nodes.get_mut(at as usize).filter(|node| node.item.is_some()) else { return };
        node.item = None;
        let (before, after) = (node.before, std::mem::replace(&mut node.after, self.free));
        self.free = at;
        self.len -= 1;
        match before {
            END => self.first = after,
            before => self.nodes[before as usize].after = after,
        }
        match after {
            END => self.last = before,
            after => self.nodes[after as usize].before = before,
        }
        if self.len == 0 {
            *self = Self::default();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let mut at = self.first;
        std::iter::from_fn(move || {
            steps::count();
            let node = self.nodes.get(at as usize)?;
            at = node.after;
            node.item.as_ref()
        })
    }
}

/// Counts how many elements were looked at, for tests: what it costs to leave must not depend on how many wait.
pub(super) mod steps {
    #[cfg(test)]
    std::thread_local! {
        static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[inline]
    pub(super) fn count() {
        #[cfg(test)]
        STEPS.set(STEPS.get() + 1);
    }

    /// How many steps this thread has made since it last asked.
    #[cfg(test)]
    pub(in super::super) fn taken() -> usize {
        STEPS.replace(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_keeps_the_order_of_arrival_whoever_leaves(steps in proptest::collection::vec((any::<bool>(), any::<usize>()), 0..60)) {
            let (mut places, mut expected, mut next) = (Places::default(), Vec::<(u32, Position)>::new(), 0);
            for (join, which) in steps {
                if join || expected.is_empty() {
                    expected.push((next, places.push(next)));
                    next += 1;
                } else {
                    let (_, place) = expected.remove(which % expected.len());
                    places.remove(place);
                }
                prop_assert_eq!(places.iter().copied().collect::<Vec<_>>(), expected.iter().map(|(n, _)| *n).collect::<Vec<_>>());
                prop_assert_eq!(places.is_empty(), expected.is_empty());
            }
        }
    }
}
