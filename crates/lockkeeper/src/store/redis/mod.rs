//! Redis, spoken as Redisson speaks it: a lock is a hash at its name, owner → count, with the lease as its time to live, and a
//! release publishes `0` on `redisson_lock__channel:{NAME}`. So a Java process with Redisson and this one exclude and wake each other.
//!
//! Of the family only the mutex is here yet; [`Capabilities`] say so.
//!
//! Keys of our own: `lockkeeper:token` (the last fencing token) and `lockkeeper:client:<id>` (who a client is; expires).

mod config;
mod error;
mod notify;
mod script;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Bell, Busy, Capabilities, Claim, ClientCard, Count, Event, Forced, Grant, Holder,
    Kind, Listing, Liveness, Page, Release, Released, Renew, Renewed, Reply, Ringer, Snapshot, Tally, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Runtime;
pub use config::Config;
use transport::{Transport, unexpected};

/// A Redis server.
#[derive(Debug)]
pub struct RedisStore {
    transport: Arc<Transport>,
}

impl RedisStore {
    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if it cannot be reached; [`ErrorKind::Denied`] if it refuses the user.
    pub async fn connect(config: Config, runtime: &Runtime) -> Result<Arc<Self>> {
        let transport = Transport::new(config, runtime.clone());
        let ready = Box::pin(transport.ready());
        crate::runtime::within(Duration::from_secs(10), ready)
            .await
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Unavailable, "redis did not answer within 10s")))?;
        Ok(Arc::new(Self { transport }))
    }

    async fn acquire(&self, request: &Acquire) -> Result<Attempt> {
        self.only_mutex(request.claim)?;
        let name = request.name.as_str();
        let answer = self
            .transport
            .run(&script::ACQUIRE, &[name], |clock| {
                vec![
                    request.owner.to_string().into_bytes(),
                    millis(request.lease),
                    clock.micros(request.not_after),
                    request.floor.to_string().into_bytes(),
                ]
            })
            .await?;
        let numbers: Vec<i64> = parsed(answer)?;
        match numbers[..] {
            [1, token] => Ok(Attempt::Granted(Grant { token: u64::try_from(token).ok() })),
            [0, left] => Ok(Attempt::Busy(Busy { retry_in: u64::try_from(left).ok().map(Duration::from_millis), ahead: None })),
            [-1] => {
                self.transport.late(request.not_after);
                Ok(Attempt::Late)
            }
            [-2] => Err(Kind::RwLock.instead_of(Kind::Mutex, &request.name)),
            [-3] => Err(Error::new(
                ErrorKind::ForeignKey,
                format!("under {name:?} lies a hash that never expires, so it is no lock; choose another name or remove it"),
            )),
            _ => Err(unexpected(&Value::Int(numbers.len() as i64))),
        }
    }

    async fn release(&self, request: &Release) -> Result<Released> {
        self.only_mutex(request.claim)?;
        let (owner, channel) = (request.owner.to_string(), channel(&request.name));
        let arguments = |_: &_| vec![owner.into_bytes(), channel.into_bytes()];
        let held: i64 = parsed(self.transport.run(&script::RELEASE, &[request.name.as_str()], arguments).await?)?;
        Ok(Released { held: held == 1, next: None })
    }

    async fn renew(&self, requests: &[Renew]) -> Result<Vec<Result<Renewed>>> {
        let keys: Vec<&str> = requests.iter().map(|request| request.name.as_str()).collect();
        let arguments = |_: &_| {
            let pair =
                |request: &Renew| [request.owner.to_string().into_bytes(), request.lease.map_or_else(|| b"0".to_vec(), millis)];
            requests.iter().flat_map(pair).collect()
        };
        let answers: Vec<Value> = parsed(self.transport.run(&script::RENEW, &keys, arguments).await?)?;
        let judge = |answer: Value| match answer {
            Value::Int(1) => Ok(Renewed::Kept),
            Value::Int(_) => Ok(Renewed::Gone),
            Value::BulkString(error) => Err(error::of_server("ERR", &String::from_utf8_lossy(&error))),
            other => Err(unexpected(&other)),
        };
        Ok(answers.into_iter().map(judge).collect())
    }

    async fn inspect(&self, name: &Name) -> Result<Option<Snapshot>> {
        let answer = self.transport.run(&script::INSPECT, &[name.as_str()], |_| Vec::new()).await?;
        let (kind, left, fields): (String, i64, Vec<(String, String)>) = parsed(answer)?;
        if kind != "hash" || fields.iter().any(|(owner, _)| owner.parse::<WireOwner>().is_err()) {
            return Ok(None);
        }
        let holders = self.holders(left, fields).await?;
        Ok(Some(Snapshot { name: name.clone(), kind: Kind::Mutex, holders, queue: Vec::new(), value: None, total: None }))
    }

    async fn holders(&self, left: i64, fields: Vec<(String, String)>) -> Result<Vec<Holder>> {
        let mut holders = Vec::new();
        for (owner, _) in fields {
            let client = match owner.parse::<WireOwner>() {
                Ok(owner) => self.card(owner).await?,
                Err(_) => None,
            };
            let lease_left = u64::try_from(left).ok().map(Duration::from_millis);
            holders.push(Holder { owner, claim: Claim::Mutex, lease_left, token: None, client });
        }
        Ok(holders)
    }

    async fn card(&self, owner: WireOwner) -> Result<Option<ClientCard>> {
        let found = self.transport.command(redis::cmd("GET").arg(card_key(owner.client))).await?;
        let found: Option<String> = parsed(found)?;
        Ok(found.as_deref().and_then(|card| {
            let mut lines = card.splitn(3, '\n');
            let pid = lines.next()?.parse().ok()?;
            Some(ClientCard { id: owner.client, pid, host: lines.next()?.to_owned(), program: lines.next()?.to_owned() })
        }))
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let cursor = listing.after.as_deref().unwrap_or("0");
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&listing.pattern).arg("COUNT").arg(listing.limit).arg("TYPE").arg("hash");
        let (next, keys): (String, Vec<Vec<u8>>) = parsed(self.transport.command(&scan).await?)?;
        let mut page = Page { found: Vec::new(), next: Some(next).filter(|next| next != "0") };
        // A key that is no valid name is nobody's lock.
        for name in keys.into_iter().filter_map(|key| Name::new(String::from_utf8(key).ok()?).ok()) {
            page.found.extend(self.inspect(&name).await?);
        }
        Ok(page)
    }

    async fn force_release(&self, name: &Name) -> Result<Forced> {
        let channel = channel(name).into_bytes();
        let answer = self.transport.run(&script::FORCE_RELEASE, &[name.as_str()], |_| vec![channel]).await?;
        let (left, fields): (i64, Vec<(String, String)>) = parsed(answer)?;
        Ok(Forced { from: self.holders(left, fields).await? })
    }

    fn only_mutex(&self, claim: Claim) -> Result<()> {
        if claim == Claim::Mutex { Ok(()) } else { Err(self.capabilities().unsupported(&claim.kind().to_string())) }
    }
}

/// The channel that Redisson's locks are woken by.
fn channel(name: &Name) -> String {
    if name.as_str().contains('{') {
        format!("redisson_lock__channel:{name}")
    } else {
        format!("redisson_lock__channel:{{{name}}}")
    }
}

fn card_key(client: crate::owner::ClientId) -> String {
    format!("lockkeeper:client:{client}")
}

/// Whole milliseconds, rounded up: the store never keeps a hold for less than was granted.
fn millis(time: Duration) -> Vec<u8> {
    time.as_nanos().div_ceil(1_000_000).to_string().into_bytes()
}

fn parsed<T: FromRedisValue>(answer: Value) -> Result<T> {
    T::from_redis_value(answer)
        .map_err(|error| Error::new(ErrorKind::Protocol, "redis answered something unexpected").with_source(error))
}

impl Backend for RedisStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: "redis",
            mutex: true,
            fair: false,
            rwlock: false,
            semaphore: false,
            counting_semaphore: false,
            latch: false,
            fencing: true,
            hand_over: false,
            acquire_all: false,
            push: true,
            liveness: Liveness::Lease,
            min_lease: Duration::from_millis(100),
            max_lease: Duration::from_secs(365 * 24 * 3600),
        }
    }

    fn lane(self: Arc<Self>) -> Arc<dyn Backend> {
        Arc::new(Self { transport: self.transport.another() })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Box::pin(async move { self.acquire(&request).await })
    }

    fn acquire_all(&self, _requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        Box::pin(async { Err(self.capabilities().unsupported("request for several names at once")) })
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        Box::pin(async move { self.release(&request).await })
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        Box::pin(async move { self.renew(&requests).await })
    }

    fn count(&self, request: Count) -> Reply<'_, Tally> {
        Box::pin(async move { Err(self.capabilities().unsupported(&request.op.kind().to_string())) })
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Bell> {
        Box::pin(async move {
            let ringer = Ringer::default();
            let listening = self.transport.listen(channel(&watch.name), ringer.clone()).await?;
            Ok(Bell::new(&ringer, listening))
        })
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        Box::pin(async move { self.inspect(&name).await })
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        Box::pin(async move { self.list(&listing).await })
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        Box::pin(async move { self.force_release(&name).await })
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        Box::pin(async move {
            let text = format!("{}\n{}\n{}", card.pid, card.host, card.program);
            let mut set = redis::cmd("SET");
            set.arg(card_key(card.id)).arg(text).arg("PX").arg(ttl.as_millis() as u64);
            self.transport.command(&set).await.map(drop)
        })
    }

    fn note(&self, _event: &Event<'_>) {}
}
