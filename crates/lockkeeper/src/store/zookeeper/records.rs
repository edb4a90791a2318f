//! Numbers: counting semaphores, latches and the sizes of semaphores, as one record in a node of the name, changed by its version.
//!
//! The record is the model's. It also remembers which requests were carried out, so that one that is sent twice counts once. There is no layout of
//! Curator's that could do that: its `SharedCount` is four bytes.

use std::sync::Arc;
use std::time::Duration;

use zookeeper_client::{CreateMode, Error as Cause};

use super::names::{self, LEASES, LOCKS, OWN};
use super::session::Live;
use super::{Inner, error};
use crate::backend::{Acquire, Count, CountOp, CountOutcome, Counted, Kind, SemaphoreOp};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Now, Record};
use crate::name::Name;
use crate::runtime::{self, Instant};
use crate::store::queue::Queue;

/// So often a change is tried again that others came before.
const ATTEMPTS: u32 = 200;

/// No packet is larger than 1 MB unless the server says otherwise; the path and the header need some of it.
const LARGEST: usize = 1_000_000;

/// A server may allow less, and then ends the connection without a word when it reads the length of a packet. Records of this size are suspected.
const SUSPECTED: usize = 2_000;

impl Inner {
    /// The time by which requests are remembered. Clients whose clocks differ remember each other's for longer or shorter.
    pub(super) fn wall(&self) -> Instant {
        Instant::from_nanos(self.link.runtime.wall_micros().saturating_mul(1_000))
    }

    /// The record of a name, and its version; `None`: there is none.
    pub(super) async fn record(&self, live: &Live, name: &Name) -> Result<Option<(Record, i32)>> {
        let path = format!("{}/{OWN}", self.path(name));
        let (data, stat) = match live.client.get_data(&path).await {
            Ok(found) => found,
            Err(Cause::NoNode) => return Ok(None),
            Err(cause) => return Err(error::of_read(cause)),
        };
        let mut record: Record = serde_json::from_slice(&data).map_err(|cause| {
            let message = format!("{path} holds something that this version of lockkeeper did not write; choose another name");
            Error::new(ErrorKind::ForeignKey, message).with_source(cause)
        })?;
        record.expire(self.wall());
        Ok(Some((record, stat.version)))
    }

    /// The stored size of a semaphore.
    pub(super) async fn size(&self, live: &Live, name: &Name) -> Result<Option<u32>> {
        let record = self.record(live, name).await?;
        Ok(record.and_then(|(record, _)| record.snapshot(name, self.wall())).and_then(|found| found.total))
    }

    /// Stores the size of a semaphore that has none yet.
    pub(super) async fn set_size(self: &Arc<Self>, request: &Acquire, size: u32) -> Result<()> {
        let op = CountOp::Semaphore(SemaphoreOp::Init(size));
        self.count(Count::new(request.name.clone(), request.owner, op, Duration::ZERO)).await.map(drop)
    }

    /// What else than `wanted` the name is in use as, by what lies in its folder.
    pub(super) async fn other_kind(&self, live: &Live, name: &Name, wanted: Kind, children: &[String]) -> Result<Option<Kind>> {
        let queue = Queue::new(children.iter().filter_map(|child| names::node(child)), 0);
        if let Some(kind) = queue.kind().filter(|kind| *kind != wanted) {
            return Ok(Some(kind));
        }
        if children.iter().any(|child| child == OWN)
            && let Some((record, _)) = self.record(live, name).await?
            && let Some(found) = record.snapshot(name, self.wall()).filter(|found| found.kind != wanted)
        {
            return Ok(Some(found.kind));
        }
        if wanted != Kind::Semaphore {
            for part in [LOCKS, LEASES].into_iter().filter(|part| children.iter().any(|child| child == part)) {
                if !self.children(live, &format!("{}/{part}", self.path(name))).await?.is_empty() {
                    return Ok(Some(Kind::Semaphore));
                }
            }
        }
        Ok(None)
    }

    pub(super) async fn count(self: &Arc<Self>, request: Count) -> Result<CountOutcome> {
        let live = self.link.live().await?;
        let (name, kind) = (&request.name, request.op.kind());
        let folder = self.path(name);
        for attempt in 0..ATTEMPTS {
            live.sends();
            let (found, children) = tokio::join!(self.record(&live, name), self.children(&live, &folder));
            let (found, children) = (found?, children?);
            let locks: Vec<_> = children.iter().filter(|child| *child != OWN).cloned().collect();
            if let Some(kind) = self.other_kind(&live, name, kind, &locks).await? {
                return Err(kind.instead_of(request.op.kind(), name));
            }
            let (before, version) = found.map_or((None, None), |(record, version)| (Some(record), Some(version)));
            let mut record = before.clone().unwrap_or_default();
            let used = if kind == Kind::Semaphore { self.used(&live, name, request.op).await? } else { 0 };
            if request.op == CountOp::Semaphore(SemaphoreOp::Remove) && used > 0 {
                let total = record.snapshot(name, self.wall()).and_then(|found| found.total).unwrap_or(0);
                return Ok(CountOutcome::Counted(Counted::new(false, i64::from(total))));
            }
            // There is no clock in a request.
            let timeless = request.clone().with_not_after(Instant::NEVER);
            let answer = record.count(&timeless, Now { at: self.wall(), token: 0 })?.answer;
            if Some(&record) == before.as_ref()
                || (before.is_none() && record.is_empty())
                || self.write(&live, name, &record, version).await?
            {
                return Ok(match answer {
                    CountOutcome::Counted(Counted { done, value }) if request.op == CountOp::Semaphore(SemaphoreOp::Read) => {
                        CountOutcome::Counted(Counted::new(done, value - i64::from(used)))
                    }
                    answer => answer,
                });
            }
            // Others were faster. They all get their turn sooner if not all come back at once.
            let most = Duration::from_millis(u64::from(attempt.min(20)));
            let pause = self.link.runtime.now().plus(runtime::jitter(Duration::ZERO, most));
            self.link.runtime.sleep_until(pause).await;
        }
        let message = format!("{name:?} was changed by others {ATTEMPTS} times in a row; nothing was done");
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// How many permits are given out, or asked for where nobody may be left.
    async fn used(&self, live: &Live, name: &Name, op: CountOp) -> Result<u32> {
        let folder = self.path(name);
        let mut used = self.children(live, &format!("{folder}/{LEASES}")).await?.len();
        if op == CountOp::Semaphore(SemaphoreOp::Remove) {
            used += self.children(live, &format!("{folder}/{LOCKS}")).await?.len();
        }
        Ok(u32::try_from(used).unwrap_or(u32::MAX))
    }

    /// Writes the record if nobody else has changed it; whether that was done.
    async fn write(&self, live: &Arc<Live>, name: &Name, record: &Record, version: Option<i32>) -> Result<bool> {
        let (folder, path) = (self.path(name), format!("{}/{OWN}", self.path(name)));
        let data = serde_json::to_vec(record)
            .map_err(|cause| Error::new(ErrorKind::Protocol, "a record cannot be written as JSON").with_source(cause))?;
        if data.len() > LARGEST {
            let message =
                format!("{name:?} remembers so many requests that it exceeds ZooKeeper's limit of 1 MB; ask less often");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        // A connection that broke for another reason breaks once. If the first request was carried out, the second one finds another version.
        for _ in 0..2 {
            let sent = live.sends();
            let done = match version {
                Some(version) if record.is_empty() => live.client.delete(&path, Some(version)).await,
                Some(version) => live.client.set_data(&path, &data, Some(version)).await.map(drop),
                None => live.client.create(&path, &data, &CreateMode::Persistent.with_acls(self.acls())).await.map(drop),
            };
            let error = match done {
                Ok(()) => {
                    live.confirms(sent);
                    return Ok(true);
                }
                Err(Cause::NoNode) if version.is_none() => {
                    self.make_folder(live, &folder).await?;
                    return Ok(false);
                }
                Err(Cause::NoNode | Cause::NodeExists | Cause::BadVersion) => return Ok(false),
                Err(cause) => error::of_write(cause),
            };
            let is_suspected = error.kind() == ErrorKind::Indeterminate && data.len() >= SUSPECTED;
            // The server answers, so it is not the connection.
            if !is_suspected || live.sync().await.is_err() {
                return Err(error);
            }
        }
        let message = format!(
            "ZooKeeper ended the connection twice when it was sent the {} bytes that {name:?} remembers of its requests: its jute.maxbuffer is \
             smaller; nothing was done; raise jute.maxbuffer on all servers to 1 MB or more, or ask less often",
            data.len()
        );
        Err(Error::new(ErrorKind::Config, message))
    }
}
