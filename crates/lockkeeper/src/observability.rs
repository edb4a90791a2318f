//! What can be seen from outside: metrics, spans and log lines. `docs/observability.md` shows how to use them, and
//! `docs/guide/src/operating.md` in the guide has the alerts.
//!
//! Metrics go to the recorder of the [`metrics`](https://docs.rs/metrics) crate that the program installed before it made its first client. All are
//! registered, at zero, when a client is made. Names of locks are never labels: there may be millions.
//!
//! | metric | kind | labels | what |
//! |---|---|---|---|
//! | `lockkeeper_wait_seconds` | histogram | `kind`, `outcome` | from the call to the grant, or to its end without one |
//! | `lockkeeper_hold_seconds` | histogram | `kind` | from the grant to the release |
//! | `lockkeeper_held` | gauge | `kind` | holds that this process has now |
//! | `lockkeeper_waiting` | gauge | `kind` | calls of this process that wait now |
//! | `lockkeeper_handovers_total` | counter | `kind` | grants handed over inside this process |
//! | `lockkeeper_renewals_failed_total` | counter | `kind` | renewals without an answer, or refused |
//! | `lockkeeper_losses_total` | counter | `kind`, `reason` | holds lost |
//! | `lockkeeper_errors_total` | counter | `error` | requests to the store that failed, also if they were sent again |
//! | `lockkeeper_clients` | gauge | | clients of this process |
//! | `lockkeeper_clients_connected` | gauge | | clients whose store answered the last request |
//!
//! | label | values |
//! |---|---|
//! | `kind` | `mutex`, `rwlock`, `semaphore` |
//! | `outcome` | `acquired`; `busy` (a try, and others held it); `timeout` (others held it until the time limit); `unavailable` (the store had trouble); `failed` (any other error); `cancelled` (the call was dropped) |
//! | `reason` | `gone` (the store no longer knows the hold), `expired` (no renewal got through in time), `closed` (the client was closed), `max_hold` |
//! | `error` | the [`ErrorKind`] in lower case: `unavailable`, `indeterminate`, `unreplicated`, `denied`, `wrong_kind`, `foreign_key`, `invalid_name`, `invalid_argument`, `unsupported`, `protocol` |
//!
//! | span | a request that |
//! |---|---|
//! | `lockkeeper.acquire` | asks for a lock or permits |
//! | `lockkeeper.acquire_all` | asks for several locks in one step |
//! | `lockkeeper.release` | releases |
//! | `lockkeeper.renew` | renews holds, many in one request |
//! | `lockkeeper.count` | changes or reads a number: counting semaphore, latch |
//!
//! Spans of the [`tracing`](https://docs.rs/tracing) crate have the level `DEBUG` and the fields `name`, `owner` and `answer` (those of several locks:
//! their number). A lost lock, and a server that is lost and cannot be reached again, are log lines at `WARN`; its return is one at `INFO`.
//!
//! [`ErrorKind`]: crate::ErrorKind
