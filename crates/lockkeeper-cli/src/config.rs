//! Finds the config file: `$LOCKKEEPER_CONFIG`, else `lockkeeper/config.toml` in the user's config directory. The library reads it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::exit::{Code, Failure};

const VARIABLE: &str = "LOCKKEEPER_CONFIG";

/// The file that names the store, if there is one.
pub(crate) fn find() -> Result<Option<PathBuf>, Failure> {
    let named = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = named(VARIABLE) {
        return Ok(Some(file));
    }
    let Some(settings) = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config"))) else { return Ok(None) };
    let file = settings.join(Path::new("lockkeeper/config.toml"));
    // The default file may be missing or empty. A named pipe is not read: the library refuses it.
    if fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
        return Ok(Some(file));
    }
    match fs::read_to_string(&file) {
        Ok(text) if says_nothing(&text) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(_) => Ok(Some(file)),
        Err(error) => {
            let why = format!("the config file {}: cannot be read: {error}; fix it, or name the store with -S", file.display());
            Err(Failure::new(Code::Usage, why))
        }
    }
}

fn says_nothing(text: &str) -> bool {
    text.lines().map(str::trim_start).all(|line| line.is_empty() || line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_say_nothing() {
        assert!(says_nothing("# store = \"memory:\"\n\n  # more\n") && says_nothing(""));
        assert!(!says_nothing("# a\nstore = \"memory:\"\n"));
    }
}
