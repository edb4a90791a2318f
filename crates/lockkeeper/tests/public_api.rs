//! The public surface, as text in `public_api.txt`: a change of it is a decision, and shows in the diff.
//!
//! It reads the sources, so it needs no unstable tool. `LOCKKEEPER_UPDATE_API=1 cargo test --test public_api` writes the file anew.
//! The rooms for authors of stores (`backend`, `conformance`) are unstable and left out.

use std::fs;
use std::path::{Path, PathBuf};

const PUBLIC: [&str; 10] =
    ["lib.rs", "error.rs", "token.rs", "owner.rs", "name.rs", "testing.rs", "client", "blocking", "fence", "sync"];
const OF_SESSION: [&str; 3] = ["session/held.rs", "session/loss.rs", "session/owner.rs"];

fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let mut inside: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        inside.sort();
        inside.iter().for_each(|path| files(path, found));
    } else if path.extension().is_some_and(|ext| ext == "rs") {
        found.push(path.to_owned());
    }
}

/// The public items of one file, each in one line, below the `impl` or `trait` that they stand in.
fn surface(text: &str) -> Vec<String> {
    let text = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let (mut found, mut within, mut in_trait) = (Vec::new(), String::new(), false);
    let mut lines = text.lines().peekable();
    let mut hidden = false;
    while let Some(line) = lines.next() {
        let code = line.trim();
        if code.starts_with("//") || code.is_empty() {
            continue;
        }
        if code.starts_with("#[") {
            hidden |= code == "#[doc(hidden)]";
            if code == "#[non_exhaustive]" {
                found.push(code.to_owned());
            }
            continue;
        }
        if line == "}" {
            (within, in_trait) = (String::new(), false);
        }
        let is_item = code.starts_with("pub ") || (in_trait && (code.starts_with("fn ") || code.starts_with("async fn ")));
        if code.starts_with("impl") || is_item {
            let mut item = code.to_owned();
            // A field ends at its comma, an argument does not.
            let ends = |item: &str| {
                let whole = item.matches('(').count() == item.matches(')').count();
                item.contains('{') || item.ends_with(';') || (whole && item.ends_with(','))
            };
            while !ends(&item) && lines.peek().is_some() {
                item = format!("{item} {}", lines.next().unwrap_or_default().trim());
            }
            while item.starts_with("pub use") && !item.ends_with(';') {
                item = format!("{item} {}", lines.next().unwrap_or_default().trim());
            }
            let item = if item.starts_with("pub use") { item } else { item.split(" {").next().unwrap_or_default().to_owned() };
            if item.starts_with("impl") {
                within = item;
            } else if !hidden {
                in_trait |= item.starts_with("pub trait");
                let place = if within.is_empty() { String::new() } else { format!("{within}: ") };
                found.push(format!("{place}{item}"));
            }
        }
        hidden = false;
    }
    found
}

fn snapshot() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Vec::new();
    PUBLIC.iter().chain(&OF_SESSION).for_each(|path| files(&root.join(path), &mut sources));
    let mut text = String::new();
    for source in sources {
        let items = surface(&fs::read_to_string(&source).unwrap());
        if !items.is_empty() {
            let path = source.strip_prefix(&root).unwrap().display();
            text += &format!("# {path}\n{}\n\n", items.join("\n"));
        }
    }
    text
}

#[test]
fn the_public_surface_is_the_one_that_was_agreed() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/public_api.txt");
    let now = snapshot();
    if std::env::var_os("LOCKKEEPER_UPDATE_API").is_some() {
        fs::write(&file, &now).unwrap();
    }
    let agreed = fs::read_to_string(&file).unwrap_or_default();
    let new: Vec<_> = now.lines().filter(|line| !agreed.lines().any(|known| known == *line)).collect();
    let gone: Vec<_> = agreed.lines().filter(|line| !now.lines().any(|known| known == *line)).collect();
    assert!(
        now == agreed,
        "new: {new:#?}\ngone: {gone:#?}\nif it is meant, run with LOCKKEEPER_UPDATE_API=1 and say it in CHANGELOG.md"
    );
}

#[test]
fn the_reader_finds_items_and_leaves_out_what_is_hidden() {
    let text = "impl A {\n    /// x\n    pub fn a(\n        &self,\n    ) -> u8 {\n    }\n\n    #[doc(hidden)]\n    pub fn b() {}\n\n    \
                pub(crate) fn c() {}\n}\n\npub trait T {\n    fn d(&self);\n}\n";
    let found = surface(text);
    assert_eq!(found, ["impl A: pub fn a( &self, ) -> u8", "pub trait T", "fn d(&self);"].map(str::to_owned));
}
