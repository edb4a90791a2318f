//! The list of all cases: the macro makes a test of each, the table lets a test see that none is forgotten.

use crate::backend::Capabilities;

/// What a case needs of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named as the capabilities are")]
pub enum Need {
    Mutex,
    Fair,
    RwLock,
    Semaphore,
    CountingSemaphore,
    Latch,
    Fencing,
    HandOver,
    AcquireAll,
    Push,
}

impl Need {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Mutex,
        Self::Fair,
        Self::RwLock,
        Self::Semaphore,
        Self::CountingSemaphore,
        Self::Latch,
        Self::Fencing,
        Self::HandOver,
        Self::AcquireAll,
        Self::Push,
    ];

    /// Whether a store with these capabilities has it.
    #[must_use]
    pub const fn is_met(self, by: &Capabilities) -> bool {
        match self {
            Self::Mutex => by.mutex,
            Self::Fair => by.fair,
            Self::RwLock => by.rwlock,
            Self::Semaphore => by.semaphore,
            Self::CountingSemaphore => by.counting_semaphore,
            Self::Latch => by.latch,
            Self::Fencing => by.fencing,
            Self::HandOver => by.hand_over,
            Self::AcquireAll => by.acquire_all,
            Self::Push => by.push,
        }
    }
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The file it is in.
    pub group: &'static str,
    /// What it shows.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Need],
}

/// Calls `$then!` with `$context` and all cases, by the file they are in, with what they need.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_conformance_case {
    ($then:path, $context:tt) => {
        $then! { $context
            mutex {
                excludes_a_second_owner [Mutex],
                wakes_a_waiter_when_released [Mutex, Push],
            }
            cancel {
                nothing_is_left_wherever_an_acquire_is_dropped [Mutex],
            }
        }
    };
}

macro_rules! table {
    (() $($group:ident { $($case:ident [$($need:ident),*],)* })*) => {
        /// All cases.
        pub const CASES: &[Case] = &[
            $($(Case { group: stringify!($group), name: stringify!($case), needs: &[$(Need::$need),*] },)*)*
        ];
    };
}

for_each_conformance_case!(table, ());

/// Makes one test of each case for a store, in a module per file: `conformance!(MyHarness);`.
#[macro_export]
macro_rules! conformance {
    ($harness:expr) => {
        $crate::for_each_conformance_case!($crate::conformance_tests, ($harness));
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    (($harness:expr) $($group:ident { $($case:ident [$($need:ident),*],)* })*) => {
        $(
            mod $group {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[test]
                    fn $case() {
                        $crate::conformance::run(
                            $harness,
                            concat!(stringify!($group), "::", stringify!($case)),
                            &[$($crate::conformance::Need::$need),*],
                            |world| Box::pin($crate::conformance::$group::$case(world)),
                        );
                    }
                )*
            }
        )*
    };
}
