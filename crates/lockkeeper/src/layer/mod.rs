//! Backends that wrap a backend, or several: they see every request and every event, and change what passes only if that is their purpose.

#[cfg(any(feature = "conformance", feature = "testing"))]
mod chaos;
mod forward;
mod metrics;
mod observe;
mod quorum;

#[cfg(any(feature = "conformance", feature = "testing"))]
pub use chaos::{Chaos, Fault, Faulty};
pub use forward::Layer;
pub use metrics::Metrics;
pub use observe::Observe;
pub use quorum::Quorum;
