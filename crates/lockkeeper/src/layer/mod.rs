//! Backends that wrap a backend, or several: they see every request and every event, and change what passes only if that is their purpose.

#[cfg(any(feature = "conformance", feature = "testing"))]
mod chaos;
mod metrics;
mod observe;
#[cfg(feature = "redlock")]
mod quorum;
#[cfg(feature = "referee")]
mod record;

pub use crate::backend::Layer;
#[cfg(any(feature = "conformance", feature = "testing"))]
pub use chaos::{Chaos, Fault, Faulty};
pub use metrics::Metrics;
pub use observe::Observe;
#[cfg(feature = "redlock")]
pub use quorum::Quorum;
#[cfg(feature = "referee")]
pub use record::{Answered, Record};
