//! The tables, and the text of every statement on them.

use std::fmt::Write as _;
use std::time::Duration;

use mysql_async::Row;

use super::config::Config;
use super::conn::Batch;
use super::rows::get;
use crate::name::Name;
use crate::store::sql::rows::PartKey;
use crate::store::sql::text;
use crate::store::sql::{Bounds, Put};

/// The layout of the tables. A newer one is refused.
pub(super) const LAYOUT: i32 = 1;

/// The server's clock, in µs since 1970. `NOW` is the time at which a statement began: one that waited would seem to be in time.
pub(super) const CLOCK: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6))";

/// The tables and their columns.
pub(super) const TABLES: [(&str, &str, &str); 5] = [
    (
        "head",
        "name, version, token, body, touched, woken_all, woken_head_version, woken_head, watched, watcher, others",
        "name VARBINARY(512) NOT NULL PRIMARY KEY, version BIGINT NOT NULL, token BIGINT NOT NULL, body MEDIUMBLOB, \
         touched BIGINT NOT NULL, woken_all BIGINT NOT NULL DEFAULT 0, woken_head_version BIGINT NOT NULL DEFAULT 0, \
         woken_head VARBINARY(64), watched BIGINT NOT NULL DEFAULT 0, watcher BIGINT NOT NULL DEFAULT 0, others BIGINT NOT NULL DEFAULT 0",
    ),
    (
        "part",
        "name, role, seq, owner, expires, detail",
        "name VARBINARY(512) NOT NULL, role TINYINT NOT NULL, seq BIGINT NOT NULL, owner VARBINARY(64) NOT NULL, \
         expires BIGINT NOT NULL, detail BLOB NOT NULL, PRIMARY KEY (name, role, seq, owner)",
    ),
    ("fence", "name, token", "name VARBINARY(512) NOT NULL PRIMARY KEY, token BIGINT NOT NULL"),
    ("client", "id, ends, card", "id VARBINARY(64) NOT NULL PRIMARY KEY, ends BIGINT NOT NULL, card BLOB NOT NULL"),
    (
        "store",
        "one, layout, id, floor",
        "one TINYINT NOT NULL PRIMARY KEY, layout INT NOT NULL, id VARBINARY(64) NOT NULL, floor BIGINT NOT NULL",
    ),
];

/// The statements of a store, with the names of its tables in them.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) head: String,
    pub(super) part: String,
    fence: String,
    client: String,
    pub(super) store: String,
    /// Tells this store from others, in marks of names that are waited for.
    instance: i64,
    /// Names of named locks begin with it. They are known to the whole server.
    hints: String,
}

/// A value as statements have it.
fn hex(bytes: &[u8]) -> String {
    format!("x'{}'", text::hex(bytes))
}

pub(super) fn of(name: &Name) -> String {
    hex(name.as_str().as_bytes())
}

fn list(names: &[Name]) -> String {
    names.iter().map(of).collect::<Vec<_>>().join(",")
}

fn body(put: &Put) -> String {
    put.body.as_ref().map_or_else(|| "NULL".to_owned(), |body| hex(body.as_bytes()))
}

/// What a step writes to the columns that waiters look at: who became grantable, by the version that says so. Zero stands for nobody.
fn woken(put: &Put) -> (i64, i64, String) {
    let all = if put.wake.all { put.next } else { 0 };
    let head = put.wake.head.map(|head| hex(head.to_string().as_bytes()));
    (all, if head.is_some() { put.next } else { 0 }, head.unwrap_or_else(|| "NULL".to_owned()))
}

impl Texts {
    pub(super) fn new(config: &Config, instance: i64) -> Self {
        let [head, part, fence, client, store] = ["head", "part", "fence", "client", "store"].map(|name| config.table(name));
        Self { head, part, fence, client, store, instance, hints: config.full_table("head") }
    }

    /// The name of the named lock of a name: at most 64 characters, and ours. Two names that share one look too often, and no more.
    fn hint_name(&self, name: &Name) -> String {
        // FNV-1a: clients of all versions and machines must agree.
        let bytes = self.hints.bytes().chain(name.as_str().bytes());
        let sum = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        format!("'lockkeeper:{sum:016x}'")
    }

    pub(super) fn hint(&self, name: &Name, wait: Duration) -> String {
        format!("SELECT GET_LOCK({}, {})", self.hint_name(name), wait.as_secs())
    }

    pub(super) fn unhint(&self, name: &Name) -> String {
        format!("DO RELEASE_LOCK({})", self.hint_name(name))
    }

    /// The statements that create everything; also what an administrator is told to run.
    pub(super) fn create_all(config: &Config) -> Vec<String> {
        let tables = TABLES.map(|(name, _, columns)| {
            format!("CREATE TABLE IF NOT EXISTS {} ({columns}) ENGINE=InnoDB ROW_FORMAT=DYNAMIC", config.table(name))
        });
        let first = format!(
            "INSERT INTO {} (one, layout, id, floor) VALUES (1, {LAYOUT}, UUID(), 0) ON DUPLICATE KEY UPDATE one = one",
            config.table("store")
        );
        tables.into_iter().chain([first]).collect()
    }

    /// Writes a row that exists, if its version and the time fit. Decides after the row is locked, and for a grant its fence too: a
    /// transaction that is fenced keeps it locked.
    pub(super) fn put_one(&self, batch: &mut Batch, put: &Put, Bounds { earliest, until }: Bounds) {
        let (head, fence, name, token) = (&self.head, &self.fence, of(&put.name), put.token);
        let version = put.version.unwrap_or(0);
        batch.push("SET @lk_v = NULL, @lk_k = 0, @lk_f = NULL, @lk_w = 0");
        batch.push(format!(
            "SELECT version, token, {} INTO @lk_v, @lk_k, @lk_w FROM {head} WHERE name = {name} FOR UPDATE SKIP LOCKED",
            self.others_wait_until()
        ));
        if put.grants {
            batch.push(format!("SELECT token INTO @lk_f FROM {fence} WHERE name = {name} FOR UPDATE SKIP LOCKED"));
        }
        let fenced = if put.grants { " AND @lk_f IS NOT NULL" } else { "" };
        batch.push(format!("SET @lk_t = {CLOCK}"));
        batch.push(format!("SET @lk_ok = IFNULL(@lk_v = {version} AND @lk_t BETWEEN {earliest} AND {until}{fenced}, 0)"));
        let (all, head_version, woken_head) = woken(put);
        let mut set = format!("version = {}, token = GREATEST(token, {token}), body = {}, touched = @lk_t", put.next, body(put));
        if all != 0 {
            let _ = write!(set, ", woken_all = {all}");
        }
        if head_version != 0 {
            let _ = write!(set, ", woken_head_version = {head_version}, woken_head = {woken_head}");
        }
        batch.push(format!("UPDATE {head} SET {set} WHERE name = {name} AND @lk_ok = 1"));
        if put.grants {
            batch.push(format!("UPDATE {fence} SET token = GREATEST(@lk_k, {token}) WHERE name = {name} AND @lk_ok = 1"));
        }
        self.parts_if_ok(batch, put);
        batch.commit();
        // Locked: the row is there and was skipped, or only the fence keeps the grant out.
        let skipped = if put.grants { format!("IFNULL(@lk_v = {version} AND @lk_f IS NULL, 0)") } else { "0".to_owned() };
        let woke = if put.wake.all { "(@lk_w > @lk_t)" } else { "0" };
        batch.push(format!(
            "SELECT @lk_ok, GREATEST(@lk_k, {token}), {woke} + {}, \
             {skipped} OR (@lk_v IS NULL AND EXISTS (SELECT 1 FROM {head} WHERE name = {name}))",
            u32::from(put.wake.head.is_some())
        ));
        self.read(batch, std::slice::from_ref(&put.name), "@lk_ok = 0");
    }

    /// Creates a row. It waits for another insert of the same name, so the time is compared again afterwards.
    pub(super) fn insert(&self, batch: &mut Batch, put: &Put, Bounds { earliest, until }: Bounds) {
        let (head, fence, store, name, token) = (&self.head, &self.fence, &self.store, of(&put.name), put.token);
        let (all, head_version, woken_head) = woken(put);
        batch.push("SET @lk_v = NULL, @lk_k = 0");
        batch.push(format!("SELECT floor INTO @lk_k FROM {store}"));
        batch.push(format!("SET @lk_t = {CLOCK}"));
        batch.push(format!(
            "INSERT INTO {head} (name, version, token, body, touched, woken_all, woken_head_version, woken_head) \
             SELECT {name}, {}, GREATEST({token}, @lk_k), {}, @lk_t, {all}, {head_version}, {woken_head} FROM DUAL \
             WHERE @lk_t BETWEEN {earliest} AND {until} AND ({token} = 0 OR {token} > @lk_k) \
             AND NOT EXISTS (SELECT 1 FROM {head} AS known WHERE known.name = {name}) \
             ON DUPLICATE KEY UPDATE touched = {head}.touched",
            put.next,
            body(put)
        ));
        batch.push(format!("SELECT version INTO @lk_v FROM {head} WHERE name = {name}"));
        batch.push(format!("SET @lk_ok = IFNULL(@lk_v = {} AND {CLOCK} <= {until}, 0)", put.next));
        batch.push(format!("DELETE FROM {head} WHERE name = {name} AND version = {} AND @lk_ok = 0", put.next));
        let granted = if put.grants { format!("GREATEST({token}, @lk_k)") } else { "0".to_owned() };
        batch.push(format!(
            "INSERT INTO {fence} (name, token) SELECT {name}, {granted} FROM DUAL WHERE @lk_ok = 1 \
             ON DUPLICATE KEY UPDATE token = GREATEST({fence}.token, {granted})"
        ));
        self.parts_if_ok(batch, put);
        batch.commit();
        batch.push(format!("SELECT @lk_ok, GREATEST({token}, @lk_k), 0, 0"));
        self.read(batch, std::slice::from_ref(&put.name), "@lk_ok = 0");
    }

    fn parts_if_ok(&self, batch: &mut Batch, put: &Put) {
        let part = &self.part;
        if !put.parts.is_empty() {
            let name = of(&put.name);
            let rows: Vec<String> = part_values(put, &name).iter().map(|values| format!("SELECT {values}")).collect();
            // The first one names the columns.
            batch.push(format!(
                "INSERT INTO {part} (name, role, seq, owner, expires, detail) \
                 SELECT w.* FROM (SELECT '' AS a, 0 AS b, 0 AS c, '' AS d, 0 AS e, '' AS f FROM DUAL WHERE FALSE UNION ALL {}) AS w WHERE @lk_ok = 1 \
                 ON DUPLICATE KEY UPDATE expires = VALUES(expires), detail = VALUES(detail)",
                rows.join(" UNION ALL ")
            ));
        }
        if !put.deleted.is_empty() {
            batch.push(format!("DELETE FROM {part} WHERE @lk_ok = 1 AND ({})", deleted(std::iter::once(put))));
        }
    }

    /// Until when clients of other stores than this one wait for everything at a row, as far as is known.
    fn others_wait_until(&self) -> String {
        format!("IF(watcher = {}, others, watched)", self.instance)
    }

    /// Locks the rows of some names, in their order, and the fences of some; reads the clock and the rows.
    pub(super) fn lock_many(&self, batch: &mut Batch, names: &[Name], grants: &[Name]) {
        let lock = |columns: &str, table: &str, names: &[Name]| {
            let names = if names.is_empty() { "NULL".to_owned() } else { list(names) };
            format!("SELECT {columns} FROM {table} WHERE name IN ({names}) ORDER BY name FOR UPDATE SKIP LOCKED")
        };
        batch.push(lock(&format!("name, {}", self.others_wait_until()), &self.head, names));
        batch.push(lock("name", &self.fence, grants));
        self.read(batch, names, "TRUE");
    }

    /// Writes rows that are locked.
    pub(super) fn write_many<'a>(&self, batch: &mut Batch, puts: impl Iterator<Item = &'a Put> + Clone, clock: i64) {
        let (head, fence, part) = (&self.head, &self.fence, &self.part);
        let mut heads = Vec::new();
        let mut fences = Vec::new();
        let mut parts = Vec::new();
        for put in puts.clone() {
            let (name, (all, head_version, woken_head)) = (of(&put.name), woken(put));
            let values = format!("{}, {}, {}, {clock}", put.next, put.token, body(put));
            heads.push(format!("({name}, {values}, {all}, {head_version}, {woken_head})"));
            if put.grants {
                fences.push(format!("({name}, {})", put.token));
            }
            parts.extend(part_values(put, &name).into_iter().map(|values| format!("({values})")));
        }
        if heads.is_empty() {
            return;
        }
        batch.push(format!(
            "INSERT INTO {head} (name, version, token, body, touched, woken_all, woken_head_version, woken_head) VALUES {} \
             ON DUPLICATE KEY UPDATE version = VALUES(version), token = GREATEST(token, VALUES(token)), body = VALUES(body), \
             touched = VALUES(touched), woken_all = IF(VALUES(woken_all) = 0, woken_all, VALUES(woken_all)), \
             woken_head = IF(VALUES(woken_head_version) = 0, woken_head, VALUES(woken_head)), \
             woken_head_version = IF(VALUES(woken_head_version) = 0, woken_head_version, VALUES(woken_head_version))",
            heads.join(",")
        ));
        if !fences.is_empty() {
            let rows = fences.join(",");
            batch.push(format!(
                "INSERT INTO {fence} (name, token) VALUES {rows} ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))"
            ));
        }
        if !parts.is_empty() {
            batch.push(format!(
                "INSERT INTO {part} (name, role, seq, owner, expires, detail) VALUES {} \
                 ON DUPLICATE KEY UPDATE expires = VALUES(expires), detail = VALUES(detail)",
                parts.join(",")
            ));
        }
        if puts.clone().any(|put| !put.deleted.is_empty()) {
            batch.push(format!("DELETE FROM {part} WHERE {}", deleted(puts)));
        }
    }

    /// Reads the clock, the last token of removed rows, and all rows of some names by one snapshot.
    pub(super) fn read(&self, batch: &mut Batch, names: &[Name], condition: &str) {
        batch.push(format!("SELECT {CLOCK}, floor FROM {}", self.store));
        batch.push(format!(
            "SELECT h.name, h.version, h.token, h.body, p.role, p.seq, p.owner, p.expires, p.detail \
             FROM {} AS h LEFT JOIN {} AS p ON p.name = h.name WHERE h.name IN ({}) AND {condition}",
            self.head,
            self.part,
            list(names)
        ));
    }

    /// Creates empty rows.
    pub(super) fn create(&self, batch: &mut Batch, names: &[Name], versions: &[i64]) {
        let (head, fence, store) = (&self.head, &self.fence, &self.store);
        let rows: Vec<String> = names
            .iter()
            .zip(versions)
            .map(|(name, version)| format!("SELECT {}, {version}, floor, {CLOCK} FROM {store}", of(name)))
            .collect();
        for row in rows {
            batch.push(format!(
                "INSERT INTO {head} (name, version, token, touched) {row} ON DUPLICATE KEY UPDATE touched = {head}.touched"
            ));
        }
        let rows: Vec<String> = names.iter().map(|name| format!("({}, 0)", of(name))).collect();
        let rows = rows.join(",");
        batch.push(format!("INSERT INTO {fence} (name, token) VALUES {rows} ON DUPLICATE KEY UPDATE token = {fence}.token"));
    }

    /// Marks rows that are locked as waited for.
    pub(super) fn mark(&self, batch: &mut Batch, rows: &[Row], window: i64) {
        let instance = self.instance;
        let names: Vec<String> = rows.iter().filter_map(|row| get::<Vec<u8>>(row, 0).ok()).map(|name| hex(&name)).collect();
        if !names.is_empty() {
            batch.push(format!(
                "UPDATE {} SET others = IF(watcher <> {instance}, GREATEST(others, watched), others), watcher = {instance}, \
                 watched = GREATEST(watched, {CLOCK} + {window}) WHERE name IN ({})",
                self.head,
                names.join(",")
            ));
        }
        batch.commit();
    }

    pub(super) fn versions(&self, names: &[Name]) -> String {
        let (head, names) = (&self.head, list(names));
        format!("SELECT name, version, woken_all, woken_head_version, woken_head FROM {head} WHERE name IN ({names})")
    }

    pub(super) fn announce(&self, id: &str, ttl: i64, card: &[u8]) -> String {
        let (client, id, card) = (&self.client, hex(id.as_bytes()), hex(card));
        format!(
            "INSERT INTO {client} (id, ends, card) VALUES ({id}, {CLOCK} + {ttl}, {card}) \
             ON DUPLICATE KEY UPDATE ends = VALUES(ends), card = VALUES(card)"
        )
    }

    pub(super) fn cards(&self, ids: &[String]) -> String {
        let ids: Vec<String> = ids.iter().map(|id| hex(id.as_bytes())).collect();
        format!("SELECT card FROM {} WHERE id IN ({}) AND ends > {CLOCK}", self.client, ids.join(","))
    }

    pub(super) fn names(&self, after: &str, prefix: &str, limit: usize) -> String {
        let (head, after, prefix) = (&self.head, hex(after.as_bytes()), hex(prefix.as_bytes()));
        format!(
            "SELECT name FROM {head} WHERE name > {after} AND name >= {prefix} AND body IS NOT NULL ORDER BY name LIMIT {limit}"
        )
    }

    /// Removes cards that ended, and finds rows that were empty for `idle` µs. Without locks: most are in use.
    pub(super) fn idle(&self, idle: i64) -> [String; 2] {
        let (client, head) = (&self.client, &self.head);
        [
            format!("DELETE FROM {client} WHERE ends <= {CLOCK}"),
            format!("SELECT h.name FROM {head} AS h WHERE {} LIMIT 500", is_idle(idle)),
        ]
    }

    /// Locks rows that are still idle, with their fences.
    pub(super) fn lock_idle(&self, names: &[Vec<u8>], idle: i64) -> String {
        let names: Vec<String> = names.iter().map(|name| hex(name)).collect();
        format!(
            "SELECT h.name, h.token FROM {} AS h JOIN {} AS f ON f.name = h.name WHERE h.name IN ({}) AND {} ORDER BY h.name \
             FOR UPDATE SKIP LOCKED",
            self.head,
            self.fence,
            names.join(","),
            is_idle(idle)
        )
    }

    /// Removes rows that are locked, and remembers the largest of their tokens.
    pub(super) fn remove(&self, batch: &mut Batch, rows: &[Row]) {
        let names: Vec<String> = rows.iter().filter_map(|row| get::<Vec<u8>>(row, 0).ok()).map(|name| hex(&name)).collect();
        let token = rows.iter().filter_map(|row| get::<i64>(row, 1).ok()).max();
        let (Some(token), false) = (token, names.is_empty()) else { return };
        let names = names.join(",");
        batch.push(format!("UPDATE {} SET floor = GREATEST(floor, {token})", self.store));
        batch.push(format!("DELETE FROM {} WHERE name IN ({names})", self.fence));
        batch.push(format!("DELETE FROM {} WHERE name IN ({names})", self.head));
    }
}

fn is_idle(idle: i64) -> String {
    format!("h.body IS NULL AND h.touched < {CLOCK} - {idle} AND h.token < {CLOCK} - {idle} AND h.watched < {CLOCK}")
}

/// The part rows that a put writes, as lists of values.
fn part_values(put: &Put, name: &str) -> Vec<String> {
    let values = put.parts.iter().map(|row| {
        let (role, seq, owner) = row.part.key();
        // A detail is a plain structure, which can always be written.
        let detail = text::detail(&row.part).unwrap_or_default();
        let (owner, detail) = (hex(owner.to_string().as_bytes()), hex(detail.as_bytes()));
        format!("{name}, {}, {}, {owner}, {}, {detail}", role.number(), seq.cast_signed(), text::nanos(row.part.expires))
    });
    values.collect()
}

/// A condition that only the part rows fulfil which the puts delete.
fn deleted<'a>(puts: impl Iterator<Item = &'a Put>) -> String {
    let rows = puts.flat_map(|put| put.deleted.iter().map(|key| format!("({})", is_part(&put.name, *key))));
    rows.collect::<Vec<_>>().join(" OR ")
}

/// A condition that only one part row fulfils.
pub(super) fn is_part(name: &Name, (role, seq, owner): PartKey) -> String {
    let owner = hex(owner.to_string().as_bytes());
    format!("name = {} AND role = {} AND seq = {} AND owner = {owner}", of(name), role.number(), seq.cast_signed())
}
