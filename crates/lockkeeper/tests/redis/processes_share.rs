//! Two processes of ours at one plain mutex: each has its share by number of contenders, and no contender waits for long.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lockkeeper::Client;
use lockkeeper_testkit::stalls::{Meter, wall};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::server::{Flavour, Server};

/// How many contend in the first process and in the second one.
const SIDES: [(usize, usize); 2] = [(8, 1), (6, 6)];
const HOLDS: [Duration; 3] = [Duration::from_millis(1), Duration::from_millis(20), Duration::from_millis(100)];
const TIME: Duration = Duration::from_secs(6);
/// Longer than anything takes that is right.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a process is told what to do: the URL, and which of the two it is.
const ORDER: &str = "LOCKKEEPER_TEST_CONTENDER";

#[derive(Clone, Copy, Debug)]
struct Contest {
    contenders: [usize; 2],
    hold: Duration,
}

/// All of them, which run side by side.
fn contests() -> impl Iterator<Item = Contest> {
    SIDES.into_iter().flat_map(|(first, second)| HOLDS.map(|hold| Contest { contenders: [first, second], hold }))
}

/// What one process got in one contest.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    grants: u64,
    longest: Duration,
}

impl Contest {
    fn name(self) -> String {
        format!("m-{}-{}-{}", self.contenders[0], self.contenders[1], self.hold.as_millis())
    }

    /// Contends with the tasks of one side.
    async fn run(self, client: Client, side: usize) -> Share {
        let meter = Meter::start();
        let tasks: Vec<_> =
            (0..self.contenders[side]).map(|_| tokio::spawn(self.contend(client.clone(), meter.clone()))).collect();
        let mut all = Share::default();
        for task in tasks {
            let share = task.await.expect("no panic");
            all = Share { grants: all.grants + share.grants, longest: all.longest.max(share.longest) };
        }
        all
    }

    async fn contend(self, client: Client, meter: Meter) -> Share {
        let (mutex, mut share, began) = (client.mutex(self.name()), Share::default(), Instant::now());
        while began.elapsed() < TIME {
            let (asked, from) = (Instant::now(), wall());
            let guard = mutex.lock().timeout(PATIENCE).await.expect("a turn");
            // Without the time for which the machine did not run this process.
            share.longest = share.longest.max(asked.elapsed().saturating_sub(meter.within(from, wall())));
            tokio::time::sleep(self.hold).await;
            share.grants += 1;
            guard.release().await.expect("it is held");
        }
        share
    }

    /// Each process is to have at least half of its share by number of contenders, and no wait is to be longer than five rounds of all of them. A
    /// round takes a hold of each, or as long as the grants of this run took where that is longer.
    fn judge(self, shares: [Share; 2]) -> Judged {
        let all: u64 = shares.iter().map(|share| share.grants).sum();
        let contenders: usize = self.contenders.iter().sum();
        let cycle = TIME / u32::try_from(all).expect("few").max(1);
        let bound = 5 * u32::try_from(contenders).expect("few") * self.hold.max(cycle);
        let found = format!(
            "{self:?}: {} and {} grants, one in {cycle:.1?}, longest waits {:.1?} and {:.1?} of {bound:.1?}",
            shares[0].grants, shares[1].grants, shares[0].longest, shares[1].longest
        );
        eprintln!("{found}");
        let above = |side: usize| {
            let (had, least) = (2 * shares[side].grants * contenders as u64, all * self.contenders[side] as u64);
            i64::try_from(had).expect("few") - i64::try_from(least).expect("few")
        };
        let is_in_time = all > 0 && shares.iter().all(|share| share.longest <= bound);
        Judged { above: [above(0), above(1)], is_in_time, found }
    }
}

/// What is to be said of a contest after one run, or after several.
#[derive(Clone, Debug)]
struct Judged {
    /// By how much each side has more than half of its share, over all runs.
    above: [i64; 2],
    /// No wait was too long, in one of the runs.
    is_in_time: bool,
    found: String,
}

impl Judged {
    fn is_right(&self) -> bool {
        self.is_in_time && self.above.iter().all(|above| *above >= 0)
    }

    /// With one more run.
    fn and(self, next: Self) -> Self {
        Self {
            above: [self.above[0] + next.above[0], self.above[1] + next.above[1]],
            is_in_time: self.is_in_time || next.is_in_time,
            found: format!("{}; {}", self.found, next.found),
        }
    }
}

/// This test program again, as a process with one side of all contests.
struct ContenderProcess {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl ContenderProcess {
    /// Returns once it is connected.
    async fn start(url: &str, side: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a program"))
            .args(["processes_share::contends_as_a_process", "--exact", "--ignored", "--nocapture"])
            .env(ORDER, format!("{url} {side}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let (input, output) = (child.stdin.take().expect("piped"), BufReader::new(child.stdout.take().expect("piped")).lines());
        let mut process = Self { _child: child, input, output };
        process.next("connected").await;
        process
    }

    /// What follows this word in the next line with it; the test around it prints lines, too.
    async fn next(&mut self, word: &str) -> String {
        let answer = async {
            loop {
                let line = self.output.next_line().await.expect("a pipe").expect("the process has ended");
                if let Some((_, rest)) = line.split_once(&format!("[{word}]")) {
                    return rest.trim().to_owned();
                }
            }
        };
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("no line with {word}"))
    }

    async fn begin(&mut self) {
        self.input.write_all(b"begin\n").await.expect("it listens");
    }

    async fn share(&mut self, contest: Contest) -> Share {
        let numbers = self.next(&contest.name()).await;
        let (grants, longest) = numbers.split_once(' ').expect("two numbers");
        Share { grants: grants.parse().expect("a number"), longest: Duration::from_millis(longest.parse().expect("a number")) }
    }
}

/// The other side of [`ContenderProcess`].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the test of this file, as a process of its own"]
async fn contends_as_a_process() {
    let order = std::env::var(ORDER).expect("started by another test");
    let (url, side) = order.split_once(' ').expect("two words");
    let side = side.parse().expect("a number");
    let client = Client::connect(url).await.unwrap();
    println!("\n[connected]");
    let begin = std::io::stdin().lines().next().expect("told to begin").expect("a pipe");
    assert_eq!(begin, "begin");
    let running: Vec<_> = contests().map(|contest| (contest, tokio::spawn(contest.run(client.clone(), side)))).collect();
    for (contest, run) in running {
        let share = run.await.expect("no panic");
        println!("[{}] {} {}", contest.name(), share.grants, share.longest.as_millis());
    }
}

/// All contests once, by two new processes.
async fn judge_all() -> Vec<(String, Judged)> {
    let server = Server::start(Flavour::Redis);
    let mut processes = [ContenderProcess::start(&server.url(0), 0).await, ContenderProcess::start(&server.url(0), 1).await];
    for process in &mut processes {
        process.begin().await;
    }
    let mut judged = Vec::new();
    for contest in contests() {
        let [first, second] = &mut processes;
        let shares = [first.share(contest).await, second.share(contest).await];
        judged.push((contest.name(), contest.judge(shares)));
    }
    judged
}

/// A contest that is wrong is run again, up to three times in all. Shares are then judged by the sum of its runs. A wait is judged by its worst case, and a
/// machine that does something else for a while makes one of them long: one run in which all were in time is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_have_their_shares_of_a_plain_mutex() {
    if let Some(why) = Server::missing(Flavour::Redis) {
        return lockkeeper::conformance::skip("shares of two processes", &why);
    }
    let mut wrong = judge_all().await;
    wrong.retain(|(_, judged)| !judged.is_right());
    for _ in 1..3 {
        if wrong.is_empty() {
            return;
        }
        eprintln!("once more: {wrong:?}");
        let again: HashMap<String, Judged> = judge_all().await.into_iter().collect();
        wrong = wrong.into_iter().map(|(name, judged)| (name.clone(), judged.and(again[&name].clone()))).collect();
        wrong.retain(|(_, judged)| !judged.is_right());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
