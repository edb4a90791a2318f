//! Installing packages with apt-get, where that needs no password.

use crate::steps::{Run, find};

/// Installs `package`, if we may; says so.
pub(crate) fn install(package: &str) -> Result<(), String> {
    let root = user_is_root();
    if find("apt-get").is_none() || !(root || Run::new("sudo", &["-n", "true"]).succeeds()) {
        return Err(format!("{package} is not installed"));
    }
    println!("    installing {package} with apt-get");
    let steps: [&[&str]; 2] = [&["update"], &["install", "-y", "--no-install-recommends", package]];
    for step in steps {
        let words = [&["DEBIAN_FRONTEND=noninteractive", "apt-get"], step].concat();
        let installing = if root { Run::new("env", &words) } else { Run::new("sudo", &[&["-n", "env"], &words[..]].concat()) };
        installing.stream().map_err(|message| format!("{package} cannot be installed with apt-get: {message}"))?;
    }
    Ok(())
}

fn user_is_root() -> bool {
    Run::new("sh", &["-c", r#"test "$(id -u)" = 0"#]).succeeds()
}
