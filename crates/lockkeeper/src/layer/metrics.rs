//! The metrics of waits, holds, errors and connections. `docs/observability.md` and [`observability`](crate::observability) have the table.

use crate::backend::{Claim, Event, GaveUp, Kind, LossReason, Observer};
use crate::error::ErrorKind;
use crate::runtime::log;

/// The kinds that are waited for and held.
const KINDS: [Kind; 3] = [Kind::Mutex, Kind::RwLock, Kind::Semaphore];

/// What `outcome` says of a call that acquires.
const OUTCOMES: [&str; 6] = ["acquired", "busy", "timeout", "unavailable", "failed", "cancelled"];

/// What `reason` says of a loss.
const REASONS: [&str; 4] = ["gone", "expired", "closed", "max_hold"];

/// The kinds of errors that a request to a store can fail with.
const ERRORS: [ErrorKind; 10] = [
    ErrorKind::Unavailable,
    ErrorKind::Indeterminate,
    ErrorKind::Unreplicated,
    ErrorKind::Denied,
    ErrorKind::WrongKind,
    ErrorKind::ForeignKey,
    ErrorKind::InvalidName,
    ErrorKind::InvalidArgument,
    ErrorKind::Unsupported,
    ErrorKind::Protocol,
];

/// The metric with the kind as a literal label: a key of literals only is made once, any other at every use.
macro_rules! by_kind {
    ($kind:expr, |kind| metrics::$metric:ident!($name:literal, "kind" => kind $(, $label:literal => $value:tt)?)) => {
        match $kind {
            Kind::Mutex => metrics::$metric!($name, "kind" => "mutex" $(, $label => $value)?),
            Kind::RwLock => metrics::$metric!($name, "kind" => "rwlock" $(, $label => $value)?),
            Kind::Semaphore => metrics::$metric!($name, "kind" => "semaphore" $(, $label => $value)?),
            Kind::CountingSemaphore => metrics::$metric!($name, "kind" => "counting_semaphore" $(, $label => $value)?),
            Kind::Latch => metrics::$metric!($name, "kind" => "latch" $(, $label => $value)?),
        }
    };
}

/// Records the metrics of waits and holds, and warns of losses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metrics;

impl Metrics {
    /// Tells the installed `metrics` recorder all names, what they mean, and that everything is zero so far: a counter that never fired exists.
    pub fn register() {
        describe();
        for kind in KINDS {
            for outcome in OUTCOMES {
                let _ =
                    by_kind!(kind, |kind| metrics::histogram!("lockkeeper_wait_seconds", "kind" => kind, "outcome" => outcome));
            }
            let _ = by_kind!(kind, |kind| metrics::histogram!("lockkeeper_hold_seconds", "kind" => kind));
            by_kind!(kind, |kind| metrics::counter!("lockkeeper_handovers_total", "kind" => kind)).increment(0);
            by_kind!(kind, |kind| metrics::counter!("lockkeeper_renewals_failed_total", "kind" => kind)).increment(0);
            for reason in REASONS {
                by_kind!(kind, |kind| metrics::counter!("lockkeeper_losses_total", "kind" => kind, "reason" => reason))
                    .increment(0);
            }
            held(kind).increment(0.0);
            waiting(kind).increment(0.0);
        }
        for kind in ERRORS {
            metrics::counter!("lockkeeper_errors_total", "error" => label(kind)).increment(0);
        }
        metrics::gauge!("lockkeeper_clients").increment(0.0);
        metrics::gauge!("lockkeeper_clients_connected").increment(0.0);
    }
}

fn describe() {
    use metrics::Unit::{Count, Seconds};
    metrics::describe_histogram!("lockkeeper_wait_seconds", Seconds, "from the call to the grant, or to its end without one");
    metrics::describe_histogram!("lockkeeper_hold_seconds", Seconds, "from the grant to the release");
    metrics::describe_counter!("lockkeeper_handovers_total", Count, "grants handed over inside this process");
    metrics::describe_counter!("lockkeeper_renewals_failed_total", Count, "renewals without an answer, or refused");
    metrics::describe_counter!("lockkeeper_losses_total", Count, "holds lost");
    metrics::describe_counter!("lockkeeper_errors_total", Count, "requests that failed, also if they were sent again");
    metrics::describe_gauge!("lockkeeper_held", Count, "holds that this process has now");
    metrics::describe_gauge!("lockkeeper_waiting", Count, "calls of this process that wait now");
    metrics::describe_gauge!("lockkeeper_clients", Count, "clients of this process");
    metrics::describe_gauge!("lockkeeper_clients_connected", Count, "clients whose store answered the last request");
}

fn held(kind: Kind) -> metrics::Gauge {
    by_kind!(kind, |kind| metrics::gauge!("lockkeeper_held", "kind" => kind))
}

fn waiting(kind: Kind) -> metrics::Gauge {
    by_kind!(kind, |kind| metrics::gauge!("lockkeeper_waiting", "kind" => kind))
}

/// The kind of an error as a label.
const fn label(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Timeout => "timeout",
        ErrorKind::Lost => "lost",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Indeterminate => "indeterminate",
        ErrorKind::NotHeld => "not_held",
        ErrorKind::WrongKind => "wrong_kind",
        ErrorKind::ForeignKey => "foreign_key",
        ErrorKind::InvalidName => "invalid_name",
        ErrorKind::InvalidArgument => "invalid_argument",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Denied => "denied",
        ErrorKind::Config => "config",
        ErrorKind::Closed => "closed",
        ErrorKind::Deadlock => "deadlock",
        ErrorKind::Unreplicated => "unreplicated",
        ErrorKind::Protocol => "protocol",
    }
}

/// Contention is told from an outage, and both from a mistake.
const fn outcome(why: GaveUp) -> &'static str {
    match why {
        GaveUp::Busy => "busy",
        GaveUp::TimedOut | GaveUp::Failed(ErrorKind::Timeout) => "timeout",
        GaveUp::Failed(ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::Unreplicated) => "unavailable",
        GaveUp::Failed(_) => "failed",
        GaveUp::Cancelled => "cancelled",
    }
}

fn waited(claim: Claim, outcome: &'static str) -> metrics::Histogram {
    match outcome {
        // By far the most frequent, so its keys are literals.
        "acquired" => {
            by_kind!(claim.kind(), |kind| metrics::histogram!("lockkeeper_wait_seconds", "kind" => kind, "outcome" => "acquired"))
        }
        outcome => {
            by_kind!(claim.kind(), |kind| metrics::histogram!("lockkeeper_wait_seconds", "kind" => kind, "outcome" => outcome))
        }
    }
}

impl Observer for Metrics {
    fn notify(&self, event: &Event<'_>) {
        match *event {
            Event::Acquired { claim, waited: time, handed_over, .. } => {
                waited(claim, "acquired").record(time);
                held(claim.kind()).increment(1.0);
                if handed_over {
                    by_kind!(claim.kind(), |kind| metrics::counter!("lockkeeper_handovers_total", "kind" => kind)).increment(1);
                }
            }
            Event::WaitBegan { claim } => waiting(claim.kind()).increment(1.0),
            Event::WaitEnded { claim } => waiting(claim.kind()).decrement(1.0),
            Event::GaveUp { claim, waited: time, why, .. } => waited(claim, outcome(why)).record(time),
            Event::Released { claim, held: time, .. } => {
                held(claim.kind()).decrement(1.0);
                by_kind!(claim.kind(), |kind| metrics::histogram!("lockkeeper_hold_seconds", "kind" => kind)).record(time);
            }
            Event::RenewalFailed { name, claim, owner, error } => {
                log!(debug, %name, %owner, %error, "renewal failed");
                by_kind!(claim.kind(), |kind| metrics::counter!("lockkeeper_renewals_failed_total", "kind" => kind)).increment(1);
            }
            Event::RequestFailed { error } => {
                metrics::counter!("lockkeeper_errors_total", "error" => label(error.kind())).increment(1);
            }
            Event::Disconnected => metrics::gauge!("lockkeeper_clients_connected").decrement(1.0),
            Event::Reconnected => metrics::gauge!("lockkeeper_clients_connected").increment(1.0),
            Event::ClientStarted => {
                metrics::gauge!("lockkeeper_clients").increment(1.0);
                metrics::gauge!("lockkeeper_clients_connected").increment(1.0);
            }
            Event::ClientEnded { connected } => {
                metrics::gauge!("lockkeeper_clients").decrement(1.0);
                if connected {
                    metrics::gauge!("lockkeeper_clients_connected").decrement(1.0);
                }
            }
            Event::Lost { name, claim, owner, reason } => {
                log!(warn, %name, %owner, %reason, "lock lost");
                held(claim.kind()).decrement(1.0);
                let reason = match reason {
                    LossReason::Gone => "gone",
                    LossReason::Expired => "expired",
                    LossReason::Closed => "closed",
                    LossReason::MaxHold => "max_hold",
                };
                by_kind!(claim.kind(), |kind| metrics::counter!("lockkeeper_losses_total", "kind" => kind, "reason" => reason))
                    .increment(1);
            }
        }
    }
}
