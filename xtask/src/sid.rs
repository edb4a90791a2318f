//! Programs out of Debian's unstable release: apt-get downloads packages from there into a folder below the target directory. Nothing is
//! installed, and the system's own lists of packages stay as they are.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::steps::{Run, target};

/// The keys that Debian signs its lists with.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// What is downloaded of a package.
#[derive(Debug, Clone, Copy)]
pub(crate) enum With {
    /// The packages with all that they depend on.
    Dependencies,
    /// The named packages.
    Nothing,
}

/// Where the files of this name are kept.
pub(crate) fn place(name: &str) -> PathBuf {
    target().join("servers").join(name)
}

/// Downloads packages and unpacks them, except those with `left_out` in their name; `finish` makes the folder of their files usable, and checks it.
/// It takes the place of an older one.
pub(crate) fn download(
    name: &str,
    packages: &[&str],
    with: With,
    left_out: Option<&str>,
    finish: impl Fn(&Path) -> Result<(), String>,
) -> Result<(), String> {
    let folder = place(name).with_file_name(format!("download-{name}-{}", std::process::id()));
    println!("    downloading {name} with apt-get, out of Debian's unstable release");
    let done = unpack(&folder, packages, with, left_out).and_then(|files| {
        finish(&files)?;
        // One that does not run may be in the way.
        let _ = fs::remove_dir_all(place(name));
        fs::rename(&files, place(name)).map_err(|error| format!("cannot move {name} out of {}: {error}", folder.display()))
    });
    // Nothing of it is needed any more; if it stays, it only takes room.
    let _ = fs::remove_dir_all(&folder);
    done
}

/// The folder with the unpacked files.
fn unpack(folder: &Path, packages: &[&str], with: With, left_out: Option<&str>) -> Result<PathBuf, String> {
    let trouble = |what: &str, error: std::io::Error| format!("{what} {}: {error}", folder.display());
    let mirror = mirror()?;
    let archives = folder.join("cache/archives");
    for part in ["lists/partial", "cache/archives/partial", "files"] {
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
    let apt = |words: &[&str]| {
        let words = [words, packages].concat();
        Run::new("apt-get", &words).with("APT_CONFIG", format!("{here}/apt.conf")).inside(&archives).capture().map(drop)
    };
    Run::new("apt-get", &["-q", "update"]).with("APT_CONFIG", format!("{here}/apt.conf")).capture()?;
    match with {
        With::Dependencies => apt(&["-q", "-y", "--download-only", "install"])?,
        // Into the folder in which it runs.
        With::Nothing => apt(&["-q", "download"])?,
    }
    let files = folder.join("files");
    for archive in fs::read_dir(&archives).map_err(|error| trouble("cannot read", error))?.flatten().map(|file| file.path()) {
        let is_wanted = |name: &str| name.ends_with(".deb") && left_out.is_none_or(|part| !name.contains(part));
        if archive.file_name().is_some_and(|name| is_wanted(&name.to_string_lossy())) {
            let words = [&archive.display().to_string()[..], &files.display().to_string()];
            Run::new("dpkg-deb", &[&["-x"], &words[..]].concat()).capture()?;
        }
    }
    Ok(files)
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

/// Writes a script into the folder that starts a program of it with its own libraries, the C library among them. `options` follow those of the caller,
/// and `$here` is the folder.
pub(crate) fn write_starter(files: &Path, program: &str, options: &str) -> Result<PathBuf, String> {
    let name = Path::new(program).file_name().expect("a path of a program");
    let script = files.join(name);
    let written = fs::write(&script, starter(files, program, options)?)
        .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)));
    written.map(|()| script).map_err(|error| format!("cannot write into {}: {error}", files.display()))
}

fn starter(files: &Path, program: &str, options: &str) -> Result<String, String> {
    let missing = || format!("{program} came without a C library");
    let folders = fs::read_dir(files.join("usr/lib")).map_err(|_| missing())?;
    let loader = folders.flatten().find_map(|folder| {
        let mut files = fs::read_dir(folder.path()).ok()?.flatten();
        let is_loader = |name: &str| name.starts_with("ld-linux") || name.starts_with("ld64");
        let file = files.find(|file| is_loader(&file.file_name().to_string_lossy()))?.file_name();
        Some((folder.file_name().to_string_lossy().into_owned(), file.to_string_lossy().into_owned()))
    });
    let (libraries, loader) = loader.ok_or_else(missing)?;
    Ok(format!(
        "#!/bin/sh\nhere=$(dirname \"$(readlink -f \"$0\")\")\nlib=$here/usr/lib/{libraries}\n\
         exec \"$lib/{loader}\" --library-path \"$lib\" \"$here/{program}\" \"$@\" {options}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_starter_uses_the_libraries_beside_it() {
        let folder = std::env::temp_dir().join(format!("lockkeeper-xtask-sid-{}", std::process::id()));
        let libraries = folder.join("usr/lib/some-linux-gnu");
        fs::create_dir_all(&libraries).unwrap();
        assert!(starter(&folder, "usr/bin/tool", "").unwrap_err().contains("without a C library"));
        fs::write(libraries.join("ld-linux-some.so.2"), "").unwrap();
        let text = fs::read_to_string(write_starter(&folder, "usr/bin/tool", "--more").unwrap()).unwrap();
        assert!(text.contains("lib=$here/usr/lib/some-linux-gnu\n") && text.contains("\"$lib/ld-linux-some.so.2\""), "{text}");
        assert!(text.ends_with("\"$here/usr/bin/tool\" \"$@\" --more\n"), "{text}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
