//! Evidence for the promises of `docs/guarantees.md`, beyond tests written by hand.
//!
//! [`Referee`] judges a history of events. [`explore`] looks at every state of the [`models`], whose server is the library's own specification.
//! [`real`] records histories of real servers; [`rivals`] runs other libraries under the same faults. [`simulate`] runs real clients over a network and faults that a seed draws, and has the referee judge what happened.

mod explore;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod models;
pub mod real;
pub mod rivals;
mod sim;

pub use explore::{Model, Property, Report, explore, explore_while};
pub use lockkeeper::referee::{Event, Limits, Promise, Referee, Side, Verdict, Violation, What, read};
pub use sim::{Flaw, History, Part, Setting, WIDER, WIDEST, shrink, simulate, simulate_without};
