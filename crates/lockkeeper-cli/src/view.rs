//! A lock as a row of a table, and as JSON with stable fields.

use std::time::Duration;

use clap::{Args, ValueEnum};
use lockkeeper::backend::{Claim, ClientCard, Holder, Kind, Snapshot};
use serde::Serialize;

use crate::table::{self, Narrowing, Yielding};
use crate::terminal::plain;

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputOption {
    /// Output format
    #[arg(short, long, value_name = "FORM", value_enum, default_value = "table")]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

/// One name as JSON. Unknown values are null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Seen {
    pub(crate) name: String,
    kind: &'static str,
    holders: Vec<SeenHolder>,
    queue: Vec<SeenWaiting>,
    permits: Option<u32>,
    free: Option<i64>,
    count: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct SeenHolder {
    owner: String,
    holds: String,
    host: Option<String>,
    pid: Option<u32>,
    program: Option<String>,
    user: Option<String>,
    token: Option<u64>,
    held_for: Option<f64>,
    lease_left: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct SeenWaiting {
    owner: String,
    wants: String,
    host: Option<String>,
    pid: Option<u32>,
    program: Option<String>,
    user: Option<String>,
    expires_in: Option<f64>,
}

impl From<&Snapshot> for Seen {
    fn from(found: &Snapshot) -> Self {
        let seconds = |time: Option<Duration>| time.map(|time| (time.as_secs_f64() * 1000.0).round() / 1000.0);
        let holders = found.holders.iter().map(|holder| SeenHolder {
            owner: holder.owner.clone(),
            holds: claim(holder.claim),
            host: holder.client.as_ref().map(|client| client.host.clone()),
            pid: holder.client.as_ref().map(|client| client.pid),
            program: holder.client.as_ref().map(|client| client.program.clone()),
            user: holder.client.as_ref().and_then(|client| client.user.clone()),
            token: holder.token,
            held_for: seconds(holder.held_for),
            lease_left: seconds(holder.lease_left),
        });
        let queue = found.queue.iter().map(|waiting| SeenWaiting {
            owner: waiting.owner.clone(),
            wants: claim(waiting.claim),
            host: waiting.client.as_ref().map(|client| client.host.clone()),
            pid: waiting.client.as_ref().map(|client| client.pid),
            program: waiting.client.as_ref().map(|client| client.program.clone()),
            user: waiting.client.as_ref().and_then(|client| client.user.clone()),
            expires_in: seconds(waiting.expires_in),
        });
        let semaphore = matches!(found.kind, Kind::Semaphore | Kind::CountingSemaphore);
        Self {
            name: found.name.to_string(),
            kind: kind(found.kind),
            holders: holders.collect(),
            queue: queue.collect(),
            permits: found.total,
            free: found.value.filter(|_| semaphore),
            count: found.value.filter(|_| !semaphore),
        }
    }
}

impl Seen {
    /// The same without the values that change with time.
    pub(crate) fn timeless(&self) -> Self {
        let mut still = self.clone();
        for holder in &mut still.holders {
            (holder.held_for, holder.lease_left) = (None, None);
        }
        for waiting in &mut still.queue {
            waiting.expires_in = None;
        }
        still
    }
}

pub(crate) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Mutex => "mutex",
        Kind::RwLock => "rwlock",
        Kind::Semaphore => "semaphore",
        Kind::CountingSemaphore => "counter",
        Kind::Latch => "latch",
        _ => "-",
    }
}

pub(crate) fn claim(claim: Claim) -> String {
    match claim {
        Claim::Mutex => "all".to_owned(),
        Claim::Fair => "all, in turn".to_owned(),
        Claim::Read => "read".to_owned(),
        Claim::Write => "write".to_owned(),
        Claim::Permits { take, of } => format!("{take} of {of}"),
        _ => "-".to_owned(),
    }
}

/// Who a holder is: host, process and program if known, else the owner id. In the words of the library's time-outs.
pub(crate) fn who(holder: &Holder) -> String {
    match program(holder.client.as_ref()) {
        Some(program) => format!("{} ({program})", place(holder)),
        None => place(holder),
    }
}

/// Where a holder is: host and process if known, else the owner id.
pub(crate) fn place(holder: &Holder) -> String {
    match &holder.client {
        Some(client) => format!("{} pid {}", plain(&client.host), client.pid),
        None => plain(&holder.owner),
    }
}

/// User, host and process of a client, if known.
pub(crate) fn process(client: Option<&ClientCard>) -> Option<String> {
    let client = client?;
    let user = client.user.as_ref().map(|user| format!("{}@", plain(user))).unwrap_or_default();
    Some(format!("{user}{} {}", plain(&client.host), client.pid))
}

/// The program of a client, if known.
pub(crate) fn program(client: Option<&ClientCard>) -> Option<String> {
    client.map(|client| plain(&client.program))
}

/// A time in two units at most.
pub(crate) fn ago(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0..10) => format!("{:.1}s", time.as_secs_f64()),
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (hours @ 0..48, minutes, _) => format!("{hours}h {minutes:02}m"),
        (hours, ..) => format!("{}d {}h", hours / 24, hours % 24),
    }
}

const HEAD: [&str; 8] = ["NAME", "KIND", "OWNER", "HOST AND PID", "PROGRAM", "HELD FOR", "LEASE LEFT", "WAITERS"];

/// On a narrow terminal the owner is shortened first, because host and process say more, and left out first.
const NARROWING: Narrowing = Narrowing { yielding: &YIELDING, dropped: &[2, 6, 4] };

const YIELDING: [Yielding; 5] = [
    Yielding { column: 2, least: 5, at_last: 5 },
    Yielding { column: 4, least: 7, at_last: 4 },
    Yielding { column: 1, least: 17, at_last: 9 },
    Yielding { column: 3, least: 16, at_last: 10 },
    Yielding { column: 0, least: 14, at_last: 8 },
];

/// The table of locks, one row per holder, no wider than `room` if possible.
pub(crate) fn table(found: &[Snapshot], room: Option<usize>) -> Vec<String> {
    let unknown = || "-".to_owned();
    let mut rows = vec![HEAD.map(str::to_owned)];
    for found in found {
        let waiters = if found.queue.is_empty() { unknown() } else { found.queue.len().to_string() };
        let name = plain(found.name.as_str());
        let number = match (found.value, found.total) {
            (Some(free), Some(total)) => format!(" {free} of {total} free"),
            (Some(value), None) => format!(" {value}"),
            _ => String::new(),
        };
        let kind = format!("{}{number}", kind(found.kind));
        if found.holders.is_empty() {
            rows.push([name, kind, unknown(), unknown(), unknown(), unknown(), unknown(), waiters]);
            continue;
        }
        for (at, holder) in found.holders.iter().enumerate() {
            let (name, kind, waiters) = if at == 0 { (name.clone(), kind.clone(), waiters.clone()) } else { Default::default() };
            let client = holder.client.as_ref();
            let [process, program] = [process(client), program(client)].map(|text| text.unwrap_or_else(unknown));
            let [held, left] = [holder.held_for, holder.lease_left].map(|time| time.map_or_else(unknown, ago));
            rows.push([name, kind, plain(&holder.owner), process, program, held, left, waiters]);
        }
    }
    table::fitted(&rows, NARROWING, room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (millis, expected) in
            [(0, "0.0s"), (9_940, "9.9s"), (10_000, "10s"), (61_000, "1m 01s"), (3_600_000, "1h 00m"), (172_800_000, "2d 0h")]
        {
            assert_eq!(ago(Duration::from_millis(millis)), expected);
        }
    }
}
