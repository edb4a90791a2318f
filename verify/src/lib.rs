//! Evidence for the promises of `docs/guarantees.md`, beyond tests written by hand.
//!
//! [`Referee`] judges a history of events. A simulation, a run on real servers or another program can record one.

mod history;
mod referee;

pub use history::{Event, Side, What, read};
pub use referee::{Limits, Promise, Referee, Verdict, Violation};
