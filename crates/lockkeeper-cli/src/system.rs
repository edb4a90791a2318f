//! `system:`, one store for all users of this machine: a sqlite database in a directory that root made for a group.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::exit::{Code, Failure};

pub(crate) const URL: &str = "system:";

const DIRECTORY: &str = "/var/lib/lockkeeper";
const FILE: &str = "locks.db";
const ROOT: u32 = 0;

/// The URL of the store. It is refused unless the directory is as root has to make it: see `docs/cli.md`.
pub(crate) fn url() -> Result<String, Failure> {
    check(Path::new(DIRECTORY), ROOT)?;
    Ok(format!("sqlite:{DIRECTORY}/{FILE}"))
}

/// Whoever can write here can forge every lock. So the directory belongs to `owner`, only its group may write, and links are not followed.
fn check(directory: &Path, owner: u32) -> Result<(), Failure> {
    let shown = directory.display();
    let make = format!("as root: install -d -o root -g GROUP -m 2770 {shown}, with a group whose members may lock");
    let refused = |why: String| Err(Failure::new(Code::Unavailable, why));
    let found = match fs::symlink_metadata(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return refused(format!("system: has no store on this machine yet; make its directory once, {make}"));
        }
        Err(error) => return refused(format!("cannot look at {shown}: {error}; are you in its group?")),
    };
    if !found.is_dir() {
        return refused(format!("{shown} is not a directory, or a link to one; move it away and make it, {make}"));
    }
    if found.uid() != owner {
        return refused(format!(
            "{shown} belongs to another user (uid {}), who can forge every lock; make it, {make}",
            found.uid()
        ));
    }
    if found.mode() & 0o002 != 0 {
        return refused(format!("{shown} can be written by everybody, who can forge every lock then; make it, {make}"));
    }
    if found.mode() & 0o2020 == 0o020 {
        return refused(format!("files in {shown} would not get the group of the directory; as root: chmod g+s {shown}"));
    }
    match fs::symlink_metadata(directory.join(FILE)) {
        Ok(file) if !file.is_file() => refused(format!("{shown}/{FILE} is not a regular file; move it away")),
        Ok(file) if file.mode() & 0o002 != 0 => refused(format!(
            "{shown}/{FILE} can be written by everybody, who can forge every lock then; as root: chmod o-w {shown}/{FILE}"
        )),
        Ok(file) if file.uid() != owner && file.gid() != found.gid() => {
            refused(format!("{shown}/{FILE} belongs to user {} and not to the group of the directory; move it away", file.uid()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn only_a_directory_of_the_owner_and_its_group_is_used() {
        let own = rustix::process::geteuid().as_raw();
        let above = std::env::temp_dir().join(format!("lockkeeper-system-{}", std::process::id()));
        let directory = above.join("store");
        fs::create_dir_all(&directory).unwrap();
        let mode = |mode: u32| fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
        let says =
            |directory: &Path, owner| check(directory, owner).err().and_then(|failure| failure.message).unwrap_or_default();
        for good in [0o2770, 0o700, 0o755] {
            mode(good);
            assert_eq!(says(&directory, own), "", "{good:o}");
        }
        for (bad, why) in [(0o2777, "written by everybody"), (0o1777, "written by everybody"), (0o770, "chmod g+s")] {
            mode(bad);
            assert!(says(&directory, own).contains(why), "{bad:o}: {}", says(&directory, own));
        }
        mode(0o2770);
        assert!(says(&directory, own + 1).contains("belongs to another user"));
        assert!(says(&above.join("none"), own).contains("install -d -o root -g GROUP -m 2770"));
        symlink(&directory, above.join("link")).unwrap();
        assert!(says(&above.join("link"), own).contains("is not a directory"));
        fs::write(directory.join(FILE), "").unwrap();
        fs::set_permissions(directory.join(FILE), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(says(&directory, own).contains("chmod o-w"));
        fs::remove_file(directory.join(FILE)).unwrap();
        symlink("/etc/passwd", directory.join(FILE)).unwrap();
        assert!(says(&directory, own).contains("is not a regular file"));
        fs::remove_dir_all(&above).unwrap();
    }
}
