//! Two processes of ours at one plain mutex: each has its share by number of contenders, and no contender waits for long.

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

    /// Each process has at least half of its share by number of contenders, and no wait is longer than five rounds of all of them. A round takes
    /// a hold of each, or as long as the grants of this run took where that is longer.
    fn judge(self, shares: [Share; 2]) -> Result<(), String> {
        let all: u64 = shares.iter().map(|share| share.grants).sum();
        let contenders: usize = self.contenders.iter().sum();
        let cycle = TIME / u32::try_from(all).expect("few").max(1);
        let bound = 5 * u32::try_from(contenders).expect("few") * self.hold.max(cycle);
        let found = format!(
            "{self:?}: {} and {} grants, one in {cycle:.1?}, longest waits {:.1?} and {:.1?} of {bound:.1?}",
            shares[0].grants, shares[1].grants, shares[0].longest, shares[1].longest
        );
        eprintln!("{found}");
        let has_share = |side: usize| 2 * shares[side].grants * contenders as u64 >= all * self.contenders[side] as u64;
        let is_in_time = shares.iter().all(|share| share.longest <= bound);
        if all > 0 && has_share(0) && has_share(1) && is_in_time { Ok(()) } else { Err(found) }
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

/// All contests once, by two new processes: which were wrong, and why.
async fn judge_all() -> Vec<(String, String)> {
    let server = Server::start(Flavour::Redis);
    let mut processes = [ContenderProcess::start(&server.url(0), 0).await, ContenderProcess::start(&server.url(0), 1).await];
    for process in &mut processes {
        process.begin().await;
    }
    let mut wrong = Vec::new();
    for contest in contests() {
        let [first, second] = &mut processes;
        let shares = [first.share(contest).await, second.share(contest).await];
        wrong.extend(contest.judge(shares).err().map(|why| (contest.name(), why)));
    }
    wrong
}

/// A wait is judged by its worst case, and a machine that does something else for a while makes one of them long: a contest passes if it does in
/// one run of three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_have_their_shares_of_a_plain_mutex() {
    if let Some(why) = Server::missing(Flavour::Redis) {
        return lockkeeper::conformance::skip("shares of two processes", &why);
    }
    let mut wrong = judge_all().await;
    for _ in 1..3 {
        if wrong.is_empty() {
            return;
        }
        eprintln!("once more: {wrong:?}");
        let again = judge_all().await;
        wrong = again.into_iter().filter(|(name, _)| wrong.iter().any(|(other, _)| other == name)).collect();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
