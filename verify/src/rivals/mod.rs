//! The control group: other lock libraries under the same workload and the same faults, beside ours.
//!
//! Some processes of one library share a lock. Each acquires it, stays inside for a while, writes to three resources and releases. Meanwhile the one that is
//! inside is paused for longer than its lease, or the server restarts without its data. The resources are here, in a process that nothing
//! happens to, and so is the clock: what is counted is what happened, not what a library believes.

#![allow(clippy::disallowed_methods, reason = "it stands outside the simulation, beside real servers")]

pub mod plot;
mod program;

pub use program::{Rival, Store};

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::server::{Flavour, Server};
use lockkeeper_testkit::signal;

use program::{Answer, Order, Program};

/// What is done while a process is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It stands still (SIGSTOP) for 1.3 leases.
    Pause,
    /// The server is killed, and starts again without data.
    Restart,
}

impl Fault {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Pause, Self::Restart];

    /// Whether it happens on such a store. etcd has a disk.
    #[must_use]
    pub const fn happens_on(self, store: Store) -> bool {
        matches!((self, store), (Self::Pause, _) | (_, Store::Redis))
    }

    /// As the page calls it.
    #[must_use]
    pub const fn shown(self) -> &'static str {
        match self {
            Self::Pause => "holder paused past its lease",
            Self::Restart => "server restarted without data",
        }
    }

    /// How long a process stays inside. Never longer than a lease: some libraries renew nothing.
    const fn inside(self) -> Duration {
        match self {
            Self::Pause => Duration::from_millis(300),
            Self::Restart => Duration::from_millis(1_500),
        }
    }
}

/// The lease of all libraries. Those that renew do so every third of it.
pub const LEASE: Duration = Duration::from_secs(2);

/// So many processes share the lock.
const PROCESSES: usize = 3;

/// What came of a library under a fault.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How often the fault was injected.
    pub faults: u64,
    /// How often a process was inside.
    pub turns: u64,
    /// How many had another come in beside them before they left or were told.
    pub overlaps: u64,
    /// How long two of them were inside and running, in all.
    pub together: Duration,
    /// Updates that were overwritten: by programs that just write, by programs that ask their library right before, and behind a fence.
    pub lost: u64,
    /// See there.
    pub lost_although_asked: u64,
    /// `None` if the library has no tokens.
    pub lost_behind_fence: Option<u64>,
    /// Writes that the fence refused.
    pub refused: u64,
    /// How long after its lock was gone, and it ran, a program was told by itself.
    pub told: Vec<Duration>,
    /// It found out when it released.
    pub told_at_release: u64,
    /// It never did.
    pub never_told: u64,
    /// Calls that the library or the server failed, and calls that did not end.
    pub failed: u64,
    /// See there.
    pub hung: u64,
}

impl Outcome {
    /// One row of the page.
    #[must_use]
    pub fn row(&self, rival: &str, fault: Fault) -> String {
        let mut told = self.told.clone();
        told.sort_unstable();
        let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        let told = match told.len() {
            0 => "–".to_owned(),
            count => format!("{count}, after {:.0} ms (at most {:.0})", millis(told.get(count / 2)), millis(told.last())),
        };
        let fenced = self.lost_behind_fence.map_or("no token".to_owned(), |lost| format!("{lost} ({} refused)", self.refused));
        format!(
            "| {rival} | {} | {} | {} | {} | {:.0} | {} | {} | {fenced} | {told} | {} | {} | {} |",
            fault.shown(),
            self.faults,
            self.turns,
            self.overlaps,
            self.together.as_secs_f64() * 1e3,
            self.lost,
            self.lost_although_asked,
            self.told_at_release,
            self.never_told,
            self.failed + self.hung
        )
    }
}

/// What the columns of [`Outcome::row`] are.
pub const HEAD: &str = "\
| library | fault | faults | turns | overlaps | both inside and running, ms | lost updates | lost, asks before it writes | lost behind a fence | told by itself | told at release | never told | failed calls |
|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// One that is inside.
#[derive(Clone, Copy, Debug, Default)]
struct Inside {
    since: Option<Instant>,
    /// Since when the lock is not its own any more: another came in, or the server forgot.
    gone: Option<Instant>,
    /// Since when another is inside, too.
    beside: Option<Instant>,
    /// It began to release, so that others may come in.
    leaves: Option<Instant>,
    /// It stood still until then.
    resumed: Option<Instant>,
    told: Option<Instant>,
}

#[derive(Debug, Default)]
struct Scene {
    inside: Vec<Inside>,
    plain: u64,
    asked: u64,
    fenced: u64,
    largest: u64,
    outcome: Outcome,
}

struct Course {
    scene: Mutex<Scene>,
    stop: AtomicBool,
}

impl Course {
    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }
}

/// What one read when it came in.
struct Read {
    plain: u64,
    asked: u64,
    /// The token and what is behind the fence.
    fenced: Option<(u64, u64)>,
}

impl Scene {
    fn enter(&mut self, me: usize, token: Option<u64>) -> Read {
        let now = Instant::now();
        self.outcome.turns += 1;
        let unaware = |other: &&mut Inside| other.since.is_some() && other.told.is_none() && other.leaves.is_none();
        for other in self.inside.iter_mut().filter(unaware) {
            self.outcome.overlaps += u64::from(other.beside.is_none());
            other.gone.get_or_insert(now);
            other.beside.get_or_insert(now);
        }
        self.inside[me] = Inside { since: Some(now), ..Inside::default() };
        let fenced = token.map(|token| {
            self.outcome.lost_behind_fence.get_or_insert(0);
            self.largest = self.largest.max(token);
            (token, self.fenced)
        });
        Read { plain: self.plain, asked: self.asked, fenced }
    }

    fn write(&mut self, read: &Read, may: bool) {
        let Outcome { lost, lost_although_asked, lost_behind_fence, refused, .. } = &mut self.outcome;
        *lost += u64::from(self.plain != read.plain);
        self.plain = read.plain + 1;
        if may {
            *lost_although_asked += u64::from(self.asked != read.asked);
            self.asked = read.asked + 1;
        }
        match read.fenced {
            Some((token, _)) if token < self.largest => *refused += 1,
            Some((_, value)) => {
                *lost_behind_fence.get_or_insert(0) += u64::from(self.fenced != value);
                self.fenced = value + 1;
            }
            None => {}
        }
    }

    /// It left. If the lock was gone by then: whether and when it was told.
    fn leave(&mut self, me: usize, released: Option<bool>) {
        let now = Instant::now();
        let left = std::mem::take(&mut self.inside[me]);
        let ran = |since: Instant| left.resumed.map_or(since, |resumed| since.max(resumed));
        if let Some(beside) = left.beside {
            self.outcome.together += left.told.or(left.leaves).unwrap_or(now).saturating_duration_since(ran(beside));
        }
        let Some(gone) = left.gone else { return };
        match (left.told, released) {
            (Some(told), _) => self.outcome.told.push(told.saturating_duration_since(ran(gone))),
            (None, Some(false)) => self.outcome.told_at_release += 1,
            (None, _) => self.outcome.never_told += 1,
        }
    }
}

/// Runs a library under a fault for so long.
///
/// # Errors
///
/// A program that cannot be started.
pub fn run(rival: &Rival, fault: Fault, time: Duration) -> Result<Outcome, String> {
    let (mut redis, mut etcd) = (None, None);
    let url = match rival.store {
        Store::Redis => format!("redis://127.0.0.1:{}", redis.insert(Server::start(Flavour::Redis)).port),
        Store::Etcd => format!("http://{}", etcd.insert(Etcd::start(1, &[])).hosts()),
    };
    let programs = (0..PROCESSES).map(|_| Program::start(rival, &url, LEASE)).collect::<Result<Vec<_>, _>>()?;
    let leaders: Vec<u32> = programs.iter().map(Program::leader).collect();
    let scene = Scene { inside: vec![Inside::default(); PROCESSES], ..Scene::default() };
    let course = Course { scene: Mutex::new(scene), stop: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        for (me, program) in programs.into_iter().enumerate() {
            let course = &course;
            scope.spawn(move || {
                let mut program = program;
                while course.runs() {
                    // One that has ended takes no more turns; the others go on.
                    if turn(course, me, &mut program, fault.inside()).is_err() {
                        course.scene().outcome.failed += u64::from(course.runs());
                        break;
                    }
                }
            });
        }
        let began = Instant::now();
        let mut chance = fastrand::Rng::new();
        while began.elapsed() + LEASE * 2 < time {
            std::thread::sleep(Duration::from_millis(chance.u64(50..400)));
            disturb(&course, &leaders, redis.as_mut(), fault);
        }
        std::thread::sleep(LEASE);
        course.stop.store(true, Ordering::SeqCst);
    });
    let outcome = course.scene().outcome.clone();
    Ok(outcome)
}

/// Injects the fault once, if somebody is inside.
fn disturb(course: &Course, leaders: &[u32], server: Option<&mut Server>, fault: Fault) {
    let Some(me) = course.scene().inside.iter().position(|one| one.since.is_some()) else { return };
    match fault {
        Fault::Pause => {
            signal::stop_group(leaders[me]);
            std::thread::sleep(LEASE.mul_f64(1.3));
            let mut scene = course.scene();
            scene.outcome.faults += 1;
            scene.inside[me].resumed = Some(Instant::now());
            signal::resume_group(leaders[me]);
        }
        Fault::Restart => {
            let Some(server) = server else { return };
            server.restart(|_| {
                let (mut scene, now) = (course.scene(), Instant::now());
                scene.outcome.faults += 1;
                scene.inside.iter_mut().filter(|one| one.since.is_some()).for_each(|one| one.gone = Some(now));
            });
            std::thread::sleep(LEASE);
        }
    }
}

/// Acquires, stays, asks, writes and releases.
fn turn(course: &Course, me: usize, program: &mut Program, inside: Duration) -> Result<(), String> {
    // What it is told now concerns the lock that it had before.
    program.told = None;
    let Answer::Locked { token } = ask(course, me, program, Order::Lock)? else {
        course.scene().outcome.failed += 1;
        std::thread::sleep(Duration::from_millis(50));
        return Ok(());
    };
    program.told = None;
    let read = course.scene().enter(me, token);
    let began = Instant::now();
    while began.elapsed() < inside && program.told.is_none() && course.runs() {
        // Nobody asks it anything: only a loss can come.
        program.answer(Order::Ask, Duration::from_millis(5))?;
    }
    course.scene().inside[me].told = program.told;
    let may = ask(course, me, program, Order::Ask)?;
    let may = program.told.is_none() && !matches!(may, Answer::Held(Some(false)) | Answer::Failed);
    {
        let mut scene = course.scene();
        scene.write(&read, may);
        scene.inside[me].leaves = Some(Instant::now());
    }
    let released = ask(course, me, program, Order::Unlock)?;
    course.scene().leave(me, if let Answer::Unlocked(released) = released { released } else { None });
    Ok(())
}

/// Tells a program to do something and waits for the answer; a program that stands still answers when it goes on.
fn ask(course: &Course, me: usize, program: &mut Program, order: Order) -> Result<Answer, String> {
    program.tell(order)?;
    let began = Instant::now();
    let mut hung = false;
    loop {
        let answer = program.answer(order, Duration::from_millis(20))?;
        if program.told.is_some() {
            course.scene().inside[me].told = program.told;
        }
        if let Some(answer) = answer {
            return Ok(answer);
        }
        if !course.runs() {
            return Err("the course is over".to_owned());
        }
        if !hung && began.elapsed() > LEASE * 10 {
            hung = true;
            course.scene().outcome.hung += 1;
        }
    }
}
