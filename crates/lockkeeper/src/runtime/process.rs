//! Who this process is, for operators who look at who holds a lock.

/// The name of this machine.
#[cfg(unix)]
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The name of this machine.
#[cfg(not(unix))]
pub(crate) fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "-".to_owned())
}

/// The user that this process runs as: its name, else its number.
#[cfg(unix)]
pub(crate) fn user() -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    // The kernel tells who owns the process; the variables tell who the login shell believed it to be.
    let number = std::fs::metadata("/proc/self").ok().map(|process| process.uid().to_string());
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = number.as_deref().and_then(|number| {
        let mut lines = users.lines().map(|line| line.split(':'));
        lines.find_map(|mut fields| fields.next().filter(|_| fields.nth(1) == Some(number)).map(str::to_owned))
    });
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    named
        .or_else(|| variable("USER"))
        .or_else(|| variable("LOGNAME"))
        .or(number)
        .map(|user| user.replace(char::is_control, "\u{fffd}"))
}

/// The user that this process runs as.
#[cfg(not(unix))]
pub(crate) fn user() -> Option<String> {
    std::env::var("USERNAME").ok()
}
