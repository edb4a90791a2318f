//! The project's chores: `cargo xtask setup | test | interop | faults | bench | evidence | picture | dist | proto | help`. Needs nothing but cargo.
#![allow(clippy::disallowed_methods, reason = "the doors to the clock are the library's; this is a program about it")]

mod apt;
mod bench;
mod binaries;
mod deny;
mod dist;
mod drivers;
mod etcd;
mod evidence;
mod fast;
mod faults;
mod fuzz;
mod go_driver;
mod interop;
mod mutants;
mod mysql;
mod package;
mod picture;
mod proto;
mod readme;
mod servers;
mod setup;
mod sid;
mod steps;
mod systems;
mod test;
mod times;
mod tools;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask setup           look for what the tests need, and install what is missing where that is possible
cargo xtask test            everything that must hold before a change goes in
cargo xtask test STEP...    only these steps
cargo xtask test --fast     what takes minutes and installs nothing: formatting, lints, dependencies, tests without servers
cargo xtask interop [TEST]  the tests beside the real Redisson, with what they need; arguments go to them
cargo xtask faults [TEST]   masters killed, networks parted and slots moved again and again, about half an hour; arguments go to the tests
cargo xtask bench [--quick] [--only WORKLOADS] [--before PROGRAM]
                            ours beside the peers; writes docs/benchmarks.md; workloads are a to m, as in --only a,c;
                            --before compares with the bench-ours of an older commit
cargo xtask evidence [--minutes N] [--debug] [--only ROW] [models|simulation|schedules|fuzz|real|control|mutants]
                            larger models, more seeds, schedules and fuzz inputs, histories of real servers that are disturbed, other
                            libraries under the same faults, and changed code that a test must find; so many minutes each;
                            writes docs/evidence.md after each part, where a part that did not run keeps its section;
                            --only: one topology of real, or one scenario of schedules
cargo xtask proto           generates the messages of etcd's API anew; writes crates/lockkeeper/src/store/etcd/proto.rs
cargo xtask picture         records the terminal of the README anew; writes docs/images/terminal.svg
cargo xtask dist            builds the program that packages ship, with its symbols in a file beside it, into target/dist/bin
cargo xtask help            this

LOCKKEEPER_REQUIRE=LIST     fail where tests would be skipped for want of one of these: redis, postgres, mariadb, pgbouncer, zookeeper, etcd, etcd-new, etcd-go, redis-6.2, valkey,
                            redis-8, mysql-9, redisson, curator, mdbook
LOCKKEEPER_REDIS_62=FILE    the Redis 6.2 server, instead of the one that setup downloads
LOCKKEEPER_VALKEY=FILE      the Valkey server, instead of the one that setup downloads
LOCKKEEPER_REDIS_8=FILE     the Redis 8 server, instead of the one that setup builds
LOCKKEEPER_MYSQL_9=FILE     the MySQL 9 server, instead of the one that setup downloads
LOCKKEEPER_ETCD_NEW=FOLDER  the etcd and etcdctl, 3.5 or later, instead of those that setup downloads";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (verb, rest) = words.split_first().map_or(("help", &[][..]), |(verb, rest)| (verb.as_str(), rest));
    let done = match verb {
        "setup" => setup::run(),
        "test" => test::run(rest),
        "interop" => interop::run(rest),
        "faults" => faults::run(rest),
        "bench" => bench::run(rest),
        "evidence" => evidence::run(rest),
        "picture" => picture::run(),
        "dist" => dist::run(),
        "proto" => proto::run(),
        "help" | "--help" | "-h" => {
            println!("{HELP}\n\nSteps of the test: {}", test::names());
            Ok(())
        }
        _ => Err(format!(
            "there is no verb {verb}; there are setup, test, interop, faults, bench, evidence, picture, dist, proto, help"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_part_of_the_evidence() {
        let parts = evidence::PARTS.map(|(part, _)| part).join("|");
        assert!(HELP.contains(&format!("[{parts}]")), "{parts}");
    }
}
