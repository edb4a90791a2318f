//! MySQL 9, which is tested beside MariaDB: out of Debian's unstable release, with all libraries that it needs.

use std::path::{Path, PathBuf};

use crate::sid::{self, With};
use crate::steps::Run;

/// As `LOCKKEEPER_REQUIRE` calls it.
pub(crate) const NAME: &str = "mysql-9";

/// The environment variable that tells the tests where it is.
pub(crate) const VARIABLE: &str = "LOCKKEEPER_MYSQL_9";

pub(crate) const HOW: &str = "use Debian with apt-get, or set LOCKKEEPER_MYSQL_9 to the path of such a server";

/// Where it is, if it is there and runs: where the environment says, or else where [`download`] puts it.
pub(crate) fn find() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).filter(|file| !file.is_empty());
    let file =
        named.map_or_else(|| sid::place(NAME).join("mysqld"), |file| std::path::absolute(&file).unwrap_or_else(|_| file.into()));
    (file.is_file() && check(&file).is_ok()).then_some(file)
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
    let options = "--basedir=\"$here/usr\" --lc-messages-dir=\"$here/usr/share/mysql\"";
    // The server comes with scripts in Perl, which tests do not run.
    sid::download(NAME, &["mysql-server-core"], With::Dependencies, Some("perl"), |files| {
        check(&sid::write_starter(files, "usr/sbin/mysqld", options)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_but_is_another_server_is_refused() {
        let message = check(Path::new("/bin/echo")).unwrap_err();
        assert!(message.contains("/bin/echo is no MySQL 9"), "{message}");
    }
}
