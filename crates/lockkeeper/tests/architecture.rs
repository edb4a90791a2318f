//! The areas of the library import each other only downwards, as the table says. Checked on the source text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Files that every area may use, and that use only each other.
const BASICS: [&str; 6] = ["error", "name", "owner", "token", "runtime", "retry"];

/// Each area and the areas it may import, besides itself and the basics.
const ALLOWED: [(&str, &[&str]); 14] = [
    ("blocking", &["client", "sync", "session", "backend", "fence"]),
    ("client", &["sync", "session", "layer", "store", "backend", "fence"]),
    ("sync", &["session", "backend"]),
    ("fence", &[]),
    ("session", &["backend"]),
    ("layer", &["backend"]),
    ("store", &["backend", "model", "fence"]),
    ("model", &["backend"]),
    ("conformance", &["sync", "session", "backend", "layer", "store", "model", "fence"]),
    ("backend", &[]),
    ("observability", &[]), // documentation only
    ("referee", &[]),       // judges what it is told, and knows nothing of the library
    ("testing", &["client", "layer", "store"]),
    ("fuzzing", &["client", "store", "model", "backend"]),
];

const MAX_LINES: usize = 400;

/// A file: its path below `src`, with `/`, and its text.
struct Source {
    path: String,
    text: String,
}

/// What the whole tree says about names that a single file uses.
struct Tree {
    /// Names that `lib.rs` re-exports, and macros, with the area they come from.
    exports: BTreeMap<String, String>,
    /// The stores, which must not know each other.
    stores: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Word {
    text: String,
    line: usize,
}

/// The code as words and signs, without comments, strings and characters.
fn words(text: &str) -> Vec<Word> {
    let letters: Vec<char> = text.chars().collect();
    let at = |index: usize| letters.get(index).copied().unwrap_or('\0');
    let named = |letter: char| letter.is_alphanumeric() || letter == '_';
    let (mut found, mut i, mut line) = (Vec::new(), 0, 1);
    while i < letters.len() {
        let start = i;
        if at(i) == '/' && at(i + 1) == '/' {
            while i < letters.len() && at(i) != '\n' {
                i += 1;
            }
        } else if at(i) == '/' && at(i + 1) == '*' {
            let mut depth = 0;
            loop {
                match (at(i), at(i + 1)) {
                    ('/', '*') => (depth, i) = (depth + 1, i + 2),
                    ('*', '/') => (depth, i) = (depth - 1, i + 2),
                    _ => i += 1,
                }
                if depth == 0 || i >= letters.len() {
                    break;
                }
            }
        } else if named(at(i)) {
            while named(at(i)) {
                i += 1;
            }
            let word: String = letters[start..i].iter().collect();
            let hashes = (i..).take_while(|&index| at(index) == '#').count();
            if matches!(word.as_str(), "r" | "br" | "cr") && at(i + hashes) == '"' {
                // A raw string ends at a quote with as many hashes.
                i += hashes + 1;
                while i < letters.len() && !(at(i) == '"' && (1..=hashes).all(|hash| at(i + hash) == '#')) {
                    i += 1;
                }
                i += hashes + 1;
            } else {
                found.push(Word { text: word, line });
            }
        } else if at(i) == '"' {
            i += 1;
            while i < letters.len() && at(i) != '"' {
                i += if at(i) == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if at(i) == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'') {
            // A character; a lifetime has no quote behind its first letter.
            i += if at(i + 1) == '\\' { 3 } else { 2 };
            while i < letters.len() && at(i) != '\'' {
                i += 1;
            }
            i += 1;
        } else {
            i += if at(i) == ':' && at(i + 1) == ':' { 2 } else { 1 };
            if !at(start).is_whitespace() {
                found.push(Word { text: letters[start..i].iter().collect(), line });
            }
        }
        line += letters[start..i.min(letters.len())].iter().filter(|&&letter| letter == '\n').count();
    }
    found
}

/// The module that a file is: `store/memory/state.rs` is `store::memory::state`.
fn module(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib") {
        parts.pop();
    }
    parts
}

fn is_name(word: &str) -> bool {
    word == "*" || word.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// Reads a path, or a tree of them, that starts at `i` below `prefix`; gives where it ends.
fn read_paths(words: &[Word], mut i: usize, prefix: &[String], found: &mut Vec<(Vec<String>, usize)>) -> usize {
    let text = |i: usize| words.get(i).map_or("", |word| word.text.as_str());
    let mut path = prefix.to_vec();
    let line = words.get(i).map_or(0, |word| word.line);
    loop {
        if text(i) == "{" {
            i += 1;
            while i < words.len() && text(i) != "}" {
                i = if is_name(text(i)) && text(i) != "as" { read_paths(words, i, &path, found) } else { i + 1 };
                if text(i) == "as" {
                    i += 2;
                }
            }
            return i + 1;
        }
        if !is_name(text(i)) {
            break;
        }
        match text(i) {
            "self" if path.len() > prefix.len() || !prefix.is_empty() => {}
            "super" => drop(path.pop()),
            segment => path.push(segment.to_owned()),
        }
        i += 1;
        if text(i) != "::" {
            break;
        }
        i += 1;
    }
    found.push((path, line));
    i
}

/// All paths of a file that begin at `crate`, `self` or `super`, from the root of the crate, with their lines.
fn paths(source: &Source) -> Vec<(Vec<String>, usize)> {
    let words = words(&source.text);
    let text = |i: usize| words.get(i).map_or("", |word| word.text.as_str());
    let mut here = module(&source.path);
    // The depth of braces outside each module that is written inline.
    let (mut depth, mut inline) = (0, Vec::new());
    let (mut found, mut i) = (Vec::new(), 0);
    while i < words.len() {
        match text(i) {
            "mod" if is_name(text(i + 1)) && text(i + 2) == "{" => {
                here.push(text(i + 1).to_owned());
                inline.push(depth);
                depth += 1;
                i += 3;
            }
            "{" => (depth, i) = (depth + 1, i + 1),
            "}" => {
                depth -= 1;
                if inline.last() == Some(&depth) {
                    inline.pop();
                    here.pop();
                }
                i += 1;
            }
            "crate" if text(i + 1) == "::" => i = read_paths(&words, i + 2, &[], &mut found),
            "self" if text(i + 1) == "::" => i = read_paths(&words, i + 2, &here, &mut found),
            "super" if text(i + 1) == "::" => {
                let above = here.split_last().map_or(&[][..], |(_, above)| above);
                i = read_paths(&words, i + 2, above, &mut found);
            }
            _ => i += 1,
        }
    }
    found
}

fn survey(sources: &[Source]) -> Tree {
    let mut tree = Tree { exports: BTreeMap::new(), stores: BTreeSet::new() };
    for source in sources {
        let words = words(&source.text);
        let module = module(&source.path);
        let text = |i: usize| words.get(i).map_or("", |word| word.text.as_str());
        for i in 0..words.len() {
            if source.path == "lib.rs" && text(i) == "pub" && text(i + 1) == "use" {
                let mut found = Vec::new();
                read_paths(&words, i + 2, &[], &mut found);
                for (path, _) in found {
                    if let [area, .., name] = &path[..] {
                        tree.exports.insert(name.clone(), area.clone());
                    }
                }
            }
            // A macro that is exported lies at the root.
            if text(i) == "macro_rules" && text(i + 1) == "!" && !module.is_empty() {
                tree.exports.insert(text(i + 2).to_owned(), module[0].clone());
            }
        }
        if let [area, store, ..] = &module[..]
            && area == "store"
            && !["kit", "queue", "sql"].contains(&store.as_str())
        {
            tree.stores.insert(store.clone());
        }
    }
    tree
}

/// The areas that `area` may import; `None` if the table does not know it.
fn row(area: &str) -> Option<&'static [&'static str]> {
    if BASICS.contains(&area) {
        return Some(&[]);
    }
    ALLOWED.iter().find(|(known, _)| *known == area).map(|(_, allowed)| *allowed)
}

/// What one file does against the rules.
fn complaints(source: &Source, tree: &Tree) -> Vec<String> {
    let Source { path, text } = source;
    let mut found = Vec::new();
    if !text.starts_with("//! ") {
        found.push(format!("src/{path}:1: the first line does not say what the file is for; begin it with //!"));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        found.push(format!("src/{path}:{MAX_LINES}: the file has {lines} lines; split it, at most {MAX_LINES} are allowed"));
    }
    for word in words(text).iter().filter(|word| word.text == "unsafe_code") {
        found.push(format!("src/{path}:{}: the lint unsafe_code is set for the whole workspace; leave it alone", word.line));
    }
    let here = module(path);
    // `lib.rs` names every area.
    let Some(area) = here.first() else { return found };
    let Some(allowed) = row(area) else {
        found.push(format!("src/{path}:1: the table has no row for {area}; decide what it may import, and add one"));
        return found;
    };
    let may = [allowed, &["basics"]].concat().join(", ");
    for (target, line) in paths(source) {
        let Some(first) = target.first() else { continue };
        let other = if row(first).is_some() { Some(first) } else { tree.exports.get(first) };
        let Some(other) = other else {
            found.push(format!("src/{path}:{line}: {area} imports crate::{first}, which is no area; {area} may import: {may}"));
            continue;
        };
        if other != area && !BASICS.contains(&other.as_str()) && !allowed.contains(&other.as_str()) {
            found.push(format!("src/{path}:{line}: {area} imports {other}; {area} may import: {may}"));
        }
        if let ("store", Some(ours), Some(theirs)) = (other.as_str(), here.get(1), target.get(1))
            && area == "store"
            && tree.stores.contains(theirs)
            && ours != theirs
        {
            found.push(format!(
                "src/{path}:{line}: store/{ours} imports store/{theirs}; a store may import: {may}, never another store"
            ));
        }
    }
    // Two names of one group are one edge.
    found.dedup();
    found
}

fn read(folder: &Path, below: &str, sources: &mut Vec<Source>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        let path = format!("{below}{}", entry.file_name().unwrap().to_str().unwrap());
        if entry.is_dir() {
            read(&entry, &format!("{path}/"), sources);
        } else if path.ends_with(".rs") {
            sources.push(Source { path, text: fs::read_to_string(&entry).unwrap() });
        }
    }
}

fn library() -> Vec<Source> {
    let mut sources = Vec::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut sources);
    sources
}

#[test]
fn areas_import_only_what_the_table_allows() {
    let sources = library();
    assert!(sources.len() > 40, "only {} files were found", sources.len());
    let tree = survey(&sources);
    let found: Vec<String> = sources.iter().flat_map(|source| complaints(source, &tree)).collect();
    assert!(found.is_empty(), "{} complaints:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_check_sees_most_of_the_real_edges() {
    // A reader that finds nothing would find nothing wrong.
    let sources = library();
    let edges: usize = sources.iter().map(|source| paths(source).len()).sum();
    let written: usize = sources.iter().map(|source| source.text.matches("\nuse crate::").count()).sum();
    assert!(written > 100 && edges >= written, "{edges} of at least {written} found");
}

#[test]
fn every_area_of_the_table_points_downwards() {
    fn reaches(from: &str, to: &str) -> bool {
        row(from).unwrap().iter().any(|next| *next == to || reaches(next, to))
    }
    for (area, _) in ALLOWED {
        assert!(!reaches(area, area), "{area} imports itself by a detour");
    }
}

/// What is found in a made-up file.
fn found_in(path: &str, code: &str) -> Vec<String> {
    let root = "//! x\npub use client::{Builder, Client};\npub use error::{Error, Result};\npub use session::{Held, Owner};\n";
    let mut sources = vec![Source { path: path.to_owned(), text: format!("//! x\n{code}\n") }];
    sources.push(Source { path: "lib.rs".to_owned(), text: root.to_owned() });
    for store in ["memory", "redis"] {
        sources.push(Source { path: format!("store/{store}/mod.rs"), text: "//! x\n".to_owned() });
    }
    complaints(&sources[0], &survey(&sources))
}

#[test]
fn a_forbidden_import_is_found_however_it_is_written() {
    for (path, code, says) in [
        (
            "sync/a.rs",
            "use crate::client::Client;",
            "src/sync/a.rs:2: sync imports client; sync may import: session, backend, basics",
        ),
        ("sync/a.rs", "use crate::{error::Result,\n  client};", "src/sync/a.rs:3: sync imports client"),
        ("sync/a.rs", "use crate::{session::{Held, Owner as O}, store::memory::{self, M}};", "sync imports store"),
        ("sync/a.rs", "fn f(x: crate::layer::Observe) {}", "sync imports layer"),
        ("sync/a.rs", "fn f<'a>(x: &'a str) { let c = '\"'; crate::store::memory::new(c) }", "sync imports store"),
        ("sync/a.rs", "use crate::Client;", "sync imports client"),
        ("sync/a.rs", "use super::super::client::Client;", "sync imports client"),
        ("sync/mod.rs", "use super::client::Client;", "sync imports client"),
        ("sync/a.rs", "#[cfg(test)]\nmod tests {\n    use super::super::super::store::memory;\n}", "a.rs:4: sync imports store"),
        ("sync/a.rs", "use crate::*;", "which is no area"),
        ("sync/a.rs", "use crate::attic::Thing;", "which is no area"),
        ("error.rs", "use crate::Held;", "error imports session; error may import: basics"),
        ("backend/mod.rs", "macro_rules! m { () => { $crate::session::x() } }", "backend imports session"),
        ("store/redis/mod.rs", "use crate::store::memory::MemoryStore;", "store/redis imports store/memory"),
        ("store/redis/mod.rs", "use super::memory::MemoryStore;", "store/redis imports store/memory"),
        ("store/redis/a.rs", "use super::super::{memory};", "store/redis imports store/memory"),
        ("attic/mod.rs", "", "no row for attic"),
        ("sync/a.rs", "#![allow(unsafe_code)]", "src/sync/a.rs:2: the lint unsafe_code"),
    ] {
        let found = found_in(path, code);
        assert!(found.len() == 1 && found[0].contains(says), "{code}: {found:?}");
    }
}

#[test]
fn what_is_allowed_is_not_complained_about() {
    for (path, code) in [
        ("sync/a.rs", "use crate::session::{self, Held};\nuse crate::{Error, backend, name::Name};"),
        (
            "sync/a.rs",
            "// use crate::client::Client;\n/* crate::store /* crate::layer */ crate::client */\n/// [x](crate::client)",
        ),
        ("sync/a.rs", "const A: &str = \"crate::client\"; const B: &str = r#\"\"crate::client\"#; const C: char = '\\'';"),
        ("sync/a.rs", "mod tests {\n    use super::*;\n    use super::super::options::Guard;\n}\nuse super::mutex::Mutex;"),
        ("sync/a.rs", "pub(crate) fn f() {}\npub(in crate::sync) fn g() {}"),
        ("store/redis/a.rs", "use super::config::Config;\nuse crate::store::redis::Config;\nuse super::super::redis;"),
        ("client/url.rs", "use crate::store::{memory::MemoryStore, redis::RedisStore};"),
        ("runtime.rs", "use crate::owner::ClientId;\nuse crate::error::{Error, ErrorKind, Result};"),
    ] {
        assert_eq!(found_in(path, code), [""; 0], "{code}");
    }
}

#[test]
fn a_file_without_a_purpose_and_a_file_too_long_are_found() {
    let tree = survey(&[]);
    let bare = Source { path: "sync/a.rs".to_owned(), text: "use std::fmt;\n".to_owned() };
    assert!(complaints(&bare, &tree)[0].contains("begin it with //!"));
    assert_eq!(complaints(&Source { path: "lib.rs".to_owned(), text: String::new() }, &tree).len(), 1);
    let long = Source { path: "sync/a.rs".to_owned(), text: format!("//! x\n{}", "\n".repeat(MAX_LINES)) };
    assert!(complaints(&long, &tree)[0].contains("401 lines"));
}
