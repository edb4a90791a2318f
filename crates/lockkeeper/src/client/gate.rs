//! The gate that lives at the client's store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::Client;
use super::url::Target;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::{Gate, MemoryGate, SqlFence};
use crate::runtime::Runtime;
use crate::session::Held;
#[cfg(feature = "mysql")]
use crate::store::mysql::MysqlStore;
#[cfg(feature = "postgres")]
use crate::store::postgres::PostgresStore;
#[cfg(feature = "redis-single")]
use crate::store::redis::RedisGate;

impl Client {
    /// The gate at this client's store: the resource's side of the fence, see [`fence`](crate::fence).
    ///
    /// All clients of one store have the same gate. On Redis it is the string `lockkeeper:fence:{RESOURCE}`, whose format is part
    /// of the contract (see [`fence`](crate::fence#the-gates-key-in-redis)), so that a script of your own can check and write in
    /// one step (`docs/guide/src/fencing.md`). On `memory:` it lives in this process.
    ///
    /// # Errors
    ///
    /// `Unsupported` on stores without a gate (all but `redis://` and `memory:`): keep the token in the resource itself. On `postgres://` and
    /// `mysql://` there is [`sql_fence`](Self::sql_fence).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::connect("memory:").await?;
    /// let gate = client.gate()?;
    /// let guard = client.mutex("account:7").lock().await?;
    /// let token = guard.token().expect("this store has tokens");
    /// gate.enter("account:7", token).await?; // before the first read
    /// gate.check("account:7", token).await?; // at the write
    /// # guard.release().await }
    /// ```
    pub fn gate(&self) -> Result<Arc<dyn Gate>> {
        if let Some(gate) = self.home.gate.get() {
            return Ok(Arc::clone(gate));
        }
        let gate = match &self.home.target {
            Some(target) => open(target, &self.session.core().runtime)?,
            None => return Err(unsupported(self.url())),
        };
        Ok(Arc::clone(self.home.gate.get_or_init(|| gate)))
    }

    /// The fence for a transaction of your own in the database that has the locks (`postgres://`, `mysql://`): see [`SqlFence`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let guard = client.mutex("account:7").lock().await?;
    /// match client.sql_fence(&guard) {
    ///     Ok(fence) => println!("first of your transaction: {}", fence.text()),
    ///     Err(error) => println!("{error}"), // memory: is no SQL database
    /// }
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` on other stores, and for readers and permits, which do not exclude each other; `InvalidArgument` for a hold of another
    /// client.
    pub fn sql_fence(&self, held: &Held) -> Result<SqlFence> {
        if held.owner().client != self.id() {
            let message = format!("the hold of {:?} is not of this client; ask the client that acquired it", held.name());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let token = held.token().filter(|_| held.claim().is_exclusive());
        let Some(token) = token else {
            let message = format!("the hold of {:?} does not exclude others; only mutexes and writers are fenced", held.name());
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let _ = token;
        match &self.home.target {
            #[cfg(feature = "mysql")]
            Some(Target::Mysql(config)) => MysqlStore::fence(config, held.full_name(), token),
            #[cfg(feature = "postgres")]
            Some(Target::Postgres(config)) => PostgresStore::fence(config, held.full_name(), token),
            _ => {
                let message = format!("{} is no SQL database that can fence a transaction; see fence::Gate", self.url());
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }
}

fn unsupported(store: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{store} has no gate; keep the last token in the resource itself"))
}

fn open(target: &Target, runtime: &Runtime) -> Result<Arc<dyn Gate>> {
    match target {
        Target::Memory(None) => Ok(Arc::new(MemoryGate::default())),
        Target::Memory(Some(name)) => Ok(shared(name)),
        #[cfg(feature = "redis-single")]
        Target::Redis(config) => Ok(Arc::new(RedisGate::new((**config).clone(), runtime))),
        #[allow(unreachable_patterns, reason = "which stores there are depends on the features")]
        other => {
            let _ = runtime;
            Err(unsupported(&other.to_string()))
        }
    }
}

/// The gate of the store `memory:NAME`, one for all its clients.
fn shared(name: &str) -> Arc<MemoryGate> {
    static GATES: OnceLock<Mutex<HashMap<String, Weak<MemoryGate>>>> = OnceLock::new();
    let mut gates = GATES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(gate) = gates.get(name).and_then(Weak::upgrade) {
        return gate;
    }
    gates.retain(|_, gate| gate.strong_count() > 0);
    let gate = Arc::new(MemoryGate::default());
    gates.insert(name.to_owned(), Arc::downgrade(&gate));
    gate
}
