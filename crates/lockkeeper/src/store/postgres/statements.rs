//! The statements of a step, on one connection.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::RwLock;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::columns::{PartArrays, get, name_rows, refusal, too_few};
use super::error;
use super::schema::{PutKind, Texts};
use super::silence::InFlight;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::runtime::{BoxFuture, Instant, Runtime};
use crate::store::sql::clock::{Clock, Window};
use crate::store::sql::poll::Seen;
use crate::store::sql::rows::{NameRows, PartKey};
use crate::store::sql::text;
use crate::store::sql::waiting::Standing;
use crate::store::sql::{Answer, Bounds, Failed, Outcome, Put, Statements};

/// A parameter of a statement and its type: nothing is prepared, so a statement is one round trip, also through a pooler.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A connection while it lasts.
pub(super) struct Live {
    pub(super) client: Client,
    /// Single statements share the connection; a transaction has it alone.
    pub(super) gate: RwLock<()>,
    pub(super) texts: Arc<Texts>,
    channel: Arc<OnceLock<String>>,
    pub(super) runtime: Runtime,
    pub(super) clock: Clock,
    pub(super) heard: AtomicU64,
    dead: AtomicBool,
    /// Statements that the server has planned; `None`: it forgets them, because a pooler stands between.
    prepared: Mutex<Option<HashMap<String, Statement>>>,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Live")
    }
}

impl Live {
    pub(super) fn new(client: Client, texts: Arc<Texts>, channel: Arc<OnceLock<String>>, runtime: Runtime, clock: Clock) -> Self {
        let heard = AtomicU64::new(runtime.now().as_nanos());
        let (dead, prepared) = (AtomicBool::new(false), Mutex::new(Some(HashMap::new())));
        Self { client, gate: RwLock::new(()), texts, channel, runtime, clock, heard, dead, prepared }
    }

    /// Has no statement planned by name: behind a pooler, processes would take each other's statements for their own.
    pub(super) fn unprepared(self) -> Self {
        Self { prepared: Mutex::new(None), ..self }
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.dead.load(Ordering::Relaxed) && !self.client.is_closed()
    }

    pub(super) fn discard(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    fn channel(&self) -> &str {
        self.channel.get().map(String::as_str).unwrap_or_default()
    }

    fn prepared(&self) -> MutexGuard<'_, Option<HashMap<String, Statement>>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the server plan the statement, unless it has. Not inside a transaction, whose statements are sent in their order.
    async fn prepare(&self, sql: &str, parameters: &[Parameter<'_>]) {
        if self.prepared().as_ref().is_none_or(|known| known.contains_key(sql)) {
            return;
        }
        let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
        // A statement that cannot be prepared is sent as it is, and tells by itself what is wrong.
        if let Ok(statement) = self.client.prepare_typed(sql, &types).await
            && let Some(known) = &mut *self.prepared()
        {
            known.insert(sql.to_owned(), statement);
        }
    }

    /// One statement, beside others.
    pub(super) async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failed> {
        // From here on, because a connection that hangs holds up whoever waits at the gate too.
        let mut in_flight = self.in_flight();
        let _shared = self.gate.read().await;
        self.check()?;
        self.prepare(sql, parameters).await;
        let answer = self.query_alone(sql, parameters).await;
        in_flight.answered = true;
        answer
    }

    /// To be asked after the gate: whoever had the connection before may have given it up, with a transaction open on it. A statement that
    /// is sent then would be answered, and undone with that transaction.
    pub(super) fn check(&self) -> Result<(), Failed> {
        if self.is_usable() {
            return Ok(());
        }
        let message = "the connection to postgres was given up before this request was sent; nothing was done";
        Err(Failed::Error(Error::new(ErrorKind::Unavailable, message)))
    }

    fn in_flight(&self) -> InFlight<'_> {
        InFlight { live: self, sent: self.runtime.now(), answered: false }
    }

    /// One statement: of a transaction that has the connection alone, or beside others.
    async fn query_within(&self, alone: bool, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failed> {
        if alone { self.query_alone(sql, parameters).await } else { self.query(sql, parameters).await }
    }

    /// One statement of whoever has the connection.
    pub(super) async fn query_alone(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failed> {
        if self.client.is_closed() {
            return Err(Failed::Error(Error::new(ErrorKind::Unavailable, "the connection to postgres is closed")));
        }
        let mut in_flight = self.in_flight();
        let known = self.prepared().as_ref().and_then(|known| known.get(sql).cloned());
        let answer = match known {
            Some(statement) => {
                let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
                self.client.query(&statement, &values).await
            }
            None => self.client.query_typed(sql, parameters).await,
        };
        in_flight.answered = true;
        self.heard.store(self.runtime.now().as_nanos(), Ordering::Relaxed);
        answer.map_err(|cause| {
            if error::is_forgotten_statement(&cause) {
                *self.prepared() = None;
                let message = "a pooler stands before postgres and forgets statements; nothing was done";
                return Failed::Blocked(Error::new(ErrorKind::Unavailable, message).with_source(cause));
            }
            let failed = error::of_request(cause);
            if let Failed::Error(error) = &failed
                && matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable)
            {
                // A server that only reads, or ends: the next connection looks for the primary.
                self.discard();
            }
            failed
        })
    }

    pub(super) async fn run_insert(&self, alone: bool, put: &Put, bounds: Bounds) -> Result<Answer<Outcome>, Failed> {
        let parts = PartArrays::of(std::slice::from_ref(put));
        let name = put.name.as_str().as_bytes();
        let (token, body) = (put.token.cast_signed(), put.body.as_deref());
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&name, Type::BYTEA),
            (&put.next, Type::INT8),
            (&token, Type::INT8),
            (&body, Type::TEXT),
            (&bounds.earliest, Type::INT8),
            (&bounds.until, Type::INT8),
        ];
        parts.add_put(&mut parameters);
        let rows = self.query_within(alone, &self.texts.insert, &parameters).await?;
        let row = rows.first().ok_or_else(too_few)?;
        let clock = get(row, 6)?;
        if get::<Option<i32>>(row, 0)?.is_some() {
            return Ok(Answer { clock, told: Outcome::Done { token: get::<i64>(row, 1)?.cast_unsigned(), woke: 0 } });
        }
        Ok(Answer { clock, told: Outcome::Refused(Box::new(name_rows(&put.name, row, 2, clock)?)) })
    }

    pub(super) async fn run_put(
        &self,
        alone: bool,
        puts: &[Put],
        bounds: Bounds,
        each: bool,
    ) -> Result<Answer<Vec<Outcome>>, Failed> {
        if let ([put], false) = (puts, each) {
            let Answer { clock, told } = self.run_put_one(alone, put, bounds).await?;
            return Ok(Answer { clock, told: vec![told] });
        }
        let names: Vec<&[u8]> = puts.iter().map(|put| put.name.as_str().as_bytes()).collect();
        let versions: Vec<i64> = puts.iter().map(|put| put.version.unwrap_or(0)).collect();
        let nexts: Vec<i64> = puts.iter().map(|put| put.next).collect();
        let tokens: Vec<i64> = puts.iter().map(|put| put.token.cast_signed()).collect();
        let bodies: Vec<Option<&str>> = puts.iter().map(|put| put.body.as_deref()).collect();
        let payloads: Vec<String> = puts.iter().map(text::payload).collect();
        let tell_all: Vec<bool> = puts.iter().map(|put| put.wake.all).collect();
        let tell_head: Vec<bool> = puts.iter().map(|put| put.wake.head.is_some()).collect();
        let needed = if each { 0 } else { i64::try_from(puts.len()).unwrap_or(i64::MAX) };
        let channel = self.channel();
        let parts = PartArrays::of(puts);
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&names, Type::BYTEA_ARRAY),
            (&versions, Type::INT8_ARRAY),
            (&nexts, Type::INT8_ARRAY),
            (&tokens, Type::INT8_ARRAY),
            (&bodies, Type::TEXT_ARRAY),
            (&payloads, Type::TEXT_ARRAY),
            (&tell_all, Type::BOOL_ARRAY),
            (&tell_head, Type::BOOL_ARRAY),
            (&bounds.earliest, Type::INT8),
            (&bounds.until, Type::INT8),
            (&channel, Type::TEXT),
            (&needed, Type::INT8),
        ];
        let (grants, lasting) = (puts.iter().any(|put| put.grants), puts.iter().any(|put| put.lasting));
        let kind = PutKind { each, grants, parts: !parts.is_empty(), lasting };
        if kind.parts {
            parts.add_put(&mut parameters);
            parts.add_deleted(&mut parameters);
        }
        let rows = self.query_within(alone, self.texts.put(kind), &parameters).await?;
        let clock = get(rows.first().ok_or_else(too_few)?, 8)?;
        let mut told: Vec<Option<Outcome>> = puts.iter().map(|_| None).collect();
        for row in &rows {
            // Places count from one.
            let place = usize::try_from(get::<i64>(row, 0)? - 1).unwrap_or(usize::MAX);
            let (Some(put), Some(outcome)) = (puts.get(place), told.get_mut(place)) else { continue };
            *outcome = Some(match get::<Option<i64>>(row, 1)? {
                Some(token) => {
                    let woke = u32::try_from(get::<i32>(row, 2)?).unwrap_or(0);
                    Outcome::Done { token: token.cast_unsigned(), woke }
                }
                None => Outcome::Refused(Box::new(name_rows(&put.name, row, 4, clock)?)),
            });
        }
        told.into_iter().collect::<Option<_>>().map(|told| Answer { clock, told }).ok_or_else(too_few)
    }

    async fn run_put_one(&self, alone: bool, put: &Put, bounds: Bounds) -> Result<Answer<Outcome>, Failed> {
        let parts = PartArrays::of(std::slice::from_ref(put));
        let (name, channel) = (put.name.as_str().as_bytes(), self.channel());
        let (version, token, body) = (put.version.unwrap_or(0), put.token.cast_signed(), put.body.as_deref());
        let (payload, tell_head) = (text::payload(put), put.wake.head.is_some());
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&name, Type::BYTEA),
            (&version, Type::INT8),
            (&put.next, Type::INT8),
            (&token, Type::INT8),
            (&body, Type::TEXT),
            (&payload, Type::TEXT),
            (&put.wake.all, Type::BOOL),
            (&tell_head, Type::BOOL),
            (&bounds.earliest, Type::INT8),
            (&bounds.until, Type::INT8),
            (&channel, Type::TEXT),
        ];
        let kind = PutKind { each: false, grants: put.grants, parts: !parts.is_empty(), lasting: put.lasting };
        if kind.parts {
            parts.add_put_keys(&mut parameters);
            parts.add_put_values(&mut parameters);
            parts.add_deleted_keys(&mut parameters);
        }
        let rows = self.query_within(alone, self.texts.put_one(kind), &parameters).await?;
        let row = rows.first().ok_or_else(too_few)?;
        let told = match get::<Option<i64>>(row, 0)? {
            Some(token) => Outcome::Done { token: token.cast_unsigned(), woke: u32::try_from(get::<i32>(row, 1)?).unwrap_or(0) },
            None => refusal(&put.name, row)?,
        };
        Ok(Answer { clock: get(row, 7)?, told })
    }

    pub(super) async fn run_read(&self, alone: bool, names: &[Name]) -> Result<Answer<Vec<NameRows>>, Failed> {
        let bytes: Vec<&[u8]> = names.iter().map(|name| name.as_str().as_bytes()).collect();
        let rows = self.query_within(alone, &self.texts.read, &[(&bytes, Type::BYTEA_ARRAY)]).await?;
        let clock = get(rows.first().ok_or_else(too_few)?, 4)?;
        let told = names.iter().zip(&rows).map(|(name, row)| name_rows(name, row, 0, clock)).collect::<Result<_, _>>()?;
        Ok(Answer { clock, told })
    }
}

impl Statements for Live {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn is_usable(&self) -> bool {
        Self::is_usable(self)
    }

    fn discard(&self) {
        Self::discard(self);
    }

    fn insert<'a>(&'a self, put: &'a Put, bounds: Bounds) -> BoxFuture<'a, Result<Answer<Outcome>, Failed>> {
        Box::pin(async move { self.run_insert(false, put, bounds).await })
    }

    fn put_all<'a>(&'a self, puts: &'a [Put], bounds: Bounds) -> BoxFuture<'a, Result<Answer<Vec<Outcome>>, Failed>> {
        Box::pin(async move { self.run_put(false, puts, bounds, false).await })
    }

    fn put_each<'a>(&'a self, puts: &'a [Put], bounds: Bounds) -> BoxFuture<'a, Result<Answer<Vec<Outcome>>, Failed>> {
        Box::pin(async move { self.run_put(false, puts, bounds, true).await })
    }

    fn read<'a>(&'a self, names: &'a [Name]) -> BoxFuture<'a, Result<Answer<Vec<NameRows>>, Failed>> {
        Box::pin(async move { self.run_read(false, names).await })
    }

    fn standing<'a>(&'a self, name: &'a Name, place: PartKey, at: Instant) -> BoxFuture<'a, Result<Answer<Standing>, Failed>> {
        Box::pin(self.run_standing(name, place, at))
    }

    fn extend_place<'a>(
        &'a self,
        name: &'a Name,
        place: PartKey,
        left: Duration,
        until: Instant,
    ) -> BoxFuture<'a, Result<bool, Failed>> {
        Box::pin(self.run_extend_place(name, place, left, until))
    }

    fn is_fenced<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool, Failed>> {
        Box::pin(async move {
            let bytes = name.as_str().as_bytes();
            let rows = self.query(&self.texts.fenced, &[(&bytes, Type::BYTEA)]).await?;
            get(rows.first().ok_or_else(too_few)?, 0)
        })
    }

    fn create<'a>(&'a self, names: &'a [Name], versions: &'a [i64]) -> BoxFuture<'a, Result<(), Failed>> {
        Box::pin(async move {
            let bytes: Vec<&[u8]> = names.iter().map(|name| name.as_str().as_bytes()).collect();
            self.query(&self.texts.create, &[(&bytes, Type::BYTEA_ARRAY), (&versions, Type::INT8_ARRAY)]).await.map(drop)
        })
    }

    fn transaction<T: Send + 'static>(
        &self,
        name: Name,
        compute: impl FnOnce(NameRows, Window) -> (T, Option<(Put, Bounds)>) + Send + 'static,
    ) -> BoxFuture<'_, Result<(T, Option<Outcome>), Failed>> {
        Box::pin(async move { super::link::locked(self, &name, compute).await })
    }

    fn versions<'a>(&'a self, names: &'a [Name]) -> BoxFuture<'a, Result<HashMap<Name, Seen>, Failed>> {
        Box::pin(async move {
            let bytes: Vec<&[u8]> = names.iter().map(|name| name.as_str().as_bytes()).collect();
            let mut found: HashMap<Vec<u8>, i64> = HashMap::new();
            for row in self.query(&self.texts.versions, &[(&bytes, Type::BYTEA_ARRAY)]).await? {
                found.insert(get(&row, 0)?, get(&row, 1)?);
            }
            let seen = |name: &Name| found.get(name.as_str().as_bytes()).map(|version| Seen { version: *version, wake: None });
            Ok(names.iter().filter_map(|name| Some((name.clone(), seen(name)?))).collect())
        })
    }

    fn mark<'a>(&'a self, names: &'a [Name], window: i64) -> BoxFuture<'a, Result<(), Failed>> {
        Box::pin(async move {
            let bytes: Vec<&[u8]> = names.iter().map(|name| name.as_str().as_bytes()).collect();
            let versions: Vec<i64> = names.iter().map(|_| self.runtime.client_id().bits() as i64).collect();
            let (names, versions) =
                ((&bytes as &(dyn ToSql + Sync), Type::BYTEA_ARRAY), (&versions as &(dyn ToSql + Sync), Type::INT8_ARRAY));
            self.query(&self.texts.mark, &[names, versions, (&window, Type::INT8)]).await.map(drop)
        })
    }

    fn announce<'a>(&'a self, id: &'a str, ttl: i64, card: &'a [u8]) -> BoxFuture<'a, Result<(), Failed>> {
        Box::pin(async move {
            let parameters: [Parameter<'_>; 3] = [(&id, Type::TEXT), (&ttl, Type::INT8), (&card, Type::BYTEA)];
            self.query(&self.texts.announce, &parameters).await.map(drop)
        })
    }

    fn cards<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<u8>>, Failed>> {
        Box::pin(async move {
            let rows = self.query(&self.texts.cards, &[(&ids, Type::TEXT_ARRAY)]).await?;
            rows.iter().map(|row| get(row, 1)).collect()
        })
    }

    fn names<'a>(&'a self, after: &'a str, prefix: &'a str, limit: usize) -> BoxFuture<'a, Result<Vec<Vec<u8>>, Failed>> {
        Box::pin(async move {
            let (after, prefix) = (after.as_bytes(), prefix.as_bytes());
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let parameters: [Parameter<'_>; 3] = [(&after, Type::BYTEA), (&prefix, Type::BYTEA), (&limit, Type::INT8)];
            self.query(&self.texts.names, &parameters).await?.iter().map(|row| get(row, 0)).collect()
        })
    }

    fn sweep(&self, idle: i64) -> BoxFuture<'_, Result<(), Failed>> {
        Box::pin(async move { self.query(&self.texts.sweep, &[(&idle, Type::INT8)]).await.map(drop) })
    }
}
