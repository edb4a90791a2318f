//! Holders in a process of their own, which can be stopped, killed, or given a wrong clock; and executors that stall or end.

use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use lockkeeper::fence::Gate;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisGate};
use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::signal;
use redis::Commands;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

use crate::clock::WallClock;
use crate::site::{Site, ms, until};

const LEASE: Duration = ms(900);

/// This test again, as a process that holds `m` and tells about it: one line of answer for each that is asked.
struct HolderProcess {
    child: Child,
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    token: u64,
}

impl HolderProcess {
    async fn start(url: &str, clock: Option<&WallClock>) -> Self {
        Self::start_with(url, clock, LEASE).await
    }

    async fn start_with(url: &str, clock: Option<&WallClock>, lease: Duration) -> Self {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["process::holds_as_a_process", "--exact", "--ignored", "--nocapture"]).env("LOCKKEEPER_TEST_HOLDER", url);
        command.env("LOCKKEEPER_TEST_LEASE", lease.as_millis().to_string());
        command.envs(clock.map(|clock| clock.environment()).unwrap_or_default());
        let mut command = tokio::process::Command::from(command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let (questions, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        let mut holder = Self { child, questions, answers, token: 0 };
        holder.token = holder.ask("token").await.parse().unwrap();
        holder
    }

    /// The first line that begins with what was asked; the test around it says things, too.
    async fn ask(&mut self, what: &str) -> String {
        self.questions.write_all(format!("{what}\n").as_bytes()).await.unwrap();
        self.answer(what).await
    }

    async fn answer(&mut self, what: &str) -> String {
        let answer = async {
            loop {
                let line = self.answers.next_line().await.unwrap().expect("the holder has ended");
                // The test's own name stands in front of the first line.
                if let Some((_, answer)) = line.split_once(&format!("[{what}] ")) {
                    return answer.to_owned();
                }
            }
        };
        timeout(Duration::from_secs(20), answer).await.unwrap_or_else(|_| panic!("no answer to {what}"))
    }

    fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }
}

/// The other side of [`HolderProcess`].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the tests of this file, as a process of its own"]
async fn holds_as_a_process() {
    let url = std::env::var("LOCKKEEPER_TEST_HOLDER").expect("started by another test");
    let lease = std::env::var("LOCKKEEPER_TEST_LEASE").expect("started by another test").parse().expect("a number");
    let lease = Duration::from_millis(lease);
    let client = Client::builder().lease(lease).connect(&url).await.unwrap();
    let gate = RedisGate::new(Config::parse(&url).unwrap(), &Runtime::system());
    let guard = client.mutex("m").lock().await.unwrap();
    // A deadline by the wall clock, as it must not be.
    let wall = SystemTime::now() + lease;
    for question in std::io::stdin().lines() {
        let question = question.unwrap();
        let answer = match question.as_str() {
            "token" => guard.token().unwrap().number().to_string(),
            "valid" => guard.is_valid().to_string(),
            "valid by the wall clock" => (SystemTime::now() < wall).to_string(),
            "wall clock" => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().to_string(),
            "run" => {
                println!("[run] it begins");
                let timer = tokio::spawn(sleep(guard.remaining()));
                let ended = guard.run(std::future::pending::<()>()).await.map_err(|error| error.kind());
                println!("[end of run] {ended:?}");
                format!("a timer has ended: {}", timer.is_finished())
            }
            "lost" => format!("{:?}", guard.lost().await),
            "enter" => format!("{:?}", gate.enter("resource", guard.token().unwrap()).await.map_err(|error| error.kind())),
            other => panic!("what is {other}?"),
        };
        println!("[{question}] {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_paused_past_its_lease_knows_at_once_and_the_gate_refuses_it() {
    let Some(site) = Site::sound("paused process").await else { return };
    let mut holder = HolderProcess::start(&site.url(), None).await;
    assert_eq!(holder.ask("enter").await, "Ok(())");
    assert_eq!(holder.ask("valid").await, "true");
    signal::stop(holder.pid());
    let next = site.other().await.mutex("m").lock().timeout(ms(10_000)).await.expect("free after at most the lease");
    assert!(next.token().unwrap().number() > holder.token);
    let gate = RedisGate::new(Config::parse(&site.server.url(0)).unwrap(), &Runtime::system());
    gate.enter("resource", next.token().unwrap()).await.unwrap();
    signal::resume(holder.pid());
    assert_eq!(holder.ask("valid").await, "false");
    assert!(["Expired", "Gone"].contains(&&*holder.ask("lost").await));
    assert_eq!(holder.ask("enter").await, "Err(Lost)");
    gate.check("resource", next.token().unwrap()).await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_gone_with_its_lease_and_the_next_token_is_larger() {
    let Some(site) = Site::sound("killed process").await else { return };
    let mut holder = HolderProcess::start(&site.url(), None).await;
    let other = site.other().await;
    sleep(LEASE).await;
    assert!(other.mutex("m").try_lock().await.unwrap().is_none(), "kept alive by its process");
    holder.child.kill().await.unwrap();
    let left = Duration::from_millis(site.eyes().pttl::<_, i64>("m").unwrap().max(0) as u64);
    assert!(left <= LEASE, "left for {left:?}");
    // A crash leaves it for at most the lease; a waiter finds out within a second.
    let next = other.mutex("m").lock().timeout(LEASE + ms(3_000)).await.unwrap();
    assert!(next.token().unwrap().number() > holder.token);
    next.release().await.unwrap();
}

/// Which clock the holder's word is taken by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    Guard,
    WallClock,
}

/// The holder's wall clock is set back by an hour while its store is out of reach: its hold still ends with its lease.
pub(crate) async fn a_holder_whose_wall_clock_is_set_back_does_not_outlive_its_lease(site: &Site, by: By) {
    let Some(clock) = WallClock::new("wall clock") else { return };
    let mut holder = HolderProcess::start(&site.url(), Some(&clock)).await;
    let question = match by {
        By::Guard => "valid",
        By::WallClock => "valid by the wall clock",
    };
    assert_eq!(holder.ask(question).await, "true");
    site.proxy.fall_silent(true);
    clock.set(-3_600);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert!(holder.ask("wall clock").await.parse::<u64>().unwrap() < now - 3_000, "the clock was not set: nothing was tested");
    until("the server let go of it", || !site.eyes().exists::<_, bool>("m").unwrap()).await;
    assert_eq!(holder.ask(question).await, "false", "a hold outlived its lease");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wall_clock_set_back_does_not_lengthen_a_hold() {
    let Some(site) = Site::sound("wall clock set back").await else { return };
    a_holder_whose_wall_clock_is_set_back_does_not_outlive_its_lease(&site, By::Guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wall_clock_set_forward_does_not_end_a_hold() {
    let (Some(site), Some(clock)) = (Site::sound("wall clock set forward").await, WallClock::new("wall clock")) else { return };
    let mut holder = HolderProcess::start(&site.url(), Some(&clock)).await;
    clock.set(3_600);
    sleep(LEASE * 2).await;
    assert_eq!(holder.ask("valid").await, "true");
    assert!(site.other().await.mutex("m").try_lock().await.unwrap().is_none());
}

/// The machine is suspended for longer than a lease: on waking up, work under the lock is stopped long before a timer of that length would end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_in_a_suspension_is_told_soon_after_the_machine_goes_on() {
    let (Some(site), Some(clock)) = (Site::sound("suspension").await, WallClock::new("suspension")) else { return };
    let mut holder = HolderProcess::start_with(&site.url(), Some(&clock), Duration::from_secs(20)).await;
    assert_eq!(holder.ask("run").await, "it begins");
    // The keeper and the caller sleep now.
    sleep(ms(300)).await;
    clock.suspended_for(25);
    let resumed = Instant::now();
    assert_eq!(holder.answer("end of run").await, "Err(Lost)");
    let took = resumed.elapsed();
    eprintln!("told after {took:?}");
    assert!(took < ms(1_500), "told after {took:?}");
    assert_eq!(holder.answer("run").await, "a timer has ended: false");
}

/// The only thread of the executor sleeps for three leases; the keeper has its own.
#[tokio::test(flavor = "current_thread")]
async fn a_stalled_executor_loses_no_lock() {
    let Some(site) = Site::sound("stalled executor").await else { return };
    // Beside the proxy, which stalls with the executor.
    let client = Client::builder().lease(LEASE).connect(site.server.url(0)).await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    std::thread::sleep(LEASE * 3);
    assert!(guard.is_valid(), "renewed meanwhile");
    assert!(site.other().await.mutex("m").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// A guard, and a call that waits, when their executor ends: the keeper goes on, and gives back what is left.
#[test]
fn an_executor_that_ends_leaves_nothing_behind() {
    let executor = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ours = executor();
    let Some((site, client, guard)) = ours.block_on(async {
        let site = Site::sound("executor gone").await?;
        let client = Client::builder().lease(LEASE).connect(site.server.url(0)).await.unwrap();
        let guard = client.fair_mutex("m").lock().await.unwrap();
        let waiting = client.fair_mutex("m");
        tokio::spawn(async move { waiting.lock().await.map(drop) });
        until("it waits", || site.eyes().llen::<_, u64>("redisson_lock_queue:{m}").unwrap() == 1).await;
        Some((site, client, guard))
    }) else {
        return;
    };
    drop(ours);
    std::thread::sleep(LEASE * 2);
    assert!(guard.is_valid(), "kept although its executor is gone");
    // Outside any executor: it neither blocks nor panics.
    drop(guard);
    executor().block_on(async {
        until("it is free", || !site.eyes().exists::<_, bool>("m").unwrap()).await;
        until("nobody waits", || !site.eyes().exists::<_, bool>("redisson_lock_queue:{m}").unwrap()).await;
        let error = client.mutex("m").lock().timeout(ms(5_000)).await.err();
        assert!(error.is_none_or(|error| error.kind() != ErrorKind::Timeout), "nobody holds it");
    });
}
