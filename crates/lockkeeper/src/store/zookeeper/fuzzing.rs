//! A door to what is made of the names of nodes.

use super::names;
use crate::store::queue::Queue;

/// The children of a folder, as a server lists them, and the folder itself.
pub(crate) fn children(listed: &[&str]) {
    for child in listed {
        let _ = (names::digits(child), names::name_of(child));
        if let Some(name) = names::name_of(child) {
            assert_eq!(names::name_of(&names::element(&name)), Some(name), "a name is read back");
        }
    }
    let queue = Queue::new(listed.iter().filter_map(|child| names::node(child)), 3);
    let _ = (queue.kind(), queue.used(), queue.standings().count());
}
