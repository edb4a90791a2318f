//! `lockkeeper-verify control`: the control group as a section of the page. Each option names how a program is started; one that is not named does not take part.
//! `--plots FOLDER`: where the two pictures are written.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_verify::rivals::{Fault, HEAD, LEASE, Outcome, Rival, plot, run};

use crate::log::word;

/// So many run at a time. Most of the time they wait.
const SIDE_BY_SIDE: usize = 2;

/// Runs each library under each fault for its share of the time; whether all could be run.
pub(crate) fn all(time: Duration, words: &[&str]) -> Result<bool, String> {
    let command = |name: &str| word(words, name).map(|command| command.split('|').map(str::to_owned).collect::<Vec<_>>());
    let and = |command: Vec<String>, more: &str| [command, vec![more.to_owned()]].concat();
    let mut rivals = Vec::new();
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    rivals.push(Rival::new("**lockkeeper** `Mutex`", vec![own.display().to_string(), "held".to_owned()]));
    rivals.extend(command("--python").map(|command| Rival::new("`SET NX PX` by hand", and(command, "set-nx"))));
    rivals.extend(command("--python").map(|command| Rival::new("redis-py `Lock`", and(command, "lock"))));
    rivals.extend(command("--rslock").map(|command| Rival::new("rslock", command)));
    rivals.extend(command("--redisson").map(Rival::redisson));
    rivals.extend(command("--redisson").map(Rival::redisson_fenced));
    match Etcd::missing() {
        None => rivals.push(Rival::etcdctl()),
        Some(why) => eprintln!("etcdctl does not take part: {why}"),
    }
    let every = (0..rivals.len()).flat_map(|rival| Fault::ALL.map(|fault| (rival, fault)));
    let mut courses: Vec<(usize, Fault)> = every.filter(|(rival, fault)| fault.happens_on(rivals[*rival].store)).collect();
    let share = time * u32::try_from(SIDE_BY_SIDE).unwrap_or(1) / u32::try_from(courses.len()).unwrap_or(1);
    courses.reverse();
    let (waiting, done) = (Mutex::new(courses), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                loop {
                    let Some((rival, fault)) = waiting.lock().expect("no thread panics").pop() else { break };
                    eprintln!("{}, {} …", rivals[rival].label, fault.shown());
                    let outcome = run(&rivals[rival], fault, share);
                    done.lock().expect("no thread panics").push((rival, fault, outcome));
                }
            });
        }
    });
    let done: Vec<(usize, Fault, Result<Outcome, String>)> = done.into_inner().expect("no thread panics");
    print_head();
    let mut whole = true;
    for fault in Fault::ALL {
        for (index, rival) in rivals.iter().enumerate() {
            match done.iter().find(|(of, under, _)| *of == index && *under == fault) {
                Some((_, _, Ok(outcome))) => println!("{}", outcome.row(&rival.label, fault)),
                Some((_, _, Err(why))) => {
                    whole = false;
                    println!("| {} | {} | not run: {why} |", rival.label, fault.shown());
                }
                None => whole &= !fault.happens_on(rival.store),
            }
        }
    }
    println!();
    if let Some(folder) = word(words, "--plots") {
        let mut shown: Vec<_> =
            done.iter().filter_map(|(rival, fault, outcome)| Some((*rival, *fault, outcome.as_ref().ok()?))).collect();
        shown.sort_by_key(|(rival, fault, _)| (Fault::ALL.iter().position(|one| one == fault), *rival));
        let shown: Vec<_> =
            shown.into_iter().map(|(rival, fault, outcome)| (rivals[rival].label.as_str(), fault, outcome)).collect();
        for (name, picture) in [("told.svg", plot::told(&shown)), ("lost.svg", plot::lost(&shown))] {
            let file = Path::new(folder).join(name);
            std::fs::write(&file, picture).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        }
        println!(
            "![Time until a program is told that its lock is lost](evidence/told.svg)\n\n![Updates that were lost](evidence/lost.svg)\n"
        );
    }
    Ok(whole)
}

fn print_head() {
    println!("## Control group\n");
    println!(
        "Other libraries under the same workload and the same faults, on one Redis server without a disk (`etcdctl` on one etcd). Three processes share one lock with a"
    );
    println!(
        "lease of {} s. Each stays inside for less than a lease, writes and releases. Libraries that can renew do so, every third of the lease, in the",
        LEASE.as_secs()
    );
    println!(
        "way that their documentation tells: Redisson by its watchdog, redis-py by `reacquire`, rslock by `extend`. `etcdctl lock` keeps its session alive. The one by hand renews nothing."
    );
    println!(
        "The programs: [ours](../verify/src/command/held.rs), [Python](../bench/peers/redis-py/held.py), [rslock](../bench/peers/rslock/src/bin/held.rs),"
    );
    println!("[Redisson](../interop/redisson), [etcdctl](../verify/src/rivals/etcdctl.sh), whose token is `ETCD_LOCK_REV`.\n");
    println!(
        "* *Overlaps*: how many had another come in beside them before they left or were told of their loss. A lock with a lease cannot prevent that while a"
    );
    println!("  process stands still, ours neither. *Both inside and running* is how long it lasted after the process went on.");
    println!(
        "* *Lost updates*: a write that undid another one. Once by programs that just write. Once by programs that ask their library first"
    );
    println!(
        "  (`is_valid()`, `owned()`, `isHeldByCurrentThread()`, `GET`; rslock and etcdctl have nothing to ask). Once behind a fence, with the library's token."
    );
    println!(
        "* *Told*: of those who lost the lock while inside, who heard of it by itself, and how long after (median); who got an error when it"
    );
    println!("  released; and who never heard.\n");
    println!("{HEAD}");
}
