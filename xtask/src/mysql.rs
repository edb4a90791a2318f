//! MySQL 9, which is tested beside MariaDB. Debian has it in its unstable release: apt-get downloads it from there with all libraries that it
//! needs, into a folder below the target directory. Nothing is installed, and the system's own lists of packages stay as they are.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::steps::{Run, target};

/// As `LOCKKEEPER_REQUIRE` calls it.
pub(crate) const NAME: &str = "mysql-9";

/// The environment variable that tells the tests where it is.
pub(crate) const VARIABLE: &str = "LOCKKEEPER_MYSQL_9";

pub(crate) const HOW: &str = "use Debian with apt-get, or set LOCKKEEPER_MYSQL_9 to the path of such a server";

const PACKAGE: &str = "mysql-server-core";

/// The keys that Debian signs its lists with.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where it is, if it is there and runs: where the environment says, or else where [`download`] puts it.
pub(crate) fn find() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).filter(|file| !file.is_empty());
    let file = named.map_or_else(|| place().join("mysqld"), |file| std::path::absolute(&file).unwrap_or_else(|_| file.into()));
    (file.is_file() && check(&file).is_ok()).then_some(file)
}

fn place() -> PathBuf {
    target().join("servers").join(NAME)
}

fn check(file: &Path) -> Result<(), String> {
    let said = Run::new(&file.display().to_string(), &["--no-defaults", "--version"]).capture()?;
    if said.contains(" Ver 9.") { Ok(()) } else { Err(format!("{} is no MySQL 9: it says {said:?}", file.display())) }
}

/// Downloads it, about 60 MB.
pub(crate) fn download() -> Result<(), String> {
    if let Some(file) = std::env::var_os(VARIABLE).filter(|file| !file.is_empty()) {
        return Err(format!("{VARIABLE} names {}, which is no MySQL 9", file.display()));
    }
    let folder = place().with_file_name(format!("download-{}", std::process::id()));
    let done = download_into(&folder);
    // Nothing of it is needed any more; if it stays, it only takes room.
    let _ = fs::remove_dir_all(&folder);
    done
}

fn download_into(folder: &Path) -> Result<(), String> {
    let trouble = |what: &str, error: std::io::Error| format!("{what} {}: {error}", folder.display());
    let mirror = mirror()?;
    println!("    downloading {NAME} with apt-get, out of Debian's unstable release");
    for part in ["lists/partial", "cache/archives/partial", "server"] {
        fs::create_dir_all(folder.join(part)).map_err(|error| trouble("cannot create", error))?;
    }
    let here = folder.display();
    let write =
        |name: &str, text: String| fs::write(folder.join(name), text).map_err(|error| trouble("cannot write into", error));
    write("sources.list", format!("deb [signed-by={KEYS}] {mirror} sid main\n"))?;
    // No package counts as installed, so that each library comes with it.
    write("status", String::new())?;
    write(
        "apt.conf",
        format!(
            "Dir::Etc::sourcelist \"{here}/sources.list\";\nDir::Etc::sourceparts \"-\";\nDir::State \"{here}\";\n\
             Dir::State::lists \"{here}/lists\";\nDir::State::status \"{here}/status\";\nDir::Cache \"{here}/cache\";\n\
             APT::Sandbox::User \"\";\nAPT::Install-Recommends \"false\";\nAcquire::Languages \"none\";\n"
        ),
    )?;
    let apt = |words: &[&str]| Run::new("apt-get", words).with("APT_CONFIG", format!("{here}/apt.conf")).capture().map(drop);
    apt(&["-q", "update"])?;
    apt(&["-q", "-y", "--download-only", "install", PACKAGE])?;
    let server = folder.join("server");
    let archives = fs::read_dir(folder.join("cache/archives")).map_err(|error| trouble("cannot read", error))?;
    for archive in archives.flatten().map(|file| file.path()) {
        // The server comes with scripts in Perl, which tests do not run.
        let is_perl = archive.file_name().is_some_and(|name| name.to_string_lossy().contains("perl"));
        if archive.extension().is_some_and(|end| end == "deb") && !is_perl {
            let words = [&archive.display().to_string()[..], &server.display().to_string()];
            Run::new("dpkg-deb", &[&["-x"], &words[..]].concat()).capture()?;
        }
    }
    write("server/mysqld", starter(&server)?)?;
    let file = server.join("mysqld");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).map_err(|error| trouble("cannot write into", error))?;
    check(&file)?;
    // One that does not run may be in the way.
    let _ = fs::remove_dir_all(place());
    fs::rename(&server, place()).map_err(|error| trouble("cannot move the server out of", error))
}

/// The archive that this system has its packages from.
fn mirror() -> Result<String, String> {
    if !Path::new(KEYS).is_file() {
        return Err(format!("this is no Debian: there is no {KEYS}"));
    }
    let known = Run::new("apt-get", &["indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages"]).capture()?;
    let mirror =
        known.lines().find_map(|line| line.strip_prefix("Debian ").filter(|uri| uri.trim_end_matches('/').ends_with("/debian")));
    mirror.map(str::to_owned).ok_or_else(|| "apt-get names no archive of Debian".to_owned())
}

/// A script that starts the server with its own libraries, the C library among them.
fn starter(server: &Path) -> Result<String, String> {
    let missing = || format!("{PACKAGE} came without a C library");
    let folders = fs::read_dir(server.join("usr/lib")).map_err(|_| missing())?;
    let loader = folders.flatten().find_map(|folder| {
        let mut files = fs::read_dir(folder.path()).ok()?.flatten();
        let is_loader = |name: &str| name.starts_with("ld-linux") || name.starts_with("ld64");
        let file = files.find(|file| is_loader(&file.file_name().to_string_lossy()))?.file_name();
        Some((folder.file_name().to_string_lossy().into_owned(), file.to_string_lossy().into_owned()))
    });
    let (libraries, loader) = loader.ok_or_else(missing)?;
    Ok(format!(
        "#!/bin/sh\nhere=$(dirname \"$(readlink -f \"$0\")\")\nlib=$here/usr/lib/{libraries}\n\
         exec \"$lib/{loader}\" --library-path \"$lib\" \"$here/usr/sbin/mysqld\" \"$@\" \
         --basedir=\"$here/usr\" --lc-messages-dir=\"$here/usr/share/mysql\"\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_but_is_another_server_is_refused() {
        let message = check(Path::new("/bin/echo")).unwrap_err();
        assert!(message.contains("/bin/echo is no MySQL 9"), "{message}");
    }

    #[test]
    fn the_starter_uses_the_libraries_beside_it() {
        let folder = std::env::temp_dir().join(format!("lockkeeper-xtask-mysql-{}", std::process::id()));
        let libraries = folder.join("usr/lib/some-linux-gnu");
        fs::create_dir_all(&libraries).unwrap();
        assert!(starter(&folder).unwrap_err().contains("without a C library"));
        fs::write(libraries.join("ld-linux-some.so.2"), "").unwrap();
        let text = starter(&folder).unwrap();
        assert!(text.contains("lib=$here/usr/lib/some-linux-gnu\n") && text.contains("\"$lib/ld-linux-some.so.2\""), "{text}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
