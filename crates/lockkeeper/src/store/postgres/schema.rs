//! The tables, and the text of every statement on them.

use super::config::{Config, quoted};
use super::waiting;

/// The layout of the tables. A newer one is refused.
pub(super) const LAYOUT: i32 = 1;

/// The server's clock, in µs since 1970. Unlike `now()` it is read when it is reached, after a row lock was waited for.
pub(super) const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::int8";

/// No statement waits for a row longer than this. Set inside each statement: a setting of the session would not survive a pooler.
const WAIT: &str = "cfg AS MATERIALIZED (SELECT set_config('lock_timeout', '100ms', true) AS t)";

/// The same for what may be lost in a crash: the server answers before it is on disk. It holds for this transaction alone.
pub(super) const WAIT_UNSYNCED: &str = "cfg AS MATERIALIZED (SELECT set_config('lock_timeout', '100ms', true) \
     || set_config('synchronous_commit', 'off', true) AS t)";

/// The last token of rows that were removed. A subquery: a joined table would be guessed to have a thousand rows, and the statement to be
/// worth compiling, which takes two seconds.
pub(super) const FLOOR: &str = "coalesce((SELECT floor FROM {store}), 0)";

const HEAD: &str = "CREATE TABLE IF NOT EXISTS {head} (
    name bytea PRIMARY KEY,
    version int8 NOT NULL,
    token int8 NOT NULL,
    body text,
    touched int8 NOT NULL,
    watched int8 NOT NULL DEFAULT 0,
    watcher int8 NOT NULL DEFAULT 0,
    others int8 NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)";

const PART: &str = "CREATE TABLE IF NOT EXISTS {part} (
    name bytea NOT NULL,
    role int2 NOT NULL,
    seq int8 NOT NULL,
    owner text COLLATE \"C\" NOT NULL,
    expires int8 NOT NULL,
    detail text NOT NULL,
    PRIMARY KEY (name, role, seq, owner)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)";

const CLIENT: &str = "CREATE TABLE IF NOT EXISTS {client} (id text PRIMARY KEY, ends int8 NOT NULL, card bytea NOT NULL)";

const STORE: &str = "CREATE TABLE IF NOT EXISTS {store} (
    one int2 PRIMARY KEY CHECK (one = 1),
    layout int4 NOT NULL,
    id text NOT NULL,
    floor int8 NOT NULL
)";

/// Finds no row, and fails where a column is missing or has another type: a table of another shape is told of when connecting.
const SHAPE: &str = "SELECT FROM {head} h, {part} p, {client} c
    WHERE (h.name, h.version, h.token, h.body, h.touched, h.watched, h.watcher, h.others)
            = (''::bytea, 0::int8, 0::int8, ''::text, 0::int8, 0::int8, 0::int8, 0::int8)
        AND (p.name, p.role, p.seq, p.owner, p.expires, p.detail) = (''::bytea, 0::int2, 0::int8, ''::text, 0::int8, ''::text)
        AND (c.id, c.ends, c.card) = (''::text, 0::int8, ''::bytea)";

/// Whether anybody waits for everything at a row, and whether somebody does who is not of this store.
const WAITED_FOR: &str = "greatest(r.watched, r.others) > t.us";
const OTHERS_WAIT: &str = "CASE WHEN r.watcher = {instance} THEN r.others ELSE r.watched END > t.us";

/// The statements of a store, with the names of its tables in them.
#[derive(Debug)]
pub(super) struct Texts {
    tables: [(&'static str, String); 4],
    create_schema: Option<String>,
    pub(super) facts: String,
    pub(super) rights: String,
    pub(super) shape: String,
    pub(super) insert: String,
    puts: [String; 16],
    put_ones: [String; 8],
    pub(super) lock: String,
    pub(super) fenced: String,
    pub(super) read: String,
    pub(super) standing: String,
    pub(super) extend_place: String,
    pub(super) create: String,
    pub(super) mark: String,
    pub(super) unmark: String,
    pub(super) announce: String,
    pub(super) cards: String,
    pub(super) names: String,
    pub(super) versions: String,
    pub(super) sweep: String,
}

/// How a [`Texts::put`] works.
#[derive(Clone, Copy, Debug)]
pub(super) struct PutKind {
    /// Writes each row by itself, and skips those that others have locked; else all or nothing.
    pub(super) each: bool,
    /// Locks rows `FOR UPDATE`, so that a grant waits for transactions that hold a key share of the row.
    pub(super) grants: bool,
    /// Writes part rows too.
    pub(super) parts: bool,
    /// Is on disk before it is answered, as the server is configured; else the server writes it soon.
    pub(super) lasting: bool,
}

impl PutKind {
    /// Without `each`.
    fn bits(self) -> usize {
        usize::from(self.grants) | usize::from(self.parts) << 1 | usize::from(self.lasting) << 2
    }

    fn wait(self) -> &'static str {
        if self.lasting { WAIT } else { WAIT_UNSYNCED }
    }
}

impl Texts {
    /// `instance` tells the store that runs them from others, in marks of names that are waited for.
    pub(super) fn new(config: &Config, instance: i64) -> Self {
        let tables = ["head", "part", "client", "store"].map(|name| (name, config.table(name)));
        let fill = |text: &str| filled(text, &tables).replace("{instance}", &format!("({instance})::int8"));
        let kind =
            |bits: usize| PutKind { each: bits & 1 != 0, grants: bits & 2 != 0, parts: bits & 4 != 0, lasting: bits & 8 != 0 };
        Self {
            create_schema: config.schema.as_deref().map(|schema| format!("CREATE SCHEMA IF NOT EXISTS {}", quoted(schema))),
            facts: fill("SELECT layout, id FROM {store}"),
            rights: super::rights::query(|name| config.table(name)),
            shape: fill(SHAPE),
            insert: fill(&insert()),
            puts: std::array::from_fn(|bits| fill(&put(kind(bits)))),
            put_ones: std::array::from_fn(|bits| fill(&put_one(kind(bits << 1)))),
            // As a step that does not grant: it passes a fenced transaction. A put that grants locks the row again, `FOR UPDATE`.
            lock: fill("SELECT version FROM {head} WHERE name = $1 FOR NO KEY UPDATE"),
            // A key share keeps out `FOR UPDATE` only; the lock of a step keeps out both.
            fenced: fill(
                "WITH free AS MATERIALIZED (SELECT FROM {head} WHERE name = $1 FOR UPDATE SKIP LOCKED),
                 passes AS MATERIALIZED (SELECT FROM {head} WHERE name = $1 FOR NO KEY UPDATE SKIP LOCKED)
                 SELECT NOT EXISTS (SELECT FROM free) AND EXISTS (SELECT FROM passes)",
            ),
            read: fill(&format!(
                "SELECT h.version, coalesce(h.token, {FLOOR}), h.body, {}, {CLOCK}
                 FROM unnest($1::bytea[]) WITH ORDINALITY AS n(name, place) LEFT JOIN {{head}} h ON h.name = n.name ORDER BY n.place",
                parts("n.name")
            )),
            standing: fill(&waiting::standing()),
            extend_place: fill(&waiting::extend_place()),
            create: fill(&format!(
                "WITH {WAIT}
                 INSERT INTO {{head}} (name, version, token, touched)
                 SELECT n.name, n.version, {FLOOR}, {CLOCK} FROM cfg, unnest($1::bytea[], $2::int8[]) AS n(name, version)
                 WHERE cfg.t <> '' ORDER BY n.name ON CONFLICT (name) DO NOTHING"
            )),
            // The row is locked, as by steps: a release before it is seen by the next acquire, and one after it sees the mark.
            // A crash may forget a mark: clients mark anew when they listen again.
            mark: fill(&format!(
                "WITH {WAIT_UNSYNCED}, t AS MATERIALIZED (SELECT {CLOCK} AS us)
                 INSERT INTO {{head}} AS h (name, version, token, touched, watched, watcher)
                 SELECT n.name, n.version, {FLOOR}, t.us, t.us + $3, {{instance}}
                 FROM cfg, t, unnest($1::bytea[], $2::int8[]) AS n(name, version) WHERE cfg.t <> '' ORDER BY n.name
                 ON CONFLICT (name) DO UPDATE SET watched = greatest(h.watched, excluded.watched), watcher = excluded.watcher,
                     others = CASE WHEN h.watcher <> excluded.watcher THEN greatest(h.others, h.watched) ELSE h.others END
                 RETURNING h.name, h.watched"
            )),
            unmark: fill(&format!(
                "WITH {WAIT_UNSYNCED}
                 UPDATE {{head}} SET watched = 0 FROM cfg
                 WHERE cfg.t <> '' AND name = $1 AND watcher = {{instance}} AND watched <= $2 AND others <= {CLOCK}"
            )),
            announce: fill(&format!(
                "INSERT INTO {{client}} (id, ends, card) VALUES ($1, {CLOCK} + $2, $3)
                 ON CONFLICT (id) DO UPDATE SET ends = excluded.ends, card = excluded.card"
            )),
            cards: fill(&format!("SELECT id, card FROM {{client}} WHERE id = ANY($1) AND ends > {CLOCK}")),
            versions: fill("SELECT name, version FROM {head} WHERE name = ANY($1)"),
            names: fill("SELECT name FROM {head} WHERE name > $1 AND name >= $2 AND body IS NOT NULL ORDER BY name LIMIT $3"),
            sweep: fill(&format!(
                "WITH t AS MATERIALIZED (SELECT {CLOCK} AS us),
                 cards AS (DELETE FROM {{client}} USING t WHERE ends <= t.us),
                 idle AS MATERIALIZED (SELECT h.name, h.token FROM {{head}} h, t
                     WHERE h.body IS NULL AND h.touched < t.us - $1 AND h.watched <= t.us AND h.token < t.us - $1
                     LIMIT 1000 FOR UPDATE OF h SKIP LOCKED),
                 floor AS (UPDATE {{store}} SET floor = greatest(floor, (SELECT max(token) FROM idle)) WHERE EXISTS (SELECT FROM idle))
                 DELETE FROM {{head}} h USING idle WHERE h.name = idle.name"
            )),
            tables,
        }
    }

    /// What creates everything; also what an administrator is told to run.
    pub(super) fn create_all(&self) -> String {
        // The id is random: it tells stores apart. `gen_random_uuid` is not in PostgreSQL 12.
        let first = format!(
            "INSERT INTO {{store}} (one, layout, id, floor)
    VALUES (1, {LAYOUT}, md5(random()::text || clock_timestamp()::text || pg_backend_pid()::text)::uuid::text, 0)
    ON CONFLICT (one) DO NOTHING"
        );
        let tables = [HEAD, PART, CLIENT, STORE, &first].map(|text| filled(text, &self.tables));
        self.create_schema.iter().cloned().chain(tables).collect::<Vec<_>>().join(";\n")
    }

    pub(super) fn put(&self, kind: PutKind) -> &str {
        &self.puts[usize::from(kind.each) | kind.bits() << 1]
    }

    /// As [`Texts::put`], of one row.
    pub(super) fn put_one(&self, kind: PutKind) -> &str {
        &self.put_ones[kind.bits()]
    }
}

fn filled(text: &str, tables: &[(&'static str, String)]) -> String {
    tables.iter().fold(text.to_owned(), |text, (name, table)| text.replace(&format!("{{{name}}}"), table))
}

/// The parts of a name as one value, by the same snapshot as the head row: both are written by one statement, so they fit together.
fn parts(name: &str) -> String {
    format!(
        "(SELECT json_agg(json_build_array(p.role, p.seq, p.owner, p.expires, p.detail))::text FROM {{part}} p WHERE p.name = {name})"
    )
}

/// Creates a row. `$1` name, `$2` version, `$3` token, `$4` body, `$5` earliest, `$6` until, `$7`… part rows.
///
/// An insert waits for another one of the same name, so the time is compared again afterwards. The division undoes the statement.
fn insert() -> String {
    format!(
        "WITH {WAIT}, t AS MATERIALIZED (SELECT {CLOCK} AS us),
         ins AS (INSERT INTO {{head}} (name, version, token, body, touched)
             SELECT $1, $2, greatest($3, {FLOOR}), $4, t.us FROM cfg, t
             WHERE cfg.t <> '' AND t.us BETWEEN $5 AND $6 AND ($3 = 0 OR $3 > {FLOOR})
             ON CONFLICT (name) DO NOTHING RETURNING token),
         up AS (INSERT INTO {{part}} (name, role, seq, owner, expires, detail)
             SELECT u.* FROM unnest($7::bytea[], $8::int2[], $9::int8[], $10::text[], $11::int8[], $12::text[]) AS u
             WHERE EXISTS (SELECT FROM ins)
             ON CONFLICT (name, role, seq, owner) DO UPDATE SET expires = excluded.expires, detail = excluded.detail),
         fine AS MATERIALIZED (SELECT 1 / (CASE WHEN {CLOCK} <= $6 THEN 1 ELSE 0 END) AS fine, token FROM ins)
         SELECT fine.fine, fine.token, h.version, coalesce(h.token, {FLOOR}), h.body,
             CASE WHEN fine.fine IS NULL THEN {} END, {CLOCK}
         FROM t LEFT JOIN fine ON true LEFT JOIN {{head}} h ON h.name = $1",
        parts("$1")
    )
}

/// Writes rows that exist. `$1` names, `$2` versions, `$3` next versions, `$4` tokens, `$5` bodies, `$6` payloads, `$7` and `$8`
/// whether to tell all and the head of the queue, `$9` earliest, `$10` until, `$11` channel, `$12` how many must fit, `$13`… part rows.
///
/// The clock is read after all rows are locked. `r` has the rows as they are then; what a refusal answers is of one snapshot.
/// `IN … IS TRUE` keeps the planner from joining: a hash of a thousand names, not a thousand times a thousand.
fn put(kind: PutKind) -> String {
    let strength = if kind.grants { "UPDATE" } else { "NO KEY UPDATE" };
    let skip = if kind.each { " SKIP LOCKED" } else { "" };
    let changed_parts = if kind.parts {
        "up AS (INSERT INTO {part} (name, role, seq, owner, expires, detail)
             SELECT u.* FROM unnest($13::bytea[], $14::int2[], $15::int8[], $16::text[], $17::int8[], $18::text[])
                 AS u(name, role, seq, owner, expires, detail) WHERE (u.name IN (SELECT name FROM put)) IS TRUE
             ON CONFLICT (name, role, seq, owner) DO UPDATE SET expires = excluded.expires, detail = excluded.detail),
         del AS (DELETE FROM {part} p USING unnest($19::bytea[], $20::int2[], $21::int8[], $22::text[]) AS d(name, role, seq, owner)
             WHERE (d.name IN (SELECT name FROM put)) IS TRUE
                 AND p.name = d.name AND p.role = d.role AND p.seq = d.seq AND p.owner = d.owner),"
    } else {
        ""
    };
    let wait = kind.wait();
    format!(
        "WITH {wait},
         w AS MATERIALIZED (SELECT * FROM unnest($1::bytea[], $2::int8[], $3::int8[], $4::int8[], $5::text[], $6::text[], $7::bool[],
             $8::bool[]) WITH ORDINALITY AS w(name, known, next, token, body, payload, tell_all, tell_head, place)),
         r AS MATERIALIZED (SELECT w.*, h.version, h.watched, h.watcher, h.others FROM cfg, w, {{head}} h
             WHERE h.name = w.name AND cfg.t <> '' ORDER BY h.name FOR {strength} OF h{skip}),
         fit AS MATERIALIZED (SELECT count(*) AS n FROM r WHERE r.version = r.known),
         t AS MATERIALIZED (SELECT {CLOCK} AS us, n FROM fit),
         put AS (UPDATE {{head}} h SET version = r.next, token = greatest(h.token, r.token), body = r.body, touched = t.us FROM r, t
             WHERE h.name = r.name AND r.version = r.known AND t.n >= $12 AND t.us BETWEEN $9 AND $10
             RETURNING h.name, r.place, h.token, r.payload,
                 r.tell_head OR (r.tell_all AND {WAITED_FOR}) AS tell,
                 (r.tell_all AND {OTHERS_WAIT})::int4 + r.tell_head::int4 AS woke),
         {changed_parts}
         done AS MATERIALIZED (SELECT put.*, CASE WHEN tell THEN pg_notify($11, payload)::text END AS told FROM put)
         SELECT done.place, done.token, done.woke, done.told, NULL::int8, 0::int8, NULL::text, NULL::text, t.us FROM done, t
         UNION ALL
         SELECT w.place, NULL, NULL, NULL, h.version, coalesce(h.token, {FLOOR}), h.body, {}, t.us
         FROM w CROSS JOIN t LEFT JOIN {{head}} h ON h.name = w.name
         WHERE w.place NOT IN (SELECT place FROM done)",
        parts("w.name")
    )
}

/// As [`put`], of one row, which is what most steps write: a quarter of its cost. `$1` to `$11` are single values; `$12`… part rows.
///
/// One that is refused has locked the row, which the server logs. Its commit does not wait for the disk: those that come second at a contested name
/// would do so one after the other, each with the row locked.
fn put_one(kind: PutKind) -> String {
    let strength = if kind.grants { "UPDATE" } else { "NO KEY UPDATE" };
    let changed_parts = if kind.parts {
        "up AS (INSERT INTO {part} (name, role, seq, owner, expires, detail)
             SELECT $1, u.* FROM unnest($12::int2[], $13::int8[], $14::text[], $15::int8[], $16::text[]) AS u
             WHERE EXISTS (SELECT FROM put)
             ON CONFLICT (name, role, seq, owner) DO UPDATE SET expires = excluded.expires, detail = excluded.detail),
         del AS (DELETE FROM {part} p USING unnest($17::int2[], $18::int8[], $19::text[]) AS d(role, seq, owner)
             WHERE EXISTS (SELECT FROM put) AND p.name = $1 AND p.role = d.role AND p.seq = d.seq AND p.owner = d.owner),"
    } else {
        ""
    };
    let wait = kind.wait();
    format!(
        "WITH {wait},
         r AS MATERIALIZED (SELECT h.version, h.token, h.body, h.watched, h.watcher, h.others FROM cfg, {{head}} h
             WHERE h.name = $1 AND cfg.t <> '' FOR {strength} OF h),
         fit AS MATERIALIZED (SELECT count(*) AS n FROM r WHERE r.version = $2),
         t AS MATERIALIZED (SELECT {CLOCK} AS us, n FROM fit),
         put AS (UPDATE {{head}} h SET version = $3, token = greatest(h.token, $4), body = $5, touched = t.us FROM r, t
             WHERE h.name = $1 AND t.n = 1 AND t.us BETWEEN $9 AND $10
             RETURNING h.token, $8 OR ($7 AND {WAITED_FOR}) AS tell, ($7 AND {OTHERS_WAIT})::int4 + $8::int4 AS woke),
         {changed_parts}
         done AS MATERIALIZED (SELECT put.*, CASE WHEN tell THEN pg_notify($11, $6)::text END AS told FROM put)
         SELECT done.token, done.woke, done.told, r.version, coalesce(r.token, {FLOOR}), r.body,
             CASE WHEN done.token IS NULL THEN {} END, t.us, r.version IS NOT DISTINCT FROM h.version,
             CASE WHEN done.token IS NULL THEN set_config('synchronous_commit', 'off', true) END
         FROM t LEFT JOIN done ON true LEFT JOIN r ON true LEFT JOIN {{head}} h ON h.name = $1 AND done.token IS NULL",
        parts("$1")
    )
}
