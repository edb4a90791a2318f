//! An etcd that is newer than that of Debian's stable releases, with its `etcdctl`: out of the unstable release.

use std::path::{Path, PathBuf};

use crate::sid::{self, With};
use crate::steps::Run;

/// As `LOCKKEEPER_REQUIRE` calls it.
pub(crate) const NAME: &str = "etcd-new";

/// The environment variable that tells the tests in which folder `etcd` and `etcdctl` are.
pub(crate) const VARIABLE: &str = "LOCKKEEPER_ETCD_NEW";

pub(crate) const HOW: &str = "use Debian with apt-get, or set LOCKKEEPER_ETCD_NEW to a folder with etcd and etcdctl 3.5 or later";

/// Where it is, if it is there and runs: where the environment says, or else where [`download`] puts it.
pub(crate) fn find() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    let folder = named.map_or_else(|| sid::place(NAME), |folder| std::path::absolute(&folder).unwrap_or_else(|_| folder.into()));
    check(&folder).is_ok().then_some(folder)
}

fn check(folder: &Path) -> Result<(), String> {
    for (program, word, says) in [("etcd", "--version", "etcd Version: "), ("etcdctl", "version", "etcdctl version: ")] {
        let file = folder.join(program);
        if !file.is_file() {
            return Err(format!("there is no {}", file.display()));
        }
        let said = Run::new(&file.display().to_string(), &[word]).with("ETCDCTL_API", "3").capture()?;
        if !said.lines().any(|line| line.strip_prefix(says).is_some_and(is_new)) {
            return Err(format!("{} is no {program} 3.5 or later: it says {said:?}", file.display()));
        }
    }
    Ok(())
}

fn is_new(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.trim().parse::<u32>());
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (3, 5))
}

/// Downloads it, about 20 MB. It needs the C library and nothing else.
pub(crate) fn download() -> Result<(), String> {
    if let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
        return Err(format!("{VARIABLE} names {}: {}", folder.display(), check(Path::new(&folder)).err().unwrap_or_default()));
    }
    sid::download(NAME, &["etcd-server", "etcd-client", "libc6"], With::Nothing, None, |files| {
        for program in ["usr/bin/etcd", "usr/bin/etcdctl"] {
            sid::write_starter(files, program, "")?;
        }
        check(files)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_version_and_another_program_are_refused() {
        for (version, expected) in [("3.5.30", true), ("3.6.0-rc.1", true), ("4.0.0", true), ("3.4.23", false), ("", false)] {
            assert_eq!(is_new(version), expected, "{version}");
        }
        let message = check(Path::new("/no/such/folder")).unwrap_err();
        assert!(message.contains("there is no /no/such/folder/etcd"), "{message}");
    }
}
