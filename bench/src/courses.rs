//! The workloads: who runs what, on which store.

/// How long and how often.
#[derive(Debug)]
pub(crate) struct Pace {
    pub(crate) seconds: f64,
    pub(crate) repeats: usize,
    /// Before the first heat. A Java program needs it longest.
    pub(crate) warm: f64,
    pub(crate) java_warm: f64,
    /// How long many locks are kept: renewed every ten seconds.
    pub(crate) keeping: f64,
    /// How long it may take to get ready.
    pub(crate) starting: f64,
    /// How long after its time a heat may end.
    pub(crate) patience: f64,
}

impl Pace {
    pub(crate) const FULL: Self =
        Self { seconds: 1.5, repeats: 5, warm: 1.0, java_warm: 12.0, keeping: 20.0, starting: 30.0, patience: 15.0 };
    /// What a quick run goes on with when it has taken long.
    pub(crate) const LATE: Self = Self { repeats: 1, ..Self::QUICK };
    pub(crate) const QUICK: Self =
        Self { seconds: 0.4, repeats: 3, warm: 0.2, java_warm: 2.0, keeping: 10.0, starting: 20.0, patience: 8.0 };
}

/// Where the locks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory,
    Sqlite,
    /// So many servers, of which so many are frozen once all have warmed up.
    Redis {
        servers: usize,
        frozen: usize,
    },
    /// A database, with its setting of how soon a commit is durable.
    Sql(Database),
    /// One ZooKeeper server, which waits for the disk at every write, or does not.
    ZooKeeper {
        fsync: bool,
    },
    /// One etcd server.
    Etcd,
    /// Whole commands on a file, started and ended each time.
    Commands,
}

/// Which database, and whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Database {
    Postgres { synchronous: bool },
    MariaDb { flush: u8 },
}

/// What the table of a course shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    Latency,
    Throughput,
    Contention,
    Crowd,
    Keeping,
    Rate,
    Readers,
    /// What was sold under a lock that many want, and what was lost.
    Sales,
    /// Cycles, with what they ask of a database and what it writes for them.
    Statements,
    /// The same of a lock that many want.
    Queue,
}

/// One workload.
#[derive(Debug)]
pub(crate) struct Course {
    /// `a` to `m`, and a digit where one workload is measured in several ways.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) words: &'static [&'static str],
    /// Each with its own connection; they share names.
    pub(crate) processes: usize,
    pub(crate) place: Place,
    pub(crate) shows: Shows,
    pub(crate) who: Vec<&'static str>,
    /// Left out of a quick run.
    thorough: bool,
    /// How many seconds later than others its heats may end: all who wait have to get their turn.
    pub(crate) patience: f64,
}

const ONE: Place = Place::Redis { servers: 1, frozen: 0 };

const OWN: &[&str] = &["mutex", "floor", "redisson", "rueidislock", "redsync", "rslock", "rlock", "redis-py"];
const SHARED: &[&str] = &["mutex", "fair", "redisson", "redisson-fair", "rueidislock", "redsync", "rslock", "rlock", "redis-py"];
const MAJORITY: &[&str] = &["redlock", "rslock", "redsync"];

impl Course {
    fn new(
        id: &'static str,
        title: &'static str,
        words: &'static [&'static str],
        place: Place,
        shows: Shows,
        who: &'static [&'static str],
    ) -> Self {
        Self { id, title, words, processes: 1, place, shows, who: who.to_vec(), thorough: false, patience: 0.0 }
    }

    fn processes(mut self, processes: usize) -> Self {
        self.processes = processes;
        self
    }

    fn thorough(mut self) -> Self {
        self.thorough = true;
        self
    }

    fn patience(mut self, seconds: f64) -> Self {
        self.patience = seconds;
        self
    }

    /// Whether it begins anew each time, one contestant after the other, each on a server of its own: a contestant that keeps many locks keeps them
    /// also while others have their turn, and memory that once was needed is not given back.
    pub(crate) fn begins_anew(&self) -> bool {
        matches!(self.shows, Shows::Keeping | Shows::Crowd)
    }
}

/// A thousand fair waiters leave one after the other when a heat is over.
const DRAINING: f64 = 60.0;

/// The workloads on databases.
fn databases() -> Vec<Course> {
    const POSTGRES: [&str; 4] = ["mutex", "fair", "advisory", "for-update"];
    const MARIADB: [&str; 5] = ["mutex", "no-hint", "fair", "get-lock", "for-update"];
    let on = |synchronous| Place::Sql(Database::Postgres { synchronous });
    let flush = |flush| Place::Sql(Database::MariaDb { flush });
    let (cycle, contend) = (&["cycle", "tasks=1"], &["contend", "tasks=1", "hold=1000"]);
    let course = |id, title, words, place, shows, who: &[&'static str]| Course {
        who: who.to_vec(),
        ..Course::new(id, title, words, place, shows, &[])
    };
    let alone = |id, title, place, who: &[&'static str]| course(id, title, cycle, place, Shows::Statements, who);
    let eight = |id, title, place, who: &[&'static str]| course(id, title, contend, place, Shows::Queue, who).processes(8);
    vec![
        alone("l-pg", "PostgreSQL: one task, one lock", on(true), &["mutex", "fresh", "advisory", "for-update"]),
        alone("l-pg-off", "the same with synchronous_commit=off", on(false), &["mutex", "fresh", "advisory", "for-update"]),
        alone("l-maria", "MariaDB: one task, one lock", flush(1), &["mutex", "fresh", "get-lock", "for-update"]),
        alone("l-maria-2", "the same with flush=2", flush(2), &["mutex", "fresh", "get-lock", "for-update"]),
        eight("l8-pg", "PostgreSQL: 8 processes want one lock for a millisecond", on(true), &POSTGRES),
        eight("l8-pg-off", "the same with synchronous_commit=off", on(false), &POSTGRES),
        eight("l8-maria", "MariaDB: 8 processes want one lock for a millisecond", flush(1), &MARIADB),
        eight("l8-maria-2", "the same with flush=2", flush(2), &MARIADB),
        course("l10-pg", "PostgreSQL: 10 waiters in 10 processes", &["contend"], on(false), Shows::Queue, &["mutex", "fair"])
            .processes(10),
        course(
            "l1000-pg",
            "1,000 waiters in 50 processes",
            &["contend", "tasks=20"],
            on(false),
            Shows::Queue,
            &["mutex", "fair"],
        )
        .processes(50)
        .patience(DRAINING),
        course("l10-maria", "MariaDB: 10 waiters in 10 processes", &["contend"], flush(2), Shows::Queue, &["mutex", "fair"])
            .processes(10),
        course(
            "l1000-maria",
            "1,000 waiters in 50 processes",
            &["contend", "tasks=20"],
            flush(2),
            Shows::Queue,
            &["mutex", "fair"],
        )
        .processes(50)
        .patience(DRAINING),
        course(
            "lk-pg",
            "PostgreSQL: 10,000 locks held and kept alive",
            &["keep", "held=10000", "tasks=64"],
            on(false),
            Shows::Keeping,
            &["mutex"],
        ),
        course("lk-maria", "MariaDB: the same", &["keep", "held=10000", "tasks=64"], flush(2), Shows::Keeping, &["mutex"]),
    ]
}

/// The stores whose locks are queues of nodes.
fn queues() -> [Course; 5] {
    let zookeeper = |fsync| Place::ZooKeeper { fsync };
    let (one, eight): (&'static [&'static str], &'static [&'static str]) = (&["cycle", "tasks=1"], &["contend", "tasks=8"]);
    let (java, go): (&'static [&'static str], &'static [&'static str]) =
        (&["mutex", "curator"], &["mutex", "etcd-go", "etcd-rpc"]);
    [
        Course::new("m-zk", "one task, one lock, on ZooKeeper without fsync", one, zookeeper(false), Shows::Throughput, java),
        Course::new("m-zk-fsync", "one task, one lock, on ZooKeeper with fsync", one, zookeeper(true), Shows::Throughput, java),
        Course::new(
            "m-zk8",
            "8 tasks of one process want one lock, on ZooKeeper",
            eight,
            zookeeper(false),
            Shows::Contention,
            java,
        ),
        Course::new("m-etcd", "one task, one lock, on etcd", one, Place::Etcd, Shows::Throughput, go),
        Course::new("m-etcd8", "8 tasks of one process want one lock, on etcd", eight, Place::Etcd, Shows::Contention, go),
    ]
}

/// All of them, in the order of the page.
pub(crate) fn all(quick: bool) -> Vec<Course> {
    use Shows::{Contention, Crowd, Keeping, Latency, Rate, Readers, Sales, Throughput};
    let degraded = |servers, frozen| Place::Redis { servers, frozen };
    let all = vec![
        Course::new(
            "a",
            "one task, one lock",
            &["cycle", "tasks=1"],
            ONE,
            Latency,
            &["pings", "mutex", "floor", "redisson", "rueidislock", "redsync", "rslock", "rlock", "redis-py"],
        ),
        Course::new("b16", "16 tasks, each its own lock", &["cycle", "tasks=16"], ONE, Throughput, OWN).thorough(),
        Course::new("b64", "64 tasks, each its own lock", &["cycle", "tasks=64"], ONE, Throughput, OWN),
        Course::new("b512", "512 tasks, each its own lock", &["cycle", "tasks=512"], ONE, Throughput, OWN),
        Course::new("c2", "2 tasks of one process want one lock", &["contend", "tasks=2"], ONE, Contention, SHARED).thorough(),
        Course::new("c8", "8 tasks of one process want one lock", &["contend", "tasks=8"], ONE, Contention, SHARED).thorough(),
        Course::new("c64", "64 tasks of one process want one lock", &["contend", "tasks=64"], ONE, Contention, SHARED),
        Course::new(
            "c2p",
            "2 processes want one lock, each for a millisecond, and again at once",
            &["contend", "tasks=1", "hold=1000"],
            ONE,
            Contention,
            SHARED,
        )
        .processes(2)
        .thorough(),
        Course::new(
            "c8r",
            "8 processes want one lock, each for a millisecond, and again after five",
            &["contend", "tasks=1", "hold=1000", "rest=5000"],
            ONE,
            Contention,
            SHARED,
        )
        .processes(8),
        Course::new(
            "c8p",
            "8 processes want one lock, each for a millisecond, and again at once",
            &["contend", "tasks=1", "hold=1000"],
            ONE,
            Contention,
            SHARED,
        )
        .processes(8),
        Course::new(
            "c64p",
            "64 processes want one lock, each for a millisecond, and again at once; without those on virtual machines of their own",
            &["contend", "tasks=1", "hold=1000"],
            ONE,
            Contention,
            &["mutex", "fair", "rueidislock", "redsync", "rslock", "rlock"],
        )
        .processes(64)
        .thorough(),
        Course::new(
            "d",
            "10,000 tasks of one process wait for one lock",
            &["crowd", "tasks=10000"],
            ONE,
            Crowd,
            &["mutex"],
        ),
        Course::new("d-fair100", "100 tasks of one process wait in order", &["crowd", "tasks=100"], ONE, Crowd, &["fair"]).thorough(),
        Course::new("d-fair", "1,000 tasks of one process wait in order", &["crowd", "tasks=1000"], ONE, Crowd, &["fair"]),
        Course::new("d-fair10k", "10,000 tasks of one process wait in order", &["crowd", "tasks=10000"], ONE, Crowd, &["fair"])
            .thorough(),
        Course::new(
            "e",
            "100,000 locks held and kept alive",
            &["keep", "held=100000", "tasks=64"],
            ONE,
            Keeping,
            &["mutex", "redisson"],
        ),
        Course::new("e-memory", "the same in memory", &["keep", "held=100000", "tasks=64"], Place::Memory, Keeping, &["mutex"])
            .thorough(),
        Course::new("f", "taking a lock that one holds", &["reenter", "tasks=1"], ONE, Rate, &["owner", "guard", "redisson"]),
        Course::new(
            "g",
            "64 readers and one writer",
            &["readers", "tasks=65"],
            ONE,
            Readers,
            &["rwlock", "redisson-rw", "rlock-rw"],
        ),
        Course::new(
            "g2",
            "64 readers and a writer that rests for 20 ms after each turn",
            &["readers", "tasks=65", "rest=20000"],
            ONE,
            Readers,
            &["rwlock", "rlock-rw"],
        )
        .thorough(),
        Course::new("h", "64 tasks want one of 8 permits", &["contend", "tasks=64"], ONE, Rate, &["permit", "redisson-permit"]),
        Course::new("h8", "8 tasks on 8 permits", &["contend", "tasks=8"], ONE, Rate, &["permit", "redisson-permit"]).thorough(),
        Course::new("i3", "majority of three servers", &["cycle", "tasks=1"], degraded(3, 0), Latency, MAJORITY),
        Course::new(
            "i3-frozen",
            "majority of three servers, one of them frozen",
            &["cycle", "tasks=1"],
            degraded(3, 1),
            Latency,
            MAJORITY,
        ),
        Course::new("i5", "majority of five servers", &["cycle", "tasks=1"], degraded(5, 0), Latency, MAJORITY),
        Course::new(
            "i5-frozen",
            "majority of five servers, two of them frozen",
            &["cycle", "tasks=1"],
            degraded(5, 2),
            Latency,
            MAJORITY,
        ),
        Course::new(
            "j-memory",
            "one task, one lock, in memory",
            &["cycle", "tasks=1"],
            Place::Memory,
            Latency,
            &["mutex", "lease", "tokio"],
        ),
        Course::new(
            "j-reentry",
            "taking a lock that one holds, in memory",
            &["reenter", "tasks=1"],
            Place::Memory,
            Rate,
            &["owner", "guard"],
        ),
        Course::new(
            "j-sqlite",
            "one task, one lock, in a file",
            &["cycle", "tasks=1"],
            Place::Sqlite,
            Latency,
            &["mutex", "store", "flock"],
        ),
        Course::new("j-open", "open the file, lock, release, close", &["open", "tasks=1"], Place::Sqlite, Latency, &["mutex"]),
        Course::new(
            "j-two",
            "2 processes want one lock in a file, each for a millisecond, and again at once",
            &["contend", "tasks=1", "hold=1000"],
            Place::Sqlite,
            Contention,
            &["fair", "mutex", "store", "flock"],
        )
        .processes(2),
        Course::new(
            "j-run",
            "a whole command under a lock in a file",
            &[],
            Place::Commands,
            Latency,
            &["true", "flock-run", "run"],
        ),
        Course::new(
            "k",
            "a hot name: 64 tasks in each of 8 processes sell from one stock, which each reads and then writes under the lock",
            &["contend", "tasks=64", "sell=1"],
            ONE,
            Sales,
            &["mutex", "redisson", "rslock", "redsync"],
        )
        .processes(8)
        .thorough(),
    ];
    let all = all.into_iter().chain(databases()).chain(queues());
    let mut all: Vec<Course> = all.filter(|course| !(quick && course.thorough)).collect();
    if quick {
        // Slow to start, or slow to take a hundred thousand locks.
        let left_out = |course, who| {
            matches!((course, who), (_, "redisson-fair" | "redis-py") | ("e", "redisson") | ("c64" | "c8r" | "c8p", "redsync"))
        };
        for course in &mut all {
            course.who.retain(|who| !left_out(course.id, *who));
        }
    }
    all
}
