//! What is wrong with the place is told when connecting, in words, not when a lock is lost.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::error;
use crate::backend::Finding;
use crate::error::{Error, ErrorKind, Result};

/// File systems that another machine may write to, or that cannot tell: there neither locks of files nor the boot clock hold.
const SHARED: [(i64, &str); 18] = [
    (0x6969, "nfs"),
    (0x517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x5346_414f, "afs"),
    (0x6b41_4653, "afs"),
    (0x7375_7245, "coda"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x00c3_6400, "ceph"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x564c, "ncp"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x786f_4256, "vboxsf"),
    (0x1983_0326, "beegfs"),
    (0xaad7_aaea, "panfs"),
];

/// The name of a file system that is refused.
fn shared(kind: impl Into<i64>) -> Option<&'static str> {
    // Some machines give it with a sign.
    let kind = kind.into() & 0xffff_ffff;
    SHARED.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name)
}

/// Refuses directories on network file systems.
pub(super) fn filesystem(directory: &Path) -> Result<()> {
    let told = rustix::fs::statfs(directory).map_err(|cause| error::of_file(cause.into(), "look at", directory))?;
    match shared(told.f_type) {
        Some(name) => Err(Error::new(
            ErrorKind::Config,
            format!(
                "{} is on a file system that other machines may use ({name}); a sqlite store is for one machine: name a local directory",
                directory.display()
            ),
        )),
        None => Ok(()),
    }
}

/// Refuses a link that another user made where all can write.
pub(super) fn link(named: &Path, directory: &Path) -> Result<()> {
    let Some(found) = std::fs::symlink_metadata(named).ok().filter(std::fs::Metadata::is_symlink) else { return Ok(()) };
    let is_open = std::fs::metadata(directory).is_ok_and(|above| above.mode() & 0o002 != 0);
    if !is_open || [rustix::process::geteuid().as_raw(), 0].contains(&found.uid()) {
        return Ok(());
    }
    let (named, uid, directory) = (named.display(), found.uid(), directory.display());
    let message =
        format!("{named} is a link of another user (uid {uid}), in {directory}, where all users can write; it is not followed");
    Err(Error::new(ErrorKind::Denied, message))
}

/// Refuses a database that another user made where all can write: nobody who may be trusted has put it there, and its owner can free every lock in it.
pub(super) fn database(file: &Path, directory: &Path) -> Result<()> {
    let look_at = |path: &Path| std::fs::metadata(path).map_err(|cause| error::of_file(cause, "look at", path));
    let (found, above) = (look_at(file)?, look_at(directory)?);
    let trusted = [rustix::process::geteuid().as_raw(), 0].contains(&found.uid());
    if trusted || above.mode() & 0o002 == 0 {
        return Ok(());
    }
    let (file, uid, directory) = (file.display(), found.uid(), directory.display());
    let message = format!(
        "{file} belongs to another user (uid {uid}), in {directory}, where all users can write; it is not used: name a file in a \
         directory of your own, or share one that root or a group made"
    );
    Err(Error::new(ErrorKind::Denied, message))
}

/// Refuses a `-live` directory that somebody else prepared: its owner could make dead clients look alive, and the other way round.
pub(super) fn live_directory(live: &Path, file: &Path, mode: u32) -> Result<()> {
    let refuse = |why: String| {
        let message = format!("{} {why}; it is not used: remove it, or name another file", live.display());
        Err(Error::new(ErrorKind::Denied, message))
    };
    let look_at = |path: &Path| std::fs::symlink_metadata(path).map_err(|cause| error::of_file(cause, "look at", path));
    let found = look_at(live)?;
    if !found.is_dir() {
        return refuse("is not a directory".to_owned());
    }
    // Writable by the group or by all only if the file is.
    if found.mode() & 0o022 & !mode != 0 {
        return refuse(format!("can be written by other users (mode {:o})", found.mode() & 0o777));
    }
    let owners = [Some(rustix::process::geteuid().as_raw()), Some(0), look_at(file).ok().map(|file| file.uid())];
    if owners.contains(&Some(found.uid())) {
        return Ok(());
    }
    // In the directory of a group any member may have made it, and nobody else can have.
    let above = look_at(live.parent().unwrap_or(Path::new("/")))?;
    if mode & 0o020 != 0 && above.mode() & 0o002 == 0 {
        return Ok(());
    }
    refuse(format!("belongs to another user (uid {})", found.uid()))
}

/// Whether the file can be written: a read-only or full file system is noticed by writing, not by looking.
pub(super) fn writable(file: &Path) -> Finding {
    let mut probe = file.as_os_str().to_owned();
    probe.push(format!("-probe-{}", std::process::id()));
    let probe = PathBuf::from(probe);
    let written = write_probe(&probe);
    let removed = std::fs::remove_file(&probe);
    match written.and(removed) {
        Ok(()) => Finding::fine("file", "lockkeeper database, integrity ok, writable"),
        Err(cause) => Finding::unfit("file", &error::of_file(cause, "write beside", file)),
    }
}

/// As much as some transactions need.
fn write_probe(path: &Path) -> io::Result<()> {
    let mut probe = File::create_new(path)?;
    probe.write_all(&[0; 64 * 1024])?;
    probe.sync_all()
}

/// Whoever may write the file may take and free every lock in it.
pub(super) fn users(file: &Path) -> Finding {
    let (mode, owner) = std::fs::metadata(file).map_or((0, None), |told| (told.permissions().mode(), Some(told.uid())));
    let other = owner.filter(|owner| *owner != rustix::process::geteuid().as_raw());
    if let Some(uid) = other {
        Finding::doubtful("users", format!("it belongs to another user (uid {uid}), who can free every lock in it"))
    } else if mode & 0o077 == 0 {
        Finding::fine("users", "this user only")
    } else {
        Finding::doubtful(
            "users",
            format!("others may use the file too (mode {:o}); chmod 600 if that is not meant", mode & 0o777),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_and_local_ones_pass() {
        assert_eq!(shared(0x6969_i64), Some("nfs"));
        assert_eq!(shared(0xff53_4d42_u32 as i32), Some("cifs"), "sign-extended by the kernel");
        for (local, name) in [(0xef53_i64, "ext4"), (0x5846_5342, "xfs"), (0x9123_683e, "btrfs"), (0x0102_1994, "tmpfs")] {
            assert_eq!(shared(local), None, "{name}");
        }
    }
}
