//! Backends that wrap a backend: they see every request and every event, and change what passes only if that is their purpose.

#[cfg(feature = "conformance")]
mod chaos;
mod observe;

#[cfg(feature = "conformance")]
pub use chaos::{Chaos, Fault, Faulty};
pub use observe::{Observe, describe_metrics};
