//! Folders in which nobody else makes nodes: there, an acquire need not list the folder.
//!
//! The number of a sequential node is how many nodes were created in its folder before. If a listing shows only our node with number `n`, it is deleted, and our
//! next node has number `n + 1`, then nobody else has created one in between: ours is the only one.
//!
//! That is true of one folder only. One that was removed and made again counts from zero. So the folder is watched: the server sends the event before the
//! answer to any later request of the session. A name that is acquired once is not watched: the watch is set when its second acquire went well.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use zookeeper_client::OneshotWatcher;

use super::names;
use super::session::{Link, Live, lock};
use crate::name::Name;

/// So many folders are known at most. A watch costs the server some memory until it removes the folder.
const MOST: usize = 1_000;

/// What is known of the folders of names, in one session.
#[derive(Debug, Default)]
pub(super) struct Folders(Mutex<HashMap<Name, Folder>>);

/// What is expected of a folder before a node is made in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Nothing: it has to be listed.
    Unknown,
    /// Nothing, but it is watched.
    Watched,
    /// To be empty: a listing is needed only if the number of the node is another one.
    Empty,
}

#[derive(Debug, Default)]
struct Folder {
    nodes: Nodes,
    /// The number was as expected when the folder was watched already.
    proven: bool,
    watch: Option<FolderWatch>,
}

/// The nodes that were seen last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Nodes {
    #[default]
    Others,
    /// Only the one of ours with this number.
    Ours(i64),
    /// None, and the next one has this number if nobody else makes one.
    Gone { next: i64 },
}

/// Ends when something has happened to the folder.
struct FolderWatch(Pin<Box<dyn Future<Output = ()> + Send>>);

impl FolderWatch {
    fn has_fired(&mut self) -> bool {
        self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }
}

impl fmt::Debug for FolderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FolderWatch")
    }
}

impl Folders {
    /// What to expect of the folder of a name, before anything is sent.
    pub(super) fn expected(&self, name: &Name) -> Expected {
        let mut folders = lock(&self.0);
        let Some(folder) = folders.get_mut(name) else { return Expected::Unknown };
        match &folder.watch {
            None => Expected::Unknown,
            Some(_) if folder.proven && matches!(folder.nodes, Nodes::Gone { .. }) => Expected::Empty,
            Some(_) => Expected::Watched,
        }
    }

    /// Whether our new node of this number is the only one in the folder.
    pub(super) fn is_alone(&self, name: &Name, number: i64) -> bool {
        let mut folders = lock(&self.0);
        let Some(folder) = folders.get_mut(name) else { return false };
        if folder.watch.as_mut().is_none_or(FolderWatch::has_fired) {
            folders.remove(name);
            return false;
        }
        let alone = folder.proven && folder.nodes == Nodes::Gone { next: number };
        if alone {
            folder.nodes = Nodes::Ours(number);
        }
        alone
    }

    /// A listing after our node of this number was made showed only that node, or others too. Whether the folder should be watched from now on.
    pub(super) fn listed(&self, name: &Name, number: i64, alone: bool, expected: Expected) -> bool {
        let mut folders = lock(&self.0);
        if !alone {
            if let Some(folder) = folders.get_mut(name) {
                (folder.nodes, folder.proven) = (Nodes::Others, false);
            }
            return false;
        }
        if !folders.contains_key(name) && folders.len() >= MOST {
            folders.retain(|_, folder| folder.watch.as_mut().is_some_and(|watch| !watch.has_fired()));
            if folders.len() >= MOST {
                return false;
            }
        }
        let folder = folders.entry(name.clone()).or_default();
        let followed = folder.nodes == Nodes::Gone { next: number };
        folder.nodes = Nodes::Ours(number);
        folder.proven = followed && expected != Expected::Unknown;
        followed && folder.watch.is_none()
    }

    /// Our node of this path was deleted.
    pub(super) fn deleted(&self, name: &Name, path: &str) {
        let Some(number) = number(path) else { return };
        if let Some(folder) = lock(&self.0).get_mut(name).filter(|folder| folder.nodes == Nodes::Ours(number)) {
            folder.nodes = Nodes::Gone { next: number + 1 };
        }
    }

    fn watched(&self, name: &Name, watcher: OneshotWatcher) {
        if let Some(folder) = lock(&self.0).get_mut(name) {
            folder.watch = Some(FolderWatch(Box::pin(async move {
                watcher.changed().await;
            })));
        }
    }
}

/// The number at the end of a node's path.
pub(super) fn number(path: &str) -> Option<i64> {
    names::digits(path)?.parse().ok()
}

/// Watches the folder of a name from now on.
pub(super) fn watch(link: &Arc<Link>, live: &Arc<Live>, name: &Name, folder: &str) {
    let (client, live, name, folder) = (live.client.clone(), Arc::downgrade(live), name.clone(), folder.to_owned());
    link.worker.spawn(async move {
        // Without a watch the folder is listed each time.
        if let Ok((Some(_), watcher)) = client.check_and_watch_stat(&folder).await
            && let Some(live) = live.upgrade()
        {
            live.folders.watched(&name, watcher);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name::new("m").expect("a good name")
    }

    /// One uncontended cycle, listed where that is expected; whether it was.
    fn cycle(folders: &Folders, number: i64) -> bool {
        let expected = folders.expected(&name());
        let alone = expected == Expected::Empty && folders.is_alone(&name(), number);
        if !alone && folders.listed(&name(), number, true, expected) {
            watch(folders, std::future::pending());
        }
        folders.deleted(&name(), &format!("/m/_c_x-lock-{number:010}"));
        !alone
    }

    fn watch(folders: &Folders, fires: impl Future<Output = ()> + Send + 'static) {
        lock(&folders.0).get_mut(&name()).expect("a folder").watch = Some(FolderWatch(Box::pin(fires)));
    }

    /// The first, the second, which is followed by the watch, and the third, before which the watch was there.
    fn known() -> Folders {
        let folders = Folders::default();
        assert!((0..3).all(|number| cycle(&folders, number)), "listed");
        assert_eq!(folders.expected(&name()), Expected::Empty);
        folders
    }

    #[test]
    fn a_folder_that_only_we_use_is_listed_three_times() {
        let folders = known();
        assert!((3..20).all(|number| !cycle(&folders, number)));
    }

    #[test]
    fn a_number_that_was_skipped_is_seen() {
        let folders = known();
        assert!(cycle(&folders, 4));
        // Whoever alternates with us is not expected to be away.
        assert!(cycle(&folders, 6) && cycle(&folders, 8));
        assert!(cycle(&folders, 9) && !cycle(&folders, 10));
    }

    #[test]
    fn nothing_is_expected_of_a_folder_whose_watch_has_fired() {
        let folders = known();
        watch(&folders, std::future::ready(()));
        assert!(!folders.is_alone(&name(), 3));
        assert_eq!(folders.expected(&name()), Expected::Unknown);
    }

    #[test]
    fn a_node_beside_one_of_ours_is_not_alone() {
        let folders = known();
        assert!(folders.is_alone(&name(), 3));
        // Not deleted yet: the next node has the next number all the same.
        assert_eq!(folders.expected(&name()), Expected::Watched);
        assert!(!folders.is_alone(&name(), 4));
        // A listing that showed both; the deletion of the older one says nothing about the younger one.
        assert!(!folders.listed(&name(), 4, false, Expected::Watched));
        folders.deleted(&name(), "/m/_c_x-lock-0000000003");
        assert!(!folders.is_alone(&name(), 4) && !folders.is_alone(&name(), 5));
    }

    #[test]
    fn the_table_does_not_grow_without_end() {
        let folders = Folders::default();
        for number in 0..3 * MOST {
            folders.listed(&Name::new(format!("m{number}")).expect("a good name"), 0, true, Expected::Unknown);
        }
        assert!(lock(&folders.0).len() <= MOST);
    }
}
