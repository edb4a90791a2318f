//! The scripts that carry out many steps in one call, as they are sent: each step is for itself.

use std::time::Duration;

use redis::{Commands as _, Connection};

use crate::cost::own;
use crate::site::Site;

/// A client that never asks.
const NOBODY: &str = "00000000-0000-0000-0000-0000000000ff";

/// Longer than anything takes that is right.
const PATIENCE: Duration = Duration::from_secs(20);

/// The script for many mutexes.
const MANY: &str = concat!(
    include_str!("../../src/store/redis/scripts/lib/time.lua"),
    include_str!("../../src/store/redis/scripts/lib/answers.lua"),
    include_str!("../../src/store/redis/scripts/lib/shape.lua"),
    include_str!("../../src/store/redis/scripts/lib/tell.lua"),
    include_str!("../../src/store/redis/scripts/lib/fair_head.lua"),
    include_str!("../../src/store/redis/scripts/lib/waiting.lua"),
    include_str!("../../src/store/redis/scripts/lib/wake.lua"),
    include_str!("../../src/store/redis/scripts/mutex_many.lua"),
);

/// What the first and the second waiters of sixty mutexes are told that one call releases, beside one for which dead clients wait.
fn told_by_one_call(site: &Site, script: &str) -> Vec<(String, String)> {
    let (mut eyes, mut listener) = (site.eyes(), site.eyes());
    let mut listening = listener.as_pubsub();
    listening.psubscribe("redisson_lockkeeper_turn:{live*").unwrap();
    listening.subscribe("the end").unwrap();
    listening.set_read_timeout(Some(PATIENCE)).unwrap();
    let owner = format!("{NOBODY}:1");
    let names: Vec<String> = std::iter::once("dead".to_owned()).chain((0..60).map(|n| format!("live{n}"))).collect();
    let mut call = redis::cmd("EVAL");
    call.arg(script).arg(names.len()).arg(&names).arg("lockkeeper:token").arg(0).arg("");
    for name in &names {
        eyes.hset::<_, _, _, ()>(name, &owner, 1).unwrap();
        call.arg(&owner).arg(0).arg(format!("redisson_lock__channel:{{{name}}}"));
        for client in 0..if name == "dead" { 300 } else { 2 } {
            let client = format!("00000000-0000-0000-0000-{client:012x}");
            eyes.zadd::<_, _, _, ()>(format!("lockkeeper:waiting:{{{name}}}"), client, 0).unwrap();
        }
    }
    let released: Vec<i64> = call.query(&mut eyes).unwrap();
    assert!(released.iter().step_by(2).all(|held| *held == 1), "{released:?}");
    eyes.publish::<_, _, ()>("the end", "").unwrap();
    let messages = std::iter::from_fn(|| {
        let message = listening.get_message().expect("a message");
        (message.get_channel_name() != "the end").then(|| (message.get_channel_name().to_owned(), message.get_payload().unwrap()))
    });
    messages.collect()
}

/// Dead clients that wait for one mutex take nothing from the others: each release wakes its first waiter and tells its second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_releases_in_one_call_each_wake_a_first_and_tell_a_second() {
    let Some(site) = Site::sound("many releases in one call").await else { return };
    let told = told_by_one_call(&site, MANY);
    assert_eq!(told.len(), 120, "{told:?}");
    for (number, of_one) in told.chunks(2).enumerate() {
        for ((channel, said), expected) in of_one.iter().zip(["0 2", "50 1"]) {
            assert!(said == expected && channel.contains(&format!("{{live{number}}}")), "{of_one:?}");
        }
    }
    site.tell("FLUSHALL");
    let bounded = MANY.replace("  repeat\n", "  while tries > 0 do\n").replace("  until tries <= 0\n", "  end\n");
    assert_ne!(bounded, MANY);
    let told = told_by_one_call(&site, &bounded);
    assert!(told.len() < 120, "a script that tries no more than a hundred clients in all is noticed");
}

/// Asks for three mutexes in one call, of which the second comes too late; what is wrong with the answer, if anything.
fn one_is_late(eyes: &mut Connection, script: &str) -> Result<(), String> {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(eyes).unwrap();
    let (earlier, later) = ((seconds - 1) * 1_000_000 + micros, (seconds + 60) * 1_000_000 + micros);
    let script = redis::Script::new(script);
    let mut call = script.key("a");
    call.key("b").key("c").arg("lockkeeper:token").arg(earlier).arg("");
    for latest in [later, earlier, later] {
        call.arg("somebody:1").arg(30_000).arg(latest);
    }
    let answers: Vec<i64> = call.invoke(eyes).unwrap();
    let taken: Vec<bool> = ["a", "b", "c"].map(|name| eyes.exists(name).unwrap()).into();
    eyes.del::<_, ()>(&["a", "b", "c"]).unwrap();
    if taken != [true, false, true] {
        return Err(format!("taken: {taken:?}"));
    }
    match answers[..] {
        [1, first, -1, 0, 1, second] if first < second => Ok(()),
        _ => Err(format!("answered {answers:?}")),
    }
}

/// One step of a call that comes too late is refused, and the others get theirs. Broken scripts are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_late_step_of_a_call_is_refused_alone() {
    let Some((_server, _client, mut eyes)) = own("a late step").await else { return };
    one_is_late(&mut eyes, MANY).unwrap();
    let late = "late and micros > tonumber(arguments[3 * i + 3])";
    assert!(MANY.contains(late));
    for broken in ["false", "late", "not late and micros > tonumber(arguments[3 * i + 3])"] {
        one_is_late(&mut eyes, &MANY.replace(late, broken)).expect_err(broken);
    }
}

/// The script for steps of all kinds, with two of them.
const STEPS: &str = concat!(
    include_str!("../../src/store/redis/scripts/lib/time.lua"),
    include_str!("../../src/store/redis/scripts/lib/answers.lua"),
    include_str!("../../src/store/redis/scripts/lib/shape.lua"),
    "local function permits_size(redis, KEYS, ARGV)\n",
    include_str!("../../src/store/redis/scripts/lib/names.lua"),
    include_str!("../../src/store/redis/scripts/lib/kind.lua"),
    include_str!("../../src/store/redis/scripts/lib/permits.lua"),
    include_str!("../../src/store/redis/scripts/lib/counting.lua"),
    include_str!("../../src/store/redis/scripts/permits_size.lua"),
    "\nend\nlocal function counter(redis, KEYS, ARGV)\n",
    include_str!("../../src/store/redis/scripts/lib/names.lua"),
    include_str!("../../src/store/redis/scripts/lib/kind.lua"),
    include_str!("../../src/store/redis/scripts/lib/counting.lua"),
    include_str!("../../src/store/redis/scripts/counter.lua"),
    "\nend\nlocal STEPS = {permits_size = permits_size, counter = counter}\n",
    include_str!("../../src/store/redis/scripts/many.lua"),
);

/// Counts three names in one call, of which the second has a key beside it that makes its step fail, and the fourth comes too late; what is wrong
/// with the answer, if anything.
fn one_fails(eyes: &mut Connection, script: &str) -> Result<(), String> {
    redis::cmd("FLUSHALL").exec(eyes).unwrap();
    eyes.rpush::<_, _, ()>("lockkeeper:request:{b}:2", "in the way").unwrap();
    let script = redis::Script::new(script);
    let mut call = script.key("a");
    call.key("b").key("c").key("d");
    for (step, id, latest, what, number) in [
        ("counter", 1, i64::MAX / 1_024, "add", 5),
        ("counter", 2, i64::MAX / 1_024, "add", 6),
        ("permits_size", 3, i64::MAX / 1_024, "init", 7),
        ("counter", 4, 1, "add", 8),
    ] {
        call.arg(step).arg(5).arg(id).arg(latest).arg(1_000).arg(what).arg(number);
    }
    let answers: Vec<redis::Value> = call.invoke(eyes).map_err(|error| format!("the whole call failed: {error}"))?;
    let numbers: Vec<Option<i64>> = ["a", "b", "c", "d"].map(|name| eyes.get(name).unwrap()).into();
    let marks =
        ["a", "c"].map(|name| eyes.get::<_, Option<String>>(format!("lockkeeper:kind:{{{name}}}")).unwrap().unwrap_or_default());
    if numbers != [Some(5), None, Some(7), None] || !marks[0].starts_with("counter") || !marks[1].starts_with("semaphore") {
        return Err(format!("counted: {numbers:?} as {marks:?}"));
    }
    let counted = |number| redis::Value::Array(vec![redis::Value::Int(1), redis::Value::Int(1), redis::Value::Int(number)]);
    match &answers[..] {
        [first, redis::Value::BulkString(error), second, late]
            if *first == counted(5)
                && String::from_utf8_lossy(error).contains("WRONGTYPE")
                && *second == counted(7)
                && *late == redis::Value::Array(vec![redis::Value::Int(-1)]) =>
        {
            Ok(())
        }
        _ => Err(format!("answered {answers:?}")),
    }
}

/// A step that fails, or comes too late, does not touch the others. Broken scripts are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_step_of_any_kind_that_fails_fails_alone() {
    let Some((_server, _client, mut eyes)) = own("a failing step").await else { return };
    one_fails(&mut eyes, STEPS).unwrap();
    let each = "pcall(STEPS[ARGV[at]], redis, {KEYS[i]}, arguments)";
    for (sound, broken) in [
        (each, "true, STEPS[ARGV[at]](redis, {KEYS[i]}, arguments)"),
        (each, "pcall(STEPS[ARGV[at]], redis, KEYS, arguments)"),
        (each, "pcall(STEPS[ARGV[1]], redis, {KEYS[i]}, arguments)"),
        ("arguments[argument] = ARGV[at + 1 + argument]", "arguments[argument] = ARGV[2 + argument]"),
    ] {
        assert!(STEPS.contains(sound));
        one_fails(&mut eyes, &STEPS.replace(sound, broken)).expect_err(broken);
    }
}
