//! `cargo xtask setup`: what the tests need besides cargo.

use crate::steps::{Outcome, Run, find, step};

const HOW: &str = "install it: apt-get install redis-server, dnf install redis, apk add redis or brew install redis";

/// Looks for what the tests need, and installs what is missing where that is possible without asking.
pub(crate) fn run() -> Result<(), String> {
    step("setup", "what the tests need", needed).map(drop)
}

/// The step alone.
pub(crate) fn needed() -> Result<Outcome, String> {
    redis(requires(&std::env::var("LOCKKEEPER_REQUIRE").unwrap_or_default(), "redis"))
}

/// A Redis server, which the tests start and stop themselves.
fn redis(required: bool) -> Result<Outcome, String> {
    if found() {
        return Ok(Outcome::Done);
    }
    let trouble = match install() {
        Ok(()) if found() => return Ok(Outcome::Done),
        Ok(()) => "redis-server is not on the PATH".to_owned(),
        Err(trouble) => trouble,
    };
    if required {
        return Err(format!("{trouble}; LOCKKEEPER_REQUIRE asks for redis, so {HOW}"));
    }
    Ok(Outcome::Skipped(format!("{trouble}, so its tests are skipped; {HOW}")))
}

fn found() -> bool {
    let server = find("redis-server");
    if let Some(file) = &server {
        println!("    redis-server is {}", file.display());
    }
    server.is_some()
}

/// Installs the server with apt-get, if we may.
fn install() -> Result<(), String> {
    let root = user_is_root();
    if find("apt-get").is_none() || !(root || Run::new("sudo", &["-n", "true"]).succeeds()) {
        return Err("redis-server is not installed".to_owned());
    }
    println!("    installing redis-server with apt-get");
    let steps: [&[&str]; 2] = [&["update"], &["install", "-y", "--no-install-recommends", "redis-server"]];
    for step in steps {
        let words = [&["DEBIAN_FRONTEND=noninteractive", "apt-get"], step].concat();
        let installing = if root { Run::new("env", &words) } else { Run::new("sudo", &[&["-n", "env"], &words[..]].concat()) };
        installing.stream().map_err(|message| format!("redis-server cannot be installed with apt-get: {message}"))?;
    }
    Ok(())
}

fn user_is_root() -> bool {
    Run::new("sh", &["-c", r#"test "$(id -u)" = 0"#]).succeeds()
}

/// Whether the list, separated by commas, names `what`.
fn requires(list: &str, what: &str) -> bool {
    list.split(',').any(|named| named.trim() == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_is_a_list() {
        for (list, expected) in [("redis", true), ("mysql, redis", true), ("", false), ("rediss", false), ("mysql", false)] {
            assert_eq!(requires(list, "redis"), expected, "{list:?}");
        }
    }
}
