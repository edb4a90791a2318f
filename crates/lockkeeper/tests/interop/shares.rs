//! Contenders of both sides at one lock for a while: how often each had it, and how long the longest wait was.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::{Client, ErrorKind};

use crate::object::Object;
use crate::world::{World, unique};

/// Who contends, how, and for how long.
#[derive(Clone, Copy, Debug)]
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

impl Contest {
    async fn run(self, world: &World) -> Vec<Share> {
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
        shares
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

    /// Each side has at least half of its share by number of contenders, nobody times out, and no wait is longer than five rounds of all
    /// contenders (or a second: the machine is busy with other tests).
    fn judge(self, shares: &[Share]) -> Result<(), String> {
        let sum = |is_java| shares.iter().filter(|share| share.is_java == is_java).map(|share| share.grants).sum::<u64>();
        let (theirs, ours) = (sum(true), sum(false));
        let contenders = self.theirs + self.ours;
        let longest = shares.iter().map(|share| share.longest).max().unwrap_or_default();
        let timeouts: u64 = shares.iter().map(|share| share.timeouts).sum();
        let found = format!("{self:?}: {theirs} theirs, {ours} ours, longest wait {longest:?}, {timeouts} timeouts, {shares:?}");
        eprintln!(
            "{theirs} of {} theirs, {ours} of {} ours, holds of {:?}, longest wait {longest:?}",
            self.theirs, self.ours, self.hold
        );
        let enough = |had: u64, number: usize| 2 * had * contenders as u64 >= (theirs + ours) * number as u64;
        let bound = (5 * u32::try_from(contenders).expect("few") * self.hold).max(Duration::from_secs(1));
        if enough(theirs, self.theirs) && enough(ours, self.ours) && longest <= bound && timeouts == 0 && theirs + ours > 0 {
            return Ok(());
        }
        Err(found)
    }
}

async fn judge_all(world: World, contests: Vec<Contest>) {
    let world = Arc::new(world);
    let running: Vec<_> = contests
        .into_iter()
        .map(|contest| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { contest.judge(&contest.run(&world).await) })
        })
        .collect();
    let mut wrong = Vec::new();
    for contest in running {
        wrong.extend(contest.await.expect("no panic").err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Both, and each side alone.
pub(crate) async fn fair_waiters_of_both_have_equal_shares(world: World) {
    let mut contests = Vec::new();
    for (theirs, ours) in [(4, 4), (1, 6), (6, 0), (0, 6)] {
        for hold in [1, 20, 100] {
            let (hold, time) = (Duration::from_millis(hold), Duration::from_secs(8));
            contests.push(Contest { object: Object::Fair, theirs, ours, hold, time, wait: None });
        }
    }
    judge_all(world, contests).await;
}

/// A queue that is never empty for longer than all waits and leases: nobody is taken for dead.
pub(crate) async fn a_continuous_queue_of_both_loses_nobody(world: World) {
    let contests = [None, Some(Duration::from_secs(5))].map(|wait| {
        let (hold, time) = (Duration::from_millis(100), Duration::from_secs(44));
        Contest { object: Object::Fair, theirs: 3, ours: 3, hold, time, wait }
    });
    judge_all(world, contests.to_vec()).await;
}
