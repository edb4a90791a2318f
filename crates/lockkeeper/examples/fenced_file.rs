//! A file that refuses writers who lost their lock: the fencing token is kept beside the data, and an older one is refused.
//!
//! Run with `cargo run -p lockkeeper --example fenced_file`.
//!
//! The first writer is paused longer than its lease. When it goes on, another one has the lock and has written. The lock cannot stop the first
//! one any more; the file can.
#![allow(clippy::disallowed_methods, reason = "the pause is what it is about")]

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper::{Client, Token};

/// A file with the token of its last writer in the first line.
#[derive(Debug)]
struct FencedFile(PathBuf);

impl FencedFile {
    /// Replaces the text, unless a later holder of the lock was here.
    ///
    /// Checking and writing must be one step for all processes: a file lock of the system does that, on one machine. The new text replaces the
    /// old by a rename, so that a crash leaves one of the two.
    fn write(&self, token: Token, text: &str) -> Result<()> {
        let gate = File::create(self.0.with_extension("gate"))?;
        gate.lock()?;
        let last = Self::token(&self.0)?;
        if u64::from(token) < last {
            return Err(Error::new(ErrorKind::PermissionDenied, format!("token {token} is older than {last}")));
        }
        let new = self.0.with_extension("new");
        fs::write(&new, format!("{}\n{text}\n", u64::from(token)))?;
        fs::rename(new, &self.0)
    }

    fn token(file: &Path) -> Result<u64> {
        match fs::read_to_string(file) {
            Ok(text) => text.lines().next().and_then(|line| line.parse().ok()).ok_or(ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("fenced-file-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let report = FencedFile(folder.join("report"));
    let client = Client::connect("memory:").await?;

    let first = client.mutex("report").lock().lease(Duration::from_millis(200)).await?;
    let early = first.token().expect("this store gives tokens");
    tokio::time::sleep(Duration::from_millis(400)).await; // paused longer than its lease

    let second = client.mutex("report").lock().await?;
    let late = second.token().expect("this store gives tokens");
    report.write(late, "by the second writer")?;
    println!("the second writer, with the later token: written");
    let refused = matches!(report.write(early, "by the first writer"), Err(error) if error.kind() == ErrorKind::PermissionDenied);
    println!("the first writer, with the earlier token: {}", if refused { "refused" } else { "not refused" });
    println!("the file says: {}", fs::read_to_string(&report.0)?.lines().nth(1).unwrap_or_default());
    second.release().await?;
    fs::remove_dir_all(folder)?;
    Ok(client.close().await?)
}
