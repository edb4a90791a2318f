//! Who takes part: the programs, how they are built, and what each contestant is told. One whose toolchain is missing does not take part,
//! and the page says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A contestant: its key in courses, its name on the page, its program, and words for it.
#[derive(Debug)]
pub(crate) struct Contestant {
    pub(crate) id: &'static str,
    pub(crate) label: &'static str,
    program: &'static str,
    pub(crate) words: &'static [&'static str],
}

const fn one(id: &'static str, label: &'static str, program: &'static str, words: &'static [&'static str]) -> Contestant {
    Contestant { id, label, program, words }
}

const ALL: [Contestant; 39] = [
    one("mutex", "**lockkeeper** `Mutex`", "ours", &["as=mutex"]),
    one("fair", "**lockkeeper** `FairMutex`", "ours", &["as=fair"]),
    one("lease", "**lockkeeper** `Mutex`, explicit lease", "ours", &["as=lease"]),
    one("owner", "**lockkeeper**, by owner", "ours", &["as=owner"]),
    one("guard", "**lockkeeper**, by guard", "ours", &["as=guard"]),
    one("rwlock", "**lockkeeper** `RwLock`", "ours", &[]),
    one("permit", "**lockkeeper** `Semaphore`", "ours", &["as=permit"]),
    one("redlock", "**lockkeeper** RedLock", "ours", &["as=mutex"]),
    one("store", "**lockkeeper**'s store alone", "ours", &["as=store"]),
    one("floor", "floor: bare scripts, no token, no keeper", "ours", &["as=floor"]),
    one("pings", "two PINGs", "ours", &["as=pings"]),
    one("mutex-before", "`Mutex` before", "before", &["as=mutex"]),
    one("fair-before", "`FairMutex` before", "before", &["as=fair"]),
    one("rwlock-before", "`RwLock` before", "before", &[]),
    one("permit-before", "`Semaphore` before", "before", &["as=permit"]),
    one("redlock-before", "RedLock before", "before", &["as=mutex"]),
    one("fresh", "**lockkeeper** `Mutex`, a new name each time", "ours", &["as=fresh"]),
    one("no-hint", "**lockkeeper** `Mutex`, `hint=off`", "ours", &["as=mutex", "hint=off"]),
    one("advisory", "`pg_advisory_lock`", "ours", &["as=server"]),
    one("get-lock", "`GET_LOCK`", "ours", &["as=server"]),
    one("for-update", "`SELECT … FOR UPDATE`, durable", "ours", &["as=row"]),
    one("tokio", "`tokio::sync::Mutex`", "ours", &["as=tokio"]),
    one("flock", "flock(2)", "ours", &["as=flock"]),
    one("redisson", "Redisson `RLock`", "redisson", &[]),
    one("redisson-fair", "Redisson `RFairLock`", "redisson", &["as=fair"]),
    one("redisson-permit", "Redisson `RPermitExpirableSemaphore`", "redisson", &["as=permit"]),
    one("redisson-rw", "Redisson `RReadWriteLock`", "redisson", &["as=readers"]),
    one("rueidislock", "rueidislock (Go)", "rueidislock", &[]),
    one("redsync", "redsync (Go)", "redsync", &[]),
    one("rslock", "rslock (Rust)", "rslock", &[]),
    one("rlock", "rlock (Rust)", "rlock", &[]),
    one("rlock-rw", "rlock (Rust), read-write", "rlock", &[]),
    one("redis-py", "redis-py `Lock`", "redis-py", &[]),
    one("curator", "Curator `InterProcessMutex`", "curator", &[]),
    one("etcd-go", "etcd's Go `concurrency.Mutex`", "etcd", &[]),
    one("etcd-rpc", "etcd's Lock RPC (Go)", "etcd", &["as=rpc"]),
    one("true", "`true`", "commands", &[]),
    one("flock-run", "`flock FILE true`", "commands", &[]),
    one("run", "`lockkeeper run NAME true`", "commands", &[]),
];

/// The contestant with this key.
pub(crate) fn find(id: &str) -> &'static Contestant {
    const { &ALL }.iter().find(|known| known.id == id).expect("a contestant of the list")
}

/// The same contestant of an older lockkeeper, if it is one that can be compared.
pub(crate) fn before(id: &str) -> Option<&'static str> {
    const { &ALL }.iter().map(|known| known.id).find(|known| known.strip_suffix("-before") == Some(id))
}

/// A program: its version, and how it is called, or why it cannot be.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) version: String,
    pub(crate) command: Result<Vec<String>, String>,
}

/// All that is needed.
#[derive(Debug)]
pub(crate) struct Programs(BTreeMap<&'static str, Program>);

impl Programs {
    /// Builds what these contestants need; `before` is the program of an older lockkeeper.
    ///
    /// # Errors
    ///
    /// If our own cannot be built; a peer that cannot is left out.
    pub(crate) fn build<'a>(who: impl Iterator<Item = &'a &'static str>, before: Option<&str>) -> Result<Self, String> {
        let mut programs = BTreeMap::new();
        for program in who.map(|id| find(id).program) {
            if programs.contains_key(program) {
                continue;
            }
            println!("building {program}");
            let built = match program {
                "ours" => ours("bench-ours"),
                "before" => before.map(|program| vec![program.to_owned()]).ok_or_else(|| "--before names it".to_owned()),
                "commands" => ours("lockkeeper"),
                "redisson" | "curator" => java(program),
                "rueidislock" | "redsync" | "etcd" => go(program),
                "rslock" | "rlock" => crates(program),
                _ => python(),
            };
            if let Err(why) = &built {
                println!("    {program} does not take part: {why}");
                if matches!(program, "ours" | "commands") {
                    return Err(why.clone());
                }
            }
            programs.insert(program, Program { version: version(program), command: built });
        }
        Ok(Self(programs))
    }

    pub(crate) fn of(&self, contestant: &Contestant) -> &Program {
        &self.0[contestant.program]
    }

    /// The program of this contestant, with its name.
    pub(crate) fn named(&self, contestant: &Contestant) -> (&'static str, &Program) {
        (contestant.program, self.of(contestant))
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, &Program)> {
        self.0.iter().map(|(name, program)| (*name, program))
    }
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    let told = std::env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    told.and_then(|folder| std::path::absolute(folder).ok()).unwrap_or_else(|| project().join("../target"))
}

fn peers() -> PathBuf {
    target().join("peers")
}

fn ours(program: &str) -> Result<Vec<String>, String> {
    let package = if program == "lockkeeper" { "lockkeeper-cli" } else { program };
    cargo(&["build", "--profile", "dist", "--package", package], &project().join(".."), &target())?;
    Ok(vec![target().join("dist").join(program).display().to_string()])
}

fn crates(peer: &str) -> Result<Vec<String>, String> {
    cargo(&["build", "--release", "--locked"], &project().join("peers").join(peer), &peers())?;
    Ok(vec![peers().join("release").join(format!("bench-{peer}")).display().to_string()])
}

fn cargo(words: &[&str], place: &Path, to: &Path) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    done(Command::new(cargo).args(words).env("CARGO_TARGET_DIR", to).current_dir(place))
}

fn go(peer: &str) -> Result<Vec<String>, String> {
    let file = peers().join(peer).display().to_string();
    done(Command::new("go").args(["build", "-o", &file, &format!("./{peer}")]).current_dir(project().join("peers/go")))?;
    Ok(vec![file])
}

fn python() -> Result<Vec<String>, String> {
    let (place, sources) = (peers().join("redis-py"), project().join("peers/redis-py"));
    let python = place.join("bin/python").display().to_string();
    if !Path::new(&python).exists() {
        done(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    }
    let needs = sources.join("requirements.txt");
    done(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(needs))?;
    Ok(vec![python, sources.join("contestant.py").display().to_string()])
}

/// The driver that the tests use too; `cargo xtask bench` says where it is.
fn java(peer: &str) -> Result<Vec<String>, String> {
    let variable = driver(peer);
    let place = std::env::var(&variable)
        .map_err(|_| format!("{variable} is not set: cargo xtask bench sets it where Java and Maven are"))?;
    let classes = format!("{place}/driver.jar:{place}/lib/*");
    Ok(["java", "-cp", &classes, "lockkeeper.interop.Bench"].map(str::to_owned).to_vec())
}

/// The variable that names the folder of a driver in Java.
fn driver(peer: &str) -> String {
    format!("LOCKKEEPER_BENCH_{}", peer.to_uppercase())
}

fn done(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
    Err(format!("{name} ended with {}: {last}", output.status))
}

/// As its lock file has it.
fn version(program: &str) -> String {
    let read = |file: &str| std::fs::read_to_string(project().join("peers").join(file)).unwrap_or_default();
    let after = |text: String, mark: &str| {
        let end = text.split_once(mark).map(|(_, rest)| rest.split(['"', '\n']).next().unwrap_or_default().trim().to_owned());
        end.unwrap_or_else(|| "of unknown version".to_owned())
    };
    match program {
        "rueidislock" => after(read("go/go.mod"), "github.com/redis/rueidis "),
        "redsync" => after(read("go/go.mod"), "redsync/v4 "),
        "rslock" | "rlock" => after(read(&format!("{program}/Cargo.lock")), &format!("name = \"{program}\"\nversion = \"")),
        "redis-py" => after(read("redis-py/requirements.txt"), "redis=="),
        "etcd" => after(read("go/go.mod"), "go.etcd.io/etcd/client/v3 "),
        "redisson" | "curator" => std::env::var(driver(program))
            .ok()
            .and_then(|place| Some(Path::new(&place).file_name()?.display().to_string()))
            .unwrap_or_default(),
        _ => env!("CARGO_PKG_VERSION").to_owned(),
    }
}
