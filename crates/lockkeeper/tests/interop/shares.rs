//! Contenders of both sides at one lock for a while: how often each had it, and how long the longest wait was.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::{Client, ErrorKind};

use crate::object::Object;
use crate::stalls::{Meter, Stalls, wall};
use crate::world::{World, unique};

/// Who contends, how, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contest {
    pub(crate) object: Object,
    /// How many threads of Java's.
    pub(crate) theirs: usize,
    /// How many tasks of ours.
    pub(crate) ours: usize,
    pub(crate) hold: Duration,
    pub(crate) time: Duration,
    /// `tryLock` with this limit, or `lock`.
    pub(crate) wait: Option<Duration>,
}

/// What one contender got.
#[derive(Clone, Copy, Debug)]
struct Share {
    is_java: bool,
    grants: u64,
    longest: Duration,
    timeouts: u64,
}

/// What all contenders of one contest got, and when it was, in ms since the epoch.
#[derive(Clone, Debug)]
struct Outcome {
    contest: Contest,
    shares: Vec<Share>,
    from: u64,
    to: u64,
}

impl Contest {
    /// Whether only Java contends, or only we do.
    fn is_alone(&self, is_java: bool) -> bool {
        if is_java { self.ours == 0 } else { self.theirs == 0 }
    }

    fn is_control(&self) -> bool {
        self.is_alone(true) || self.is_alone(false)
    }

    async fn run(self, world: &World) -> Outcome {
        let from = wall();
        let name = unique("contest");
        let (hold, time, wait) = (self.hold.as_millis(), self.time.as_millis(), self.wait.unwrap_or_default().as_millis());
        let java = world.java_with(crate::world::USUAL).await;
        let theirs: Vec<_> = (0..self.theirs)
            .map(|thread| {
                let word = self.object.word();
                java.thread(&format!("contender-{thread}")).tell(format!("{word} contend {name} {hold} {time} {wait}"))
            })
            .collect();
        let ours: Vec<_> = (0..self.ours).map(|_| tokio::spawn(self.contender(world.client.clone(), name.clone()))).collect();
        let mut shares = Vec::new();
        for told in theirs {
            let answer = told.value().await;
            let numbers: Vec<u64> =
                answer.as_str().expect("a text").split(' ').map(|number| number.parse().expect("a number")).collect();
            let [grants, longest, timeouts] = numbers[..] else { panic!("{answer}") };
            shares.push(Share { is_java: true, grants, longest: Duration::from_millis(longest), timeouts });
        }
        for task in ours {
            shares.push(task.await.expect("no panic"));
        }
        Outcome { contest: self, shares, from, to: wall() }
    }

    async fn contender(self, client: Client, name: String) -> Share {
        let mut share = Share { is_java: false, grants: 0, longest: Duration::ZERO, timeouts: 0 };
        let began = Instant::now();
        while began.elapsed() < self.time {
            let asked = Instant::now();
            let wait = self.wait.unwrap_or(Duration::from_secs(60));
            let taken = self.object.take_within(&client, &name, None, wait).await;
            share.longest = share.longest.max(asked.elapsed());
            let held = match taken {
                Ok(held) => held,
                Err(error) if error.kind() == ErrorKind::Timeout => {
                    share.timeouts += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            tokio::time::sleep(self.hold).await;
            share.grants += 1;
            held.release().await.expect("it is held");
        }
        share
    }
}

impl Outcome {
    fn grants(&self, is_java: bool) -> u64 {
        self.shares.iter().filter(|share| share.is_java == is_java).map(|share| share.grants).sum()
    }

    /// The time from one grant to the next on average, and the longest wait per contender.
    fn pace(&self) -> Pace {
        let grants = u32::try_from(self.grants(true) + self.grants(false)).expect("few");
        let contenders = u32::try_from(self.shares.len()).expect("few");
        Pace { cycle: self.contest.time / grants.max(1), longest: self.longest() / contenders }
    }

    fn longest(&self) -> Duration {
        self.longest_of(true).max(self.longest_of(false))
    }

    fn longest_of(&self, is_java: bool) -> Duration {
        self.shares.iter().filter(|share| share.is_java == is_java).map(|share| share.longest).max().unwrap_or_default()
    }

    /// Each side is to have at least half of its share by number of contenders, nobody to time out, and no wait to be longer than five rounds of
    /// all contenders. A round takes a hold of each; where a grant takes longer than the hold, that long, as each side alone shows in the same run
    /// (`java`, `ours`). Where the machine stalled, the longest stalls are added, and a side that is slower than the other one when it is alone
    /// counts for so much less.
    ///
    /// At a plain mutex Java's threads overtake each other for longer than five rounds also where only Java contends. So several of them may
    /// wait half as long again as in the control. One Java thread among ours has no other to overtake it: for it, as for ours, five rounds
    /// count. In a fair queue a wait may also be half as long again as in the control.
    fn judge(&self, java: Pace, ours: Pace, stalls: &Stalls) -> Judged {
        let Contest { object, theirs: java_count, ours: our_count, hold, time, wait } = self.contest;
        let verb = if wait.is_some() { "tryLock" } else { "lock" };
        let [of_java, of_ours] = [self.grants(true), self.grants(false)];
        let stalled = stalls.share(self.from, self.to);
        let weight = |number: usize, own: Pace, other: Pace| {
            let pace = if stalled > 0.05 { (other.cycle.as_secs_f64() / own.cycle.as_secs_f64()).min(1.0) } else { 1.0 };
            number as f64 * pace
        };
        let (java_weight, our_weight) = (weight(java_count, java, ours), weight(our_count, ours, java));
        let all = (of_java + of_ours) as f64;
        let above = |had: u64, weight: f64| 2.0 * had as f64 - all * weight / (java_weight + our_weight);
        let yardsticks: &[Pace] = match (java_count, our_count) {
            (_, 0) => &[ours],
            (0, _) => &[java],
            _ => &[java, ours],
        };
        let is_plain = object == Object::Mutex;
        let contenders = u32::try_from(java_count + our_count).expect("few");
        let bound = |is_java: bool| {
            let is_strict = is_plain && (!is_java || java_count == 1);
            let yardsticks = if is_plain && is_java { &[java, ours] } else { yardsticks };
            let round = |pace: &Pace| {
                let five = 5 * hold.max(pace.cycle);
                if is_strict { five } else { five.max(pace.longest * 3 / 2) }
            };
            contenders * yardsticks.iter().map(round).max().unwrap_or_default() + stalls.longest(self.from, self.to)
        };
        let (longest, bounds) = ([true, false].map(|side| self.longest_of(side)), [true, false].map(bound));
        let timeouts = self.shares.iter().map(|share| share.timeouts).sum::<u64>();
        let found = format!(
            "{object:?}: {of_java} of {java_count} theirs, {of_ours} of {our_count} ours in {time:?}, {verb}, holds of {hold:?}, longest waits {longest:.1?} of {bounds:.1?}, \
             {timeouts} timeouts, {stalled:.2} stalled"
        );
        eprintln!("{found}");
        Judged {
            above: [above(of_java, java_weight), above(of_ours, our_weight)],
            is_in_time: longest[0] <= bounds[0] && longest[1] <= bounds[1] && timeouts == 0 && all > 0.0,
            found: format!("{found}, alone {java:?} {ours:?}, {:?}", self.shares),
        }
    }
}

/// What is to be said of a contest after one run, or after several.
#[derive(Clone, Debug)]
struct Judged {
    /// By how many grants each side has more than half of its share, twice, over all runs.
    above: [f64; 2],
    /// Nobody timed out and no wait was too long, in one of the runs.
    is_in_time: bool,
    found: String,
}

impl Judged {
    fn is_right(&self) -> bool {
        // What rounding leaves of an exact half is none.
        self.is_in_time && self.above.iter().all(|above| *above > -1e-6)
    }

    /// With one more run.
    fn and(self, next: &Self) -> Self {
        Self {
            above: [self.above[0] + next.above[0], self.above[1] + next.above[1]],
            is_in_time: self.is_in_time || next.is_in_time,
            found: format!("{}; {}", self.found, next.found),
        }
    }
}

/// How fast one side is when it is alone.
#[derive(Clone, Copy, Debug)]
struct Pace {
    cycle: Duration,
    longest: Duration,
}

/// Runs all of these side by side, among them each side alone with the same holds, and judges them.
async fn judge_each(world: &Arc<World>, contests: Vec<Contest>) -> Vec<(Contest, Judged)> {
    let meter = Meter::start();
    let running: Vec<_> = contests
        .into_iter()
        .map(|contest| {
            let world = Arc::clone(world);
            tokio::spawn(async move { contest.run(&world).await })
        })
        .collect();
    let mut outcomes = Vec::new();
    for contest in running {
        outcomes.push(contest.await.expect("no panic"));
    }
    let stalls = meter.read(world).await;
    let alone = |is_java: bool, hold: Duration| {
        let control = outcomes.iter().find(|found| found.contest.is_alone(is_java) && found.contest.hold == hold);
        control.expect("a control").pace()
    };
    let judged = outcomes.iter().map(|found| {
        let hold = found.contest.hold;
        (found.contest, found.judge(alone(true, hold), alone(false, hold), &stalls))
    });
    judged.collect()
}

/// Which are wrong, and why.
fn wrong(world: &World, judged: Vec<(Contest, Judged)>) -> Vec<String> {
    let wrong = judged.into_iter().filter(|(_, judged)| !judged.is_right());
    wrong.map(|(_, judged)| format!("{:?} {}", world.version, judged.found)).collect()
}

async fn judge_all(world: &Arc<World>, contests: Vec<Contest>) -> Vec<String> {
    wrong(world, judge_each(world, contests).await)
}

/// The same, but what fails is run again with its controls, up to three times in all. Shares are then judged by the sum of the runs. A wait is judged
/// by its worst case, and a machine that does something else for a while makes one of them long: one run in which all were in time is enough.
async fn judge_again(world: &Arc<World>, contests: Vec<Contest>) -> Vec<String> {
    let mut failed = judge_each(world, contests.clone()).await;
    failed.retain(|(_, judged)| !judged.is_right());
    for _ in 1..3 {
        if failed.is_empty() {
            break;
        }
        let is_failed = |contest: &Contest| failed.iter().any(|(other, _)| other == contest);
        let is_control = |contest: &Contest| contest.is_control() && failed.iter().any(|(other, _)| other.hold == contest.hold);
        let again: Vec<_> = contests.iter().copied().filter(|contest| is_failed(contest) || is_control(contest)).collect();
        eprintln!("{:?} once more: {failed:?}", world.version);
        // A control that passed before is only the yardstick now.
        let again = judge_each(world, again).await;
        for (contest, judged) in &mut failed {
            let next = again.iter().find(|(other, _)| other == contest).map(|(_, next)| next).expect("it ran again");
            *judged = judged.clone().and(next);
        }
        failed.retain(|(_, judged)| !judged.is_right());
    }
    wrong(world, failed)
}

/// Contests of so many threads of Java's and tasks of ours, with short and long holds.
fn contests(object: Object, sides: &[(usize, usize)], time: Duration) -> Vec<Contest> {
    let holds = [1, 20, 100].map(Duration::from_millis);
    let contest = |&(theirs, ours): &(usize, usize), hold| Contest { object, theirs, ours, hold, time, wait: None };
    sides.iter().flat_map(|sides| holds.map(|hold| contest(sides, hold))).collect()
}

/// The same with `tryLock`. Its limit is longer than any wait that is judged to be right, so nobody times out.
fn try_lock(contests: Vec<Contest>) -> impl Iterator<Item = Contest> {
    contests.into_iter().map(|contest| Contest { wait: Some(Duration::from_secs(20)), ..contest })
}

/// Both, and each side alone; one version after the other, because these keep the machine busy.
pub(crate) async fn fair_waiters_of_both_have_equal_shares(worlds: Vec<Arc<World>>) {
    let mut wrong = Vec::new();
    for world in &worlds {
        let time = Duration::from_secs(5);
        let mut contests = contests(Object::Fair, &[(4, 4), (1, 6), (6, 0), (0, 6)], time);
        contests.extend(try_lock(self::contests(Object::Fair, &[(4, 4), (1, 6)], time)));
        wrong.extend(judge_all(world, contests).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A plain mutex with few and with many contenders of ours beside Java's: neither side starves.
pub(crate) async fn plain_waiters_of_both_have_their_shares(worlds: Vec<Arc<World>>) {
    let mut wrong = Vec::new();
    for world in &worlds {
        let time = Duration::from_secs(8);
        let mut contests = contests(Object::Mutex, &[(1, 8), (6, 6), (4, 4), (6, 0), (0, 6)], time);
        contests.extend(try_lock(self::contests(Object::Mutex, &[(4, 4)], time)));
        wrong.extend(judge_again(world, contests).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Queues that are never empty for longer than all waits and leases: nobody is taken for dead. What is wrong.
pub(crate) async fn continuous(world: Arc<World>) -> Vec<String> {
    let (hold, time) = (Duration::from_millis(100), Duration::from_secs(44));
    let contest = Contest { object: Object::Fair, theirs: 3, ours: 3, hold, time, wait: None };
    let contests = [
        contest,
        Contest { wait: Some(Duration::from_secs(5)), ..contest },
        Contest { ours: 0, ..contest },
        Contest { theirs: 0, ..contest },
    ];
    judge_all(&world, contests.to_vec()).await
}

/// A plain mutex that is contended for as long. What is wrong.
pub(crate) async fn continuous_plain(world: Arc<World>) -> Vec<String> {
    let (hold, time) = (Duration::from_millis(100), Duration::from_secs(40));
    let contest = Contest { object: Object::Mutex, theirs: 6, ours: 6, hold, time, wait: None };
    let mut contests = vec![contest, Contest { theirs: 1, ours: 8, ..contest }];
    contests.extend(try_lock(contests.clone()));
    contests.extend([Contest { ours: 0, ..contest }, Contest { theirs: 0, ..contest }]);
    judge_all(&world, contests).await
}
