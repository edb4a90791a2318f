//! The config file: `$LOCKKEEPER_CONFIG`, else `lockkeeper/config.toml` where the user's settings are.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::exit::{Code, Failure};

const VARIABLE: &str = "LOCKKEEPER_CONFIG";

/// What can be set.
const KEYS: [&str; 1] = ["store"];

/// What the file says.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Config {
    /// The URL of the store; may hold a password.
    pub(crate) store: Option<String>,
}

/// Reads the file, if there is one; also tells which it was.
pub(crate) fn read() -> Result<Option<(Config, PathBuf)>, Failure> {
    let Some((file, asked_for)) = find() else { return Ok(None) };
    let refused = |why: String| Failure::new(Code::Usage, format!("the config file {}: {why}", file.display()));
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !asked_for => return Ok(None),
        Err(error) => return Err(refused(format!("cannot be read: {error}; mend it, or name the store with -S"))),
    };
    let config = parse(&text).map_err(refused)?;
    if config.store.as_deref().is_some_and(has_password) {
        let mode = fs::metadata(&file).map(|told| told.permissions()).as_ref().map_or(0, Permissions::mode);
        if mode & 0o077 != 0 {
            return Err(refused(format!("holds a password and others can read it; chmod 600 {}", file.display())));
        }
    }
    Ok(Some((config, file)))
}

/// Where the file is, and whether somebody asked for it by name.
fn find() -> Option<(PathBuf, bool)> {
    let named = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = named(VARIABLE) {
        return Some((file, true));
    }
    let settings = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")))?;
    Some((settings.join(Path::new("lockkeeper/config.toml")), false))
}

/// Understands the text; what it does not understand is said without repeating a value: it may be a password.
fn parse(text: &str) -> Result<Config, String> {
    let table = text.parse::<toml::Table>().map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        format!("line {line} is not TOML: {}; write for example store = \"redis://127.0.0.1\"", error.message())
    })?;
    let mut config = Config::default();
    for (key, value) in table {
        match (key.as_str(), value) {
            ("store", toml::Value::String(url)) => config.store = Some(url),
            ("store", _) => return Err("store is not a text; write store = \"URL\"".to_owned()),
            (key, _) => return Err(format!("there is no setting {key:?}; did you mean {}?", nearest(key, &KEYS))),
        }
    }
    Ok(config)
}

/// The word that is the fewest changed letters away.
fn nearest<'a>(word: &str, words: &[&'a str]) -> &'a str {
    words.iter().min_by_key(|known| distance(word, known)).copied().unwrap_or_default()
}

/// How many letters have to be changed, added or taken away.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, with) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *with);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// Whether a URL has a password: `scheme://user:password@host`.
fn has_password(url: &str) -> bool {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_read() {
        assert_eq!(parse("# mine\nstore = \"memory:\"\n").unwrap_or_default().store.as_deref(), Some("memory:"));
        assert_eq!(parse("").unwrap_or_default().store, None);
    }

    #[test]
    fn what_is_not_understood_is_told_in_one_line_and_without_values() {
        for (text, says) in [
            ("stroe = \"redis://me:secret@h\"", "did you mean store?"),
            ("store = 7", "is not a text"),
            ("\nstore = redis://me:secret@h", "line 2 is not TOML"),
            ("[store]\nurl = \"secret\"", "is not a text"),
        ] {
            let message = parse(text).err().unwrap_or_default();
            assert!(message.contains(says) && !message.contains('\n') && !message.contains("secret"), "{text}: {message}");
        }
    }

    #[test]
    fn the_nearest_word_is_meant() {
        assert_eq!(nearest("tokne", &["store", "token", "listen"]), "token");
        assert_eq!((distance("store", "store"), distance("stroe", "store"), distance("", "abc")), (0, 2, 3));
    }

    #[test]
    fn passwords_are_noticed() {
        for (url, has) in [
            ("redis://me:secret@h/0", true),
            ("redis://:secret@h", true),
            ("redis://me@h:6379", false),
            ("sqlite:/a:b@c", false),
            ("redis+unix://me:secret@localhost/run/r", true),
        ] {
            assert_eq!(has_password(url), has, "{url}");
        }
    }
}
