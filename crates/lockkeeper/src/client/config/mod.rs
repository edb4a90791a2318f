//! Configuration files: `config:FILE` is the store that the file names. TOML of our own, or the YAML that Redisson reads, so that one file
//! serves both languages.
//!
//! A file becomes a URL, and the URL is understood where all are: there is one place that knows what a store can be told. Whatever is wrong
//! is said with the file's name and without its values; one of them may be a password.

mod nearest;
mod own;
mod parts;
mod redisson;
mod tree;

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use self::tree::Value;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime;

/// The URL of the store that the file names.
pub(super) fn store_of(file: &Path) -> Result<String> {
    let told = |why: String| Error::new(ErrorKind::Config, format!("the config file {}: {why}", file.display()));
    read(file, &|variable| std::env::var(variable).ok()).map_err(told)
}

fn contents(file: &Path) -> std::result::Result<(fs::Metadata, String), String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let (meta, bytes) = runtime::read_file(file).map_err(unreadable)?;
    Ok((meta, String::from_utf8(bytes).map_err(|_| "cannot be read: it is not UTF-8 text".to_owned())?))
}

/// `Err`: what is wrong, in one line.
fn read(file: &Path, environment: &dyn Fn(&str) -> Option<String>) -> std::result::Result<String, String> {
    let (meta, text) = contents(file)?;
    let is_yaml = file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    if is_yaml {
        return of_redisson(file, &text, &meta, environment);
    }
    let table = Value::of_toml(&text)?;
    // Ours is private, like a key.
    if table.holds_password() && can_be_read(&meta, 0o077) {
        let file = file.display();
        return Err(format!("holds a password and others can read it; chmod 600 {file}, or write password = \"${{VARIABLE}}\""));
    }
    match own::named(table.filled(environment)?)? {
        own::Named::Url(url) => Ok(url),
        own::Named::Redisson(other) => {
            let other = file.parent().unwrap_or(Path::new("")).join(other);
            if other == file {
                return Err("redisson names this file itself".to_owned());
            }
            let inside = |why: String| format!("{}: {why}", other.display());
            let (meta, text) = contents(&other).map_err(inside)?;
            of_redisson(&other, &text, &meta, environment).map_err(inside)
        }
    }
}

/// The store that a file of Redisson names. It is a team's file, which a group may share; but not everybody on the machine.
fn of_redisson(
    file: &Path,
    text: &str,
    meta: &fs::Metadata,
    environment: &dyn Fn(&str) -> Option<String>,
) -> std::result::Result<String, String> {
    let tree = Value::of_yaml(text)?;
    if tree.holds_password() && can_be_read(meta, 0o007) {
        let file = file.display();
        return Err(format!(
            "holds a password and everybody can read it; chmod 640 {file}, or write password: \"${{VARIABLE}}\""
        ));
    }
    redisson::url(tree.filled(environment)?)
}

/// Whether the file can be read or changed by those whose permission bits are in `whose`.
#[cfg(unix)]
fn can_be_read(file: &fs::Metadata, whose: u32) -> bool {
    file.permissions().mode() & whose != 0
}

/// Off Unix a file has no permission bits to check.
#[cfg(not(unix))]
fn can_be_read(_file: &fs::Metadata, _whose: u32) -> bool {
    false
}

/// The URL of the store that a text names, for the fuzz targets. Each variable has a value that refers to another one.
#[cfg(feature = "fuzzing")]
pub(super) fn store_in(text: &str, is_yaml: bool) -> std::result::Result<String, String> {
    let environment = |variable: &str| (variable.len() < 8).then(|| format!("${{{variable}x}}:1"));
    if is_yaml {
        let tree = Value::of_yaml(text)?;
        let _ = tree.holds_password();
        return redisson::url(tree.filled(&environment)?);
    }
    let table = Value::of_toml(text)?;
    let _ = table.holds_password();
    match own::named(table.filled(&environment)?)? {
        own::Named::Url(url) => Ok(url),
        own::Named::Redisson(_) => Err("another file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn with_file(name: &str, text: &str, mode: u32, test: impl FnOnce(&Path)) {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder: PathBuf = std::env::temp_dir().join(format!("lockkeeper-config-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        test(&file);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_password_that_others_can_read_is_refused_where_the_file_is_ours() {
        for (text, mode, fine) in [
            ("store = \"redis://me:secret@h\"", 0o644, false),
            ("store = \"redis://me:secret@h\"", 0o600, true),
            ("[redis]\naddress = \"h\"\npassword = \"secret\"", 0o640, false),
            ("[redis]\naddress = \"h\"\npassword = \"${P:-x}\"", 0o644, true),
            ("[redlock]\nservers = [\"redis://:secret@a\", \"redis://b\", \"redis://c\"]", 0o604, false),
            ("store = \"redis://h\"", 0o644, true),
        ] {
            with_file("lockkeeper.toml", text, mode, |file| {
                let found = store_of(file);
                assert_eq!(found.is_ok(), fine, "{text}: {found:?}");
                if let Err(error) = found {
                    assert!(error.to_string().contains("chmod 600") && !error.to_string().contains("secret"), "{error}");
                }
            });
        }
    }

    #[test]
    fn a_password_that_everybody_can_read_is_refused_in_a_file_of_redisson() {
        let yaml = |password: &str| format!("singleServerConfig:\n  address: \"redis://h:6379\"\n  password: \"{password}\"\n");
        for (text, mode, fine) in [
            (yaml("secret"), 0o666, false),
            (yaml("secret"), 0o644, false),
            (yaml("secret"), 0o640, true),
            (yaml("${P:-x}"), 0o644, true),
        ] {
            with_file("redisson.yaml", &text, mode, |file| {
                let own = file.with_file_name("lockkeeper.toml");
                fs::write(&own, "redisson = \"redisson.yaml\"").unwrap();
                for named in [file, &own] {
                    let found = store_of(named);
                    assert_eq!(found.is_ok(), fine, "{mode:o} {text}: {found:?}");
                    if let Err(error) = found {
                        assert!(error.to_string().contains("chmod 640") && !error.to_string().contains("secret"), "{error}");
                    }
                }
            });
        }
    }

    #[test]
    fn one_file_may_point_at_the_other() {
        with_file("lockkeeper.toml", "redisson = \"redisson.yaml\"", 0o644, |file| {
            let error = store_of(file).unwrap_err().to_string();
            assert!(error.contains("redisson.yaml: cannot be read"), "{error}");
            let yaml = "singleServerConfig:\n  address: \"redis://127.0.0.1:6379\"\n";
            fs::write(file.with_file_name("redisson.yaml"), yaml).unwrap();
            assert_eq!(store_of(file).unwrap(), "redis://127.0.0.1:6379/0");
        });
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = store_of(Path::new("/nowhere/lockkeeper.toml")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("/nowhere/lockkeeper.toml: cannot be read"), "{error}");
    }
}
