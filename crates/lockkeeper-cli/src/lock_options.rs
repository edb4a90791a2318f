//! The options that `run` and `hold` share: which lock, how long to wait. And how the lock is acquired.

use std::time::{Duration, Instant};

use clap::Args;
use lockkeeper::backend::{Claim, Kind};
use lockkeeper::sync::{Acquiring, Guard, TryAcquiring};
use lockkeeper::{Client, Error, ErrorKind};
use tokio::time::timeout;

use crate::child::reap_orphans;
use crate::exit::{Code, Failure, say};
use crate::held::AnyGuard;
use crate::signals::Signals;
use crate::store::StoreOption;
use crate::{duration, nested, number, waiting};

/// How long a failed acquisition may take to release what it may have acquired.
const CLOSING: Duration = Duration::from_secs(2);

/// The same if the store did not answer: it will hardly answer now, and refuses late requests itself.
const CLOSING_UNAVAILABLE: Duration = Duration::from_millis(200);

/// A shorter lease is lost before it can be renewed.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// How long it may take to find out who holds the lock, for the message.
const TELLING: Duration = Duration::from_secs(1);

#[derive(Args, Clone, Debug)]
pub(crate) struct LockOptions {
    #[command(flatten)]
    pub(crate) store: StoreOption,

    /// Do not wait: exit at once if the lock is held
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,

    /// Wait at most this long: 1.5 (seconds), 250ms, 90s, 2m, 1h [default: no limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    wait: Option<Duration>,

    /// Exit status if the lock was not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Code::NotAcquired as u8)]
    conflict_exit_code: u8,

    /// Acquire the read side of a read-write lock, shared with other readers
    #[arg(short, long, conflicts_with_all = ["exclusive", "fair", "permits"])]
    shared: bool,

    /// Acquire the write side of a read-write lock [without -s and -x: a mutex]
    #[arg(short = 'x', long, conflicts_with_all = ["fair", "permits"])]
    exclusive: bool,

    /// First come, first served, among all that use --fair
    #[arg(long, conflicts_with = "permits")]
    fair: bool,

    /// Acquire a permit of a semaphore with N permits; all users pass the same N
    #[arg(long, value_name = "N", value_parser = number::permits)]
    pub(crate) permits: Option<u32>,

    /// Acquire K permits at once [default: 1]
    #[arg(long, value_name = "K", value_parser = number::permits, requires = "permits")]
    take: Option<u32>,

    /// The semaphore is Redisson's: use its number, whatever size it has, although lockkeeper did not make it
    #[arg(long, requires = "permits")]
    java: bool,

    /// Lease: how long the lock stays held if lockkeeper crashes. Renewed automatically while it runs [default: 30s]
    #[arg(short, long, value_name = "DURATION", value_parser = parse_lease, allow_negative_numbers = true)]
    lease: Option<Duration>,

    /// Say nothing about waiting, nor about a lock that others hold (the exit status tells it); errors are still reported
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Report on stderr: the wait time, the token, the store, processes that are left running
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

impl LockOptions {
    pub(crate) const fn claim(&self) -> Claim {
        match (self.permits, self.shared, self.exclusive, self.fair) {
            (Some(of), ..) => Claim::Permits { take: if let Some(take) = self.take { take } else { 1 }, of },
            (None, true, ..) => Claim::Read,
            (None, _, true, _) => Claim::Write,
            (None, _, _, true) => Claim::Fair,
            (None, ..) => Claim::Mutex,
        }
    }

    /// Connects to the store, unless a signal comes first. `program` is shown to operators beside the lock.
    pub(crate) async fn connect(&self, program: &str, signals: &mut Signals) -> Result<Client, Failure> {
        let builder = Client::builder().program(program);
        let builder = if let Some(lease) = self.lease { builder.lease(lease) } else { builder };
        let limit = if self.no_wait { None } else { self.wait.filter(|wait| !wait.is_zero()) };
        let connecting = async {
            let Some(limit) = limit else { return self.store.connect(builder).await };
            let late = |_| Failure::new(Code::Unavailable, format!("the store did not answer within {limit:?} (-w)"));
            timeout(limit, self.store.connect(builder)).await.map_err(late)?
        };
        tokio::select! {
            connected = connecting => connected,
            signal = signals.end(|| {}) => Err(Failure::signalled(signal)),
        }
    }

    /// Acquires the lock, unless a signal comes first. Shows on a terminal why it takes long, and leaves nothing behind if it fails.
    pub(crate) async fn acquire(
        &self,
        client: &Client,
        name: &str,
        began: Instant,
        signals: &mut Signals,
    ) -> Result<AnyGuard, Failure> {
        let acquired = tokio::select! {
            acquired = self.acquire_or_explain(client, name, began) => acquired,
            signal = signals.end(waiting::erase) => Err(Failure::signalled(signal)),
            // Process 1 collects them at all times.
            never = reap_orphans() => match never {},
        };
        match &acquired {
            // A request may be on its way that would acquire the lock for nobody.
            Err(failure) if failure.code == Code::Unavailable as u8 => {
                drop(timeout(CLOSING_UNAVAILABLE, client.close()).await);
            }
            Err(_) => drop(timeout(CLOSING, client.close()).await),
            Ok(guard) if self.verbose => {
                let token = guard.token().map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
                say(&format!("acquired {name:?} from {} after {:.3} s, {token}", client.url(), began.elapsed().as_secs_f64()));
            }
            Ok(_) => {}
        }
        acquired
    }

    async fn acquire_or_explain(&self, client: &Client, name: &str, began: Instant) -> Result<AnyGuard, Failure> {
        nested::refuse_to_wait_for_itself(client, name, self.claim()).await?;
        if self.permits.is_some() {
            number::check(client, name, Kind::Semaphore, self.java).await?;
        }
        let acquiring = self.acquire_claim(client, name, began);
        let acquired = if self.waits() && !self.quiet {
            waiting::shown(client, name, began.into(), acquiring).await
        } else {
            acquiring.await
        };
        match acquired.map_err(|error| self.explained(error, name))? {
            Some(guard) => Ok(guard),
            None => Err(self.not_acquired(client, name).await),
        }
    }

    /// The library says to ask for another size of a semaphore, or to resize it; here it is said how. Redis does not repeat the size that was wanted.
    fn explained(&self, error: Error, name: &str) -> Failure {
        let failure = Failure::from(error);
        let message = failure.message.map(|said| match (said.rsplit_once("; ask for "), self.permits) {
            (Some((what, size)), Some(wanted)) => {
                let size = size.split(',').next().unwrap_or_default();
                let what = what.rsplit_once(" permits").map_or(what, |(what, _)| what);
                format!("{what} permits, not {wanted}; use --permits {size}, or lockkeeper semaphore set {name:?} {wanted}")
            }
            _ => said,
        });
        Failure { message, ..failure }
    }

    async fn not_acquired(&self, client: &Client, name: &str) -> Failure {
        if self.quiet {
            return Failure { code: self.conflict_exit_code, message: None };
        }
        let found = timeout(TELLING, client.inspect(name)).await.ok().and_then(Result::ok).flatten();
        let held = found.as_ref().and_then(waiting::held).unwrap_or_else(|| "held by others".to_owned());
        // A free permit would look like a mistake to somebody who is told no.
        let free = found.as_ref().and_then(|found| found.value.zip(found.total)).filter(|(free, _)| *free > 0);
        let what = match (self.claim(), free) {
            (Claim::Permits { take, .. }, Some((free, total))) => {
                format!("{name:?} has {free} of {total} permits free, not {take}; it is {held}")
            }
            _ => format!("{name:?} is {held}"),
        };
        Failure { code: self.conflict_exit_code, message: Some(format!("{what}; wait longer, or try again later")) }
    }

    fn waits(&self) -> bool {
        !self.no_wait && self.wait != Some(Duration::ZERO)
    }

    async fn acquire_claim(&self, client: &Client, name: &str, began: Instant) -> Result<Option<AnyGuard>, Error> {
        match self.claim() {
            Claim::Mutex => {
                let mutex = client.mutex(name);
                self.one(|| mutex.try_lock(), || mutex.lock(), began, AnyGuard::Mutex).await
            }
            Claim::Fair => {
                let mutex = client.fair_mutex(name);
                self.one(|| mutex.try_lock(), || mutex.lock(), began, AnyGuard::Mutex).await
            }
            Claim::Read => {
                let lock = client.rwlock(name);
                self.one(|| lock.try_read(), || lock.read(), began, AnyGuard::Read).await
            }
            Claim::Write => {
                let lock = client.rwlock(name);
                self.one(|| lock.try_write(), || lock.write(), began, AnyGuard::Write).await
            }
            Claim::Permits { take, of } => {
                let semaphore = client.semaphore(name, of);
                // Java may have changed the size since, by addPermits.
                let semaphore = if self.java { semaphore.any_size() } else { semaphore };
                self.one(|| semaphore.try_acquire_many(take), || semaphore.acquire_many(take), began, AnyGuard::Permit).await
            }
            other => Err(Error::new(ErrorKind::Unsupported, format!("this lockkeeper knows no claim {other:?}"))),
        }
    }

    /// `None` if others hold it, at once or for the whole wait.
    async fn one<G: Guard>(
        &self,
        at_once: impl FnOnce() -> TryAcquiring<G>,
        waiting: impl FnOnce() -> Acquiring<G>,
        began: Instant,
        wrap: impl FnOnce(G) -> AnyGuard,
    ) -> Result<Option<AnyGuard>, Error> {
        if !self.waits() {
            return Ok(at_once().await?.map(wrap));
        }
        let waiting = match self.wait {
            Some(limit) => waiting().timeout(limit.saturating_sub(began.elapsed())),
            None => waiting(),
        };
        match waiting.await {
            Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
            acquired => acquired.map(wrap).map(Some),
        }
    }
}

/// A lease that can be renewed in time.
fn parse_lease(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        lease if lease < SHORTEST_LEASE => {
            Err(format!("a lease of {lease:?} would be lost before it can be renewed; use {SHORTEST_LEASE:?} or more"))
        }
        lease => Ok(lease),
    }
}
