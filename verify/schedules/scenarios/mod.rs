//! Scenarios for a scheduler that decides which thread runs next, on the library's own code.
//!
//! They are a module of the library, compiled by `verify/schedules` alone, because what they test is private. Each has a flaw that its schedules
//! must find.

pub(crate) mod explore;
mod listeners;
pub(crate) mod machine;
mod mutex;
pub(crate) mod notify;
mod shared;

pub use explore::{Found, Report, Scenario, explore};

use crate::store::redis::batch::schedules as batch;

/// A variant that is broken on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// The code as it is.
    #[default]
    None,
    /// A wake-up for a task that does not wait yet is forgotten.
    WakeUpsForgotten,
    /// The store looks whether a name is free, and grants it in a second step.
    TwoStepGrants,
    /// A registration that ends removes its key, which it found empty in an earlier step.
    TwoStepRemoval,
    /// An executor that is dropped leaves its tasks where they are.
    TasksLeaked,
}

/// All scenarios.
pub const SCENARIOS: [Scenario; 9] = [
    Scenario {
        name: "mutex, one client",
        what: "three threads lock and release; holds pass from guard to guard",
        run: mutex::one_client,
        flaw: Flaw::WakeUpsForgotten,
    },
    Scenario {
        name: "mutex, cancelled",
        what: "the same, and a waiter is dropped at any moment",
        run: mutex::cancelled,
        flaw: Flaw::WakeUpsForgotten,
    },
    Scenario {
        name: "mutex, stalls",
        what: "the same, and threads stand still for up to two seconds",
        run: mutex::stalls,
        flaw: Flaw::TwoStepGrants,
    },
    Scenario {
        name: "mutex, two clients",
        what: "two clients of one store, two threads each",
        run: mutex::two_clients,
        flaw: Flaw::TwoStepGrants,
    },
    Scenario {
        name: "readers and permits",
        what: "two readers and a writer, or three threads with two permits",
        run: shared::readers_and_permits,
        flaw: Flaw::TwoStepGrants,
    },
    Scenario {
        name: "notification",
        what: "it comes between the check and the wait",
        run: notify::between_check_and_wait,
        flaw: Flaw::WakeUpsForgotten,
    },
    Scenario {
        name: "subscription handed on",
        what: "shared by two waiters, the first of which leaves at any moment",
        run: notify::handed_on,
        flaw: Flaw::WakeUpsForgotten,
    },
    Scenario {
        name: "listeners",
        what: "registrations come and go while a name is notified",
        run: listeners::come_and_go,
        flaw: Flaw::TwoStepRemoval,
    },
    Scenario {
        name: "batch",
        what: "calls gather while the executor that sends their batch is dropped",
        run: batch::dropped_executor,
        flaw: Flaw::TasksLeaked,
    },
];
