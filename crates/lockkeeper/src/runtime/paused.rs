//! Notices that a test has paused tokio's clock.

/// Whether the clock of the tokio runtime that this is called in is paused.
///
/// A client on the clock of the machine then misbehaves: its timers end at once and its leases do not end.
pub(crate) fn is_clock_paused() -> bool {
    if tokio::runtime::Handle::try_current().is_err() {
        return false;
    }
    let before = tokio::time::Instant::now();
    let real = std::time::Instant::now();
    // Tokio's clock is the machine's unless it is paused: it has moved when the machine's has.
    while std::time::Instant::now() == real {
        std::hint::spin_loop();
    }
    tokio::time::Instant::now() == before
}
