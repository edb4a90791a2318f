//! What a client still has in its tables. For simulations: when nobody holds or waits any more, nothing may be left there.

use super::{Session, lock};
use crate::runtime::sync::atomic::Ordering;

impl Session {
    /// What is left, in words; `None` if nothing is.
    pub(crate) fn remains(&self) -> Option<String> {
        let core = self.core();
        let (holds, undos) = (core.registry().count(), lock(&core.undos).len());
        let counted = [
            ("holds with the keeper", holds),
            ("calls under way", core.under_way.load(Ordering::SeqCst)),
            ("undos", core.undoing.load(Ordering::SeqCst) + undos),
            ("marks of calls", core.marks.count()),
        ];
        let left = counted.into_iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what}"));
        let left: Vec<String> = left.chain(core.queues.remains()).collect();
        (!left.is_empty()).then(|| left.join(", "))
    }
}
