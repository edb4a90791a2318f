//! A number of events still to come; at zero the latch is open, and no longer exists.

use serde::{Deserialize, Serialize};

use super::Wake;
use crate::backend::{Counted, LatchOp};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    to_go: u32,
}

impl State {
    pub(super) fn is_empty(&self) -> bool {
        self.to_go == 0
    }

    pub(super) fn value(&self) -> i64 {
        i64::from(self.to_go)
    }

    pub(super) fn apply(&mut self, op: LatchOp) -> (Counted, Wake) {
        let before = self.to_go;
        match op {
            LatchOp::Init(count) if before == 0 => self.to_go = count,
            LatchOp::Init(_) | LatchOp::Read => {}
            LatchOp::Down => self.to_go = before.saturating_sub(1),
            LatchOp::Remove => self.to_go = 0,
        }
        let opened = before > 0 && self.to_go == 0;
        (Counted { done: self.to_go != before, value: self.value() }, if opened { Wake::ALL } else { Wake::NOBODY })
    }
}
