//! `cargo xtask setup`: what the tests need besides cargo.

use crate::apt;
use crate::drivers::{CURATOR, Drivers, REDISSON};
use crate::etcd;
use crate::go_driver;
use crate::mysql;
use crate::servers::SERVERS;
use crate::steps::{Outcome, find, step};
use crate::tools;

const HOW: &str = "install it: apt-get install redis-server, dnf install redis, apk add redis or brew install redis";

const POSTGRES: &str = "install it: apt-get install postgresql, dnf install postgresql-server or brew install postgresql";

const MARIADB: &str = "install it: apt-get install mariadb-server, dnf install mariadb-server or brew install mariadb";

const PGBOUNCER: &str = "install it: apt-get install pgbouncer or dnf install pgbouncer";
const ZOOKEEPER: &str =
    "install a JDK 17, ZooKeeper and Curator: apt-get install default-jdk-headless zookeeper libcurator-recipes-java";
const ETCD: &str = "install it: apt-get install etcd-server etcd-client, dnf install etcd or brew install etcd";

const GO: &str = "install Go 1.23 or later, and see that it can download modules";

const JAVA: &str = "install a JDK 17 and Maven, and see that Maven can download";

/// Looks for what the tests need, and installs what is missing where that is possible without asking.
pub(crate) fn run() -> Result<(), String> {
    step("setup", "what the tests need", needed).map(drop)
}

/// The step alone.
pub(crate) fn needed() -> Result<Outcome, String> {
    let list = std::env::var("LOCKKEEPER_REQUIRE").unwrap_or_default();
    let servers = SERVERS.iter().map(|server| server.name);
    needed_for(
        &list,
        &["redis", "postgres", "mariadb", "pgbouncer", "zookeeper", "etcd", "etcd-go"]
            .into_iter()
            .chain(servers)
            .chain([etcd::NAME, mysql::NAME, REDISSON.name, CURATOR.name, tools::MDBOOK.name])
            .collect::<Vec<_>>(),
    )
}

/// Only what stands in `wanted`; what stands in `list` must be there in the end.
pub(crate) fn needed_for(list: &str, wanted: &[&str]) -> Result<Outcome, String> {
    let mut missing = Vec::new();
    if wanted.contains(&"redis") && !provide("redis", HOW, list, redis, || apt::install("redis-server"))? {
        missing.push("redis");
    }
    // The package may start a server of its own. The tests do not use it; they start theirs on another port.
    let install = || apt::install("postgresql");
    if wanted.contains(&"postgres") && !provide("postgres", POSTGRES, list, postgres, install)? {
        missing.push("postgres");
    }
    let install = || apt::install("mariadb-server");
    if wanted.contains(&"mariadb") && !provide("mariadb", MARIADB, list, || server("mariadbd"), install)? {
        missing.push("mariadb");
    }
    let install = || apt::install("pgbouncer");
    if wanted.contains(&"pgbouncer") && !provide("pgbouncer", PGBOUNCER, list, || server("pgbouncer"), install)? {
        missing.push("pgbouncer");
    }
    // The package has no service, and the tests start servers of their own.
    let install = || ["default-jdk-headless", "zookeeper", "libcurator-recipes-java"].into_iter().try_for_each(apt::install);
    if wanted.contains(&"zookeeper") && !provide("zookeeper", ZOOKEEPER, list, zookeeper, install)? {
        missing.push("zookeeper");
    }
    let install = || apt::install("etcd-server").and_then(|()| apt::install("etcd-client"));
    if wanted.contains(&"etcd") && !provide("etcd", ETCD, list, etcd_of_the_system, install)? {
        missing.push("etcd");
    }
    let found = || etcd::find().inspect(|folder| println!("    {} is in {}", etcd::NAME, folder.display())).is_some();
    if wanted.contains(&etcd::NAME) && !provide(etcd::NAME, etcd::HOW, list, found, etcd::download)? {
        missing.push(etcd::NAME);
    }
    let go =
        || go_driver::find_driver().inspect(|file| println!("    etcd's Go client is driven by {}", file.display())).is_some();
    if wanted.contains(&"etcd-go") && !provide("etcd-go", GO, list, go, go_driver::build)? {
        missing.push("etcd-go");
    }
    for server in SERVERS.iter().filter(|server| wanted.contains(&server.name)) {
        let how = format!("see that Python packages can be downloaded, or set {} to the path of such a server", server.variable);
        let found = || server.find().inspect(|file| println!("    {} is {}", server.name, file.display())).is_some();
        if !provide(server.name, &how, list, found, || server.download())? {
            missing.push(server.name);
        }
    }
    let found = || mysql::find().inspect(|file| println!("    {} is {}", mysql::NAME, file.display())).is_some();
    if wanted.contains(&mysql::NAME) && !provide(mysql::NAME, mysql::HOW, list, found, mysql::download)? {
        missing.push(mysql::NAME);
    }
    for drivers in [&REDISSON, &CURATOR].into_iter().filter(|drivers| wanted.contains(&drivers.name)) {
        if !provide(drivers.name, JAVA, list, || driven(drivers), || drivers.build())? {
            missing.push(drivers.name);
        }
    }
    if wanted.contains(&tools::MDBOOK.name) && !provide(tools::MDBOOK.name, tools::HOW, list, mdbook, || tools::MDBOOK.build())? {
        missing.push(tools::MDBOOK.name);
    }
    Ok(if missing.is_empty() { Outcome::Done } else { Outcome::Skipped(format!("no {}", missing.join(", no "))) })
}

/// Sees to it that a server is there, which the tests start and stop themselves; gives whether it is, and says why not. It is an error
/// if the list requires one that is not.
fn provide(
    name: &str,
    how: &str,
    list: &str,
    found: impl Fn() -> bool,
    install: impl FnOnce() -> Result<(), String>,
) -> Result<bool, String> {
    if found() {
        return Ok(true);
    }
    let trouble = match install() {
        Ok(()) if found() => return Ok(true),
        Ok(()) => format!("{name} was installed, but is not found"),
        Err(trouble) => trouble,
    };
    if requires(list, name) {
        return Err(format!("{trouble}; LOCKKEEPER_REQUIRE asks for {name}, so {how}"));
    }
    println!("    {name} is missing ({trouble}), so its tests are skipped; {how}");
    Ok(false)
}

fn redis() -> bool {
    let server = find("redis-server");
    if let Some(file) = &server {
        println!("    redis-server is {}", file.display());
    }
    server.is_some()
}

/// A server that Debian keeps in a folder that is not on the PATH of everybody.
fn server(name: &str) -> bool {
    let debian = std::path::Path::new("/usr/sbin").join(name);
    let server = find(name).or_else(|| debian.is_file().then_some(debian));
    if let Some(file) = &server {
        println!("    {name} is {}", file.display());
    }
    server.is_some()
}

fn etcd_of_the_system() -> bool {
    let programs = ["etcd", "etcdctl"].map(find);
    programs.iter().flatten().for_each(|file| println!("    found {}", file.display()));
    programs.iter().all(Option::is_some)
}

/// Debian keeps the programs of the server off the PATH.
fn postgres() -> bool {
    let debian =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|version| version.path().join("bin/initdb"));
    let server = find("initdb").or_else(|| debian.into_iter().find(|file| file.is_file()));
    if let Some(file) = &server {
        println!("    postgres is beside {}", file.display());
    }
    server.is_some()
}

fn zookeeper() -> bool {
    let jar = |name: &str| std::path::Path::new(&format!("/usr/share/java/{name}.jar")).is_file();
    let found = jar("zookeeper") && jar("curator-recipes") && find("java").is_some() && find("javac").is_some();
    if found {
        println!("    zookeeper and Curator are in /usr/share/java");
    }
    found
}

fn driven(drivers: &Drivers) -> bool {
    drivers.find().inspect(|place| println!("    {} is driven from {}", drivers.name, place.display())).is_some()
}

fn mdbook() -> bool {
    tools::MDBOOK.find().inspect(|file| println!("    mdbook is {}", file.display())).is_some()
}

/// Whether the list, separated by commas, names `what`.
pub(crate) fn requires(list: &str, what: &str) -> bool {
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

    #[test]
    fn what_is_missing_is_an_error_only_where_it_is_required() {
        let absent = |list| provide("valkey", "get it", list, || false, || Err("no network".to_owned()));
        assert_eq!(absent("redis,redis-6.2"), Ok(false));
        let message = absent("redis,valkey").unwrap_err();
        assert!(message.contains("no network; LOCKKEEPER_REQUIRE asks for valkey, so get it"), "{message}");
        assert_eq!(provide("valkey", "get it", "valkey", || true, || Err("not called".to_owned())), Ok(true));
    }
}
