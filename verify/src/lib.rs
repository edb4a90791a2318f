//! Evidence for the promises of `docs/guarantees.md`, beyond tests written by hand.
//!
//! [`Referee`] judges a history of events. [`explore`] looks at every state of the [`models`], whose server is the library's own specification.
//! [`simulate`] runs real clients over a network and faults that a seed draws, and has the referee judge what happened.

mod explore;
mod history;
pub mod models;
mod referee;
mod sim;

pub use explore::{Model, Property, Report, explore, explore_while};
pub use history::{Event, Side, What, read};
pub use referee::{Limits, Promise, Referee, Verdict, Violation};
pub use sim::{Flaw, History, simulate};
