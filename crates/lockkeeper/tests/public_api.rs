//! The public surface, as text in `public_api.txt`: a change of it is a decision, and shows in the diff.
//!
//! It reads the sources, so it needs no unstable tool. `LOCKKEEPER_UPDATE_API=1 cargo test --test public_api` writes the file anew.
//! `backend` is for authors of stores and may change in any version; it is here so that a change of it is seen.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const PUBLIC: [&str; 13] = [
    "lib.rs",
    "error.rs",
    "token.rs",
    "owner.rs",
    "name.rs",
    "testing.rs",
    "runtime.rs",
    "runtime",
    "backend",
    "client",
    "blocking",
    "fence",
    "sync",
];
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

/// The attribute that begins in this line, in one line.
fn attribute<'a>(code: &str, lines: &mut impl Iterator<Item = &'a str>) -> String {
    let mut whole = code.to_owned();
    while !whole.ends_with(']') {
        let Some(line) = lines.next() else { break };
        whole = format!("{whole} {}", line.trim());
    }
    whole
}

/// The implementation of a trait for a type, if that is what an `impl` is: `impl Ord for Token`.
fn is_of_a_trait(item: &str) -> bool {
    item.contains(" for ") && !item.contains("Sealed")
}

/// The public items of one file, each in one line, below the `impl` or `trait` that they stand in; implementations of traits, with their types;
/// and what the types derive.
fn surface(text: &str) -> Vec<String> {
    let text = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let (mut found, mut within, mut in_trait, mut in_enum) = (Vec::new(), String::new(), false, None);
    let mut attributes: Vec<String> = Vec::new();
    let mut lines = text.lines().peekable();
    let mut hidden = false;
    while let Some(line) = lines.next() {
        let code = line.trim();
        if code.starts_with("//") || code.is_empty() {
            continue;
        }
        if code.starts_with("#[") {
            hidden |= code == "#[doc(hidden)]";
            let attribute = attribute(code, &mut lines);
            if attribute == "#[non_exhaustive]" || attribute.starts_with("#[derive(") {
                attributes.push(attribute);
            }
            continue;
        }
        if line == "}" {
            (within, in_trait, in_enum) = (String::new(), false, None);
        }
        // A variant is indented once, its fields twice.
        if let Some(name) = &in_enum
            && line.starts_with("    ")
            && line[4..].starts_with(|letter: char| letter.is_ascii_uppercase())
        {
            found.push(format!("{name}: {}", code.trim_end_matches([',', '{', ' '])));
            hidden = false;
            continue;
        }
        if code.starts_with("type ") && is_of_a_trait(&within) {
            found.push(format!("{within}: {code}"));
        }
        let of_item = std::mem::take(&mut attributes);
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
            while item.starts_with("pub use ") && !item.ends_with(';') {
                item = format!("{item} {}", lines.next().unwrap_or_default().trim());
            }
            let item = if item.starts_with("pub use ") { item } else { item.split(" {").next().unwrap_or_default().to_owned() };
            if item.starts_with("impl") {
                if is_of_a_trait(&item) {
                    found.push(item.clone());
                }
                within = item;
            } else if !hidden {
                found.extend(of_item);
                in_trait |= item.starts_with("pub trait");
                in_enum = item.starts_with("pub enum").then(|| item.clone());
                let place = if within.is_empty() { String::new() } else { format!("{within}: ") };
                found.push(format!("{place}{item}"));
            }
        }
        hidden = false;
    }
    found
}

/// The type in a line such as `impl<T> Ord for Token<T>` or `pub struct Token(u64);`.
fn subject(line: &str) -> &str {
    let words = match line.split_once(" for ") {
        Some((_, rest)) => rest.rsplit(" for ").next().unwrap_or(rest).split(" where").next().unwrap_or(rest),
        None => ["pub struct ", "pub enum ", "pub trait "].iter().find_map(|word| line.strip_prefix(word)).unwrap_or_default(),
    };
    let name = words.split(['<', '(', ';', ':', ' ']).next().unwrap_or_default();
    name.rsplit("::").next().unwrap_or(name)
}

/// Without implementations for private types.
fn of_public_types(items: Vec<String>, public: &BTreeSet<String>) -> Vec<String> {
    let is_public = |item: &String| {
        !is_of_a_trait(item) || !item.starts_with("impl") || {
            let of = subject(item.split(": type ").next().unwrap_or_default());
            // Of a macro's argument, a blanket implementation for all of a kind, or one such as `From<Token> for u64`.
            of.starts_with(|first: char| "$&".contains(first) || first.is_ascii_lowercase())
                || of.len() == 1
                || public.contains(of)
        }
    };
    items.into_iter().filter(is_public).collect()
}

fn snapshot() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Vec::new();
    PUBLIC.iter().chain(&OF_SESSION).for_each(|path| files(&root.join(path), &mut sources));
    let all = sources.iter().flat_map(|source| surface(&fs::read_to_string(source).unwrap())).collect::<Vec<_>>();
    let public: BTreeSet<_> = all.iter().filter(|item| item.starts_with("pub ")).map(|item| subject(item).to_owned()).collect();
    let mut text = String::new();
    for source in sources {
        let items = of_public_types(surface(&fs::read_to_string(&source).unwrap()), &public);
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
                pub(crate) fn c() {}\n}\n\npub trait T {\n    fn d(&self);\n}\n\npub enum E {\n    /// x\n    F,\n    G(u8),\n    \
                H {\n        i: u8,\n    },\n}\n";
    let found = surface(text);
    let expected = [
        "impl A: pub fn a( &self, ) -> u8",
        "pub trait T",
        "fn d(&self);",
        "pub enum E",
        "pub enum E: F",
        "pub enum E: G(u8)",
        "pub enum E: H",
    ];
    assert_eq!(found, expected.map(str::to_owned));
}

#[test]
fn the_reader_finds_what_public_types_implement_and_derive() {
    let text = "#[derive(\n    Clone,\n    Copy,\n)]\npub struct Open;\n\n#[derive(Debug)]\nstruct Hidden;\n\nimpl Ord for Open {\n    fn cmp(&self) {}\n}\n\n\
                impl Ord for Hidden {\n}\n\nimpl<T> std::future::IntoFuture for Open {\n    type Output = u8;\n}\n\nimpl Sealed for Open {}\n\n\
                impl<T: Fn(u8) -> u8> From<T> for &T {\n}\n";
    let expected = [
        "#[derive( Clone, Copy, )]",
        "pub struct Open;",
        "impl Ord for Open",
        "impl<T> std::future::IntoFuture for Open",
        "impl<T> std::future::IntoFuture for Open: type Output = u8;",
        "impl<T: Fn(u8) -> u8> From<T> for &T",
    ];
    let public = BTreeSet::from(["Open".to_owned()]);
    assert_eq!(of_public_types(surface(text), &public), expected.map(str::to_owned));
}
