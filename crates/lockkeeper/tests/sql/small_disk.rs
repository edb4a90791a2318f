//! A disk that can be full: a few megabytes of memory, mounted over a folder. Needs root.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`: nothing can be mounted here, and that was said.
    pub(crate) fn over(folder: &Path, test: &str) -> Option<Self> {
        let options = ["-t", "tmpfs", "-o", "size=4m,mode=0777", "lockkeeper-test"];
        let mounted = Command::new("mount").args(options).arg(folder).output();
        if mounted.is_ok_and(|done| done.status.success()) {
            return Some(Self(folder.to_owned()));
        }
        lockkeeper::conformance::skip(test, "mount: a small disk needs root and the right to mount");
        None
    }

    /// Leaves no room.
    pub(crate) fn fill(&self) {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
