//! Models whose server is the library's own specification, `lockkeeper::model::step`, and whose every state is looked at.
//!
//! Time is a number of ticks up to a horizon. A client or a message may stop at any moment: whatever is not chosen does not happen. So lost
//! messages, lost answers, crashes and pauses need no actions of their own.

mod failover;
mod fair;
mod hand_over;
mod mutex;
mod redlock;
mod server;

pub use failover::{Failover, FailoverFlaw};
pub use fair::{FairFlaw, FairQueue};
pub use hand_over::{HandOver, HandOverFlaw};
pub use mutex::{MutexFlaw, Retries};
pub use redlock::{RedLock, RedLockFlaw};
