//! What to take and how long to wait for it: the options that `run` and `hold` share, and the one way to take it.

use std::time::{Duration, Instant};

use clap::Args;
use lockkeeper::backend::Claim;
use lockkeeper::sync::{Acquiring, Guard, TryAcquiring};
use lockkeeper::{Client, Error, ErrorKind};
use tokio::time::timeout;

use crate::exit::{Code, Failure, say};
use crate::hold::Taken;
use crate::signals::Signals;
use crate::store::StoreOption;
use crate::{duration, nested, waiting};

/// How long is allowed for giving back what an acquisition that failed may have left.
const CLOSING: Duration = Duration::from_secs(2);

/// How long is allowed for finding out who holds what was not acquired: it is only told.
const TELLING: Duration = Duration::from_secs(1);

#[derive(Args, Clone, Debug)]
pub(crate) struct Taking {
    #[command(flatten)]
    pub(crate) store: StoreOption,

    /// Do not wait: exit at once if others hold the lock
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,

    /// Wait at most this long: 1.5 (seconds), 250ms, 90s, 2m, 1h [default: no limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    wait: Option<Duration>,

    /// The exit status when the lock was not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Code::NotAcquired as u8)]
    conflict_exit_code: u8,

    /// Share a read-write lock with other readers
    #[arg(short, long, conflicts_with_all = ["exclusive", "fair", "permits"])]
    shared: bool,

    /// Have a read-write lock to yourself [without -s and -x: a mutex]
    #[arg(short = 'x', long, conflicts_with_all = ["fair", "permits"])]
    exclusive: bool,

    /// First come, first served, across all who use --fair
    #[arg(long, conflicts_with = "permits")]
    fair: bool,

    /// Take a permit of a semaphore that has N; all users give the same N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) permits: Option<u32>,

    /// Take K permits together [default: 1]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..), requires = "permits")]
    take: Option<u32>,

    /// How long the lock outlives a lockkeeper that crashed; it is renewed meanwhile [default: 30s]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    lease: Option<Duration>,

    /// Say on stderr how long it took to get the lock, its token, and from which store
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

impl Taking {
    pub(crate) const fn claim(&self) -> Claim {
        match (self.permits, self.shared, self.exclusive, self.fair) {
            (Some(of), ..) => Claim::Permits { take: if let Some(take) = self.take { take } else { 1 }, of },
            (None, true, ..) => Claim::Read,
            (None, _, true, _) => Claim::Write,
            (None, _, _, true) => Claim::Fair,
            (None, ..) => Claim::Mutex,
        }
    }

    /// Connects to the store, unless a signal comes first.
    pub(crate) async fn connect(&self, signals: &mut Signals) -> Result<Client, Failure> {
        let builder = Client::builder();
        let builder = if let Some(lease) = self.lease { builder.lease(lease) } else { builder };
        tokio::select! {
            connected = self.store.connect(builder) => connected,
            signal = signals.end(|| {}) => Err(Failure::signalled(signal)),
        }
    }

    /// Takes it, unless a signal comes first; shows on a terminal why that takes long, and leaves nothing behind if it fails.
    pub(crate) async fn take(
        &self,
        client: &Client,
        name: &str,
        began: Instant,
        signals: &mut Signals,
    ) -> Result<Taken, Failure> {
        let taken = tokio::select! {
            taken = self.take_or_tell(client, name, began) => taken,
            signal = signals.end(waiting::erase) => Err(Failure::signalled(signal)),
        };
        match &taken {
            // A request may be on its way that would take the lock for nobody.
            Err(_) => drop(timeout(CLOSING, client.close()).await),
            Ok(taken) if self.verbose => {
                let token = taken.token().map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
                say(&format!("took {name:?} from {} after {:.3} s, {token}", client.url(), began.elapsed().as_secs_f64()));
            }
            Ok(_) => {}
        }
        taken
    }

    async fn take_or_tell(&self, client: &Client, name: &str, began: Instant) -> Result<Taken, Failure> {
        if let Some(outer) = nested::outer(name) {
            outer.refuse_to_wait_for_itself(client, name, self.claim()).await?;
        }
        let taking = self.claimed(client, name, began);
        let taken = if self.waits() { waiting::shown(client, name, began.into(), taking).await } else { taking.await };
        match taken? {
            Some(taken) => Ok(taken),
            None => Err(self.not_acquired(client, name).await),
        }
    }

    async fn not_acquired(&self, client: &Client, name: &str) -> Failure {
        let found = timeout(TELLING, client.inspect(name)).await.ok().and_then(Result::ok).flatten();
        let held = found.as_ref().and_then(waiting::held).unwrap_or_else(|| "held by others".to_owned());
        Failure { code: self.conflict_exit_code, message: Some(format!("{name:?} is {held}; wait longer, or try again later")) }
    }

    fn waits(&self) -> bool {
        !self.no_wait && self.wait != Some(Duration::ZERO)
    }

    async fn claimed(&self, client: &Client, name: &str, began: Instant) -> Result<Option<Taken>, Error> {
        match self.claim() {
            Claim::Mutex => {
                let mutex = client.mutex(name);
                self.one(|| mutex.try_lock(), || mutex.lock(), began, Taken::Mutex).await
            }
            Claim::Fair => {
                let mutex = client.fair_mutex(name);
                self.one(|| mutex.try_lock(), || mutex.lock(), began, Taken::Mutex).await
            }
            Claim::Read => {
                let lock = client.rwlock(name);
                self.one(|| lock.try_read(), || lock.read(), began, Taken::Read).await
            }
            Claim::Write => {
                let lock = client.rwlock(name);
                self.one(|| lock.try_write(), || lock.write(), began, Taken::Write).await
            }
            Claim::Permits { take, of } => {
                let semaphore = client.semaphore(name, of);
                self.one(|| semaphore.try_acquire_many(take), || semaphore.acquire_many(take), began, Taken::Permit).await
            }
        }
    }

    /// Busy is no error here, however long it was waited for.
    async fn one<G: Guard>(
        &self,
        at_once: impl FnOnce() -> TryAcquiring<G>,
        waiting: impl FnOnce() -> Acquiring<G>,
        began: Instant,
        taken: impl FnOnce(G) -> Taken,
    ) -> Result<Option<Taken>, Error> {
        if !self.waits() {
            return Ok(at_once().await?.map(taken));
        }
        let waiting = match self.wait {
            Some(limit) => waiting().timeout(limit.saturating_sub(began.elapsed())),
            None => waiting(),
        };
        match waiting.await {
            Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
            acquired => acquired.map(taken).map(Some),
        }
    }
}
