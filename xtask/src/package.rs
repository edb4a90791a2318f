//! What would be published: both crates are packed as `cargo publish` packs them, and the command line is installed from the packages alone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::steps::{Outcome, Run, target};

/// Published in this order: the second needs the first.
const CRATES: [&str; 2] = ["lockkeeper", "lockkeeper-cli"];

/// What each package has to contain, so that it can be read and used without the repository.
const CONTAINS: [&str; 5] = ["Cargo.toml", "Cargo.toml.orig", "README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// The step.
pub(crate) fn run() -> Result<Outcome, String> {
    // The first asks the registry as a real publication does; the second leaves the packages.
    for verb in [&["publish", "--dry-run"][..], &["package"]] {
        let crates = CRATES.iter().flat_map(|name| ["-p", name]);
        let words: Vec<&str> = verb.iter().copied().chain(["--no-verify", "--allow-dirty"]).chain(crates).collect();
        Run::cargo(&words).stream()?;
    }
    let folder = target().join("package");
    let library = unpack(&folder, CRATES[0])?;
    let program = unpack(&folder, CRATES[1])?;
    // The registry does not have this version of the library yet. All else is as for somebody who installs it.
    let patch = format!("patch.crates-io.lockkeeper.path={:?}", library.display().to_string());
    let place = target().display().to_string();
    let (program, root) = (program.display().to_string(), folder.join("installed"));
    let installs = ["install", "--path", &program, "--root", &root.display().to_string(), "--force", "--debug", "--no-track"];
    Run::cargo(&[&installs[..], &["--config", &patch, "--target-dir", &place]].concat()).stream()?;
    let built = root.join("bin/lockkeeper").display().to_string();
    let said = Run::new(&built, &["--version"]).capture()?;
    if !said.starts_with("lockkeeper ") {
        return Err(format!("{built} --version printed {said:?}"));
    }
    Ok(Outcome::Done)
}

/// Unpacks the newest package of the crate; gives the folder.
fn unpack(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let trouble = |error: std::io::Error| format!("{}: {error}", folder.display());
    let version = env!("CARGO_PKG_VERSION");
    let file = folder.join(format!("{name}-{version}.crate"));
    let place = folder.join(format!("{name}-{version}"));
    if place.exists() {
        fs::remove_dir_all(&place).map_err(trouble)?;
    }
    Run::new("tar", &["-xzf", &file.display().to_string(), "-C", &folder.display().to_string()]).stream()?;
    match CONTAINS.iter().find(|part| !place.join(part).is_file()) {
        Some(part) => Err(format!("{} has no {part}", file.display())),
        None => Ok(place),
    }
}
