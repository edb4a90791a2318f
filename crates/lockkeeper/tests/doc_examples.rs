//! The documentation of what users call has examples: each public type one of its own, and each public function a call in an example that is near it.
//!
//! Near is: at the function, at its type or another function of that type, in the documentation of its module, at a type that makes this one, as
//! `Client` makes `Mutex`, or at the type that the function returns. The scan knows types, and finds calls by the name of the function. Store
//! authors have docs/store-authors.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What users call; the rest of the sources is for authors of stores, or not public.
const FOR_USERS: [&str; 13] = [
    "client/",
    "sync/",
    "blocking/",
    "fence/",
    "testing.rs",
    "session/held.rs",
    "session/loss.rs",
    "session/owner.rs",
    "error.rs",
    "token.rs",
    "owner.rs",
    "name.rs",
    "lib.rs",
];

/// Without an example, and why.
const NONE: [(&str, &str); 2] = [
    ("Builder::layer", "hidden: only programs that record histories call it"),
    ("Sealed", "keeps others from implementing a trait; nobody can name it"),
];

/// The guards hold a `Held`, and what is called on them is its.
const GUARDS: [&str; 5] = ["MutexGuard", "RwLockReadGuard", "RwLockWriteGuard", "Permit", "Client"];

/// One type of a part of the library: `blocking` has types of the same names as `sync`.
type Place = (bool, String);

/// What was found.
#[derive(Default)]
struct Scan {
    /// The code in the documentation of a type, and in that of its functions.
    of_type: BTreeMap<Place, String>,
    near_type: BTreeMap<Place, String>,
    /// The code in the documentation of a module: the types of a file and of its folder are near it.
    of_module: BTreeMap<Place, String>,
    /// A public function, the code in its documentation, and the rest of its line.
    functions: Vec<(Place, String, String)>,
    /// By the macro that they stand in.
    in_macros: BTreeMap<String, Vec<String>>,
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || "_$".contains(*letter)).collect()
}

/// The type that an `impl` is for.
fn implemented(line: &str) -> Option<String> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.find(|letter| {
            depth += i32::from(letter == '<') - i32::from(letter == '>');
            depth == 0
        })?;
        rest = &rest[end + 1..];
    }
    let rest = rest.split_once(" for ").map_or(rest, |(_, after)| after);
    Some(identifier(rest.trim())).filter(|name| !name.is_empty())
}

impl Scan {
    fn read(&mut self, place: &str, source: &str) {
        let source = source.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        let blocking = place.starts_with("blocking/");
        let (mut doc, mut inside, mut hidden) = (String::new(), false, false);
        let (mut within, mut in_macro, mut types) = (None::<String>, None::<String>, Vec::new());
        let (mut module, mut call) = (String::new(), None::<(String, String)>);
        for line in source.lines() {
            let code = line.trim();
            if let Some(text) = code.strip_prefix("///").or_else(|| code.strip_prefix("//!")) {
                if text.trim_start().starts_with("```") {
                    inside = !inside;
                } else if inside {
                    let into = if code.starts_with("//!") { &mut module } else { &mut doc };
                    into.push_str(text);
                    into.push('\n');
                }
                continue;
            }
            inside = false;
            if code.starts_with("#[") {
                hidden |= code == "#[doc(hidden)]";
                // A page of docs/, whose code is compiled, too.
                if code.starts_with("#[doc = include_str!") {
                    doc.push_str(code);
                }
                continue;
            }
            if code.is_empty() || code.starts_with("//") {
                continue;
            }
            if let Some(name) = line.strip_prefix("macro_rules! ") {
                in_macro = Some(identifier(name));
            } else if line == "}" && call.is_none() {
                (within, in_macro) = (None, None);
            }
            // A macro that is used at the top of the file: what it is called for, and the names that it is given.
            if let Some((name, arguments)) = &mut call {
                arguments.push_str(code);
                if let Some(function) = code.split_once('(').filter(|_| name == "same") {
                    let of = (blocking, identifier(arguments));
                    self.near_type.entry(of.clone()).or_default().push_str(&doc);
                    self.functions.push((of, function.0.to_owned(), String::new()));
                }
            } else if let Some((name, arguments)) = line.split_once("!(").or_else(|| line.split_once("! { ")) {
                let plain = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
                if plain {
                    call = Some((name.to_owned(), arguments.to_owned()));
                }
            }
            if let Some((name, arguments)) = call.take_if(|_| line.ends_with(");") || line == "}") {
                self.called(blocking, &name, &arguments, &doc, &mut types);
            }
            let item = code.strip_prefix("pub ").filter(|_| !hidden);
            if let Some(name) = implemented(code) {
                within = Some(name);
            } else if let Some(name) =
                item.and_then(|item| ["struct ", "enum ", "trait "].iter().find_map(|kind| item.strip_prefix(kind)))
            {
                let name = identifier(name);
                if !name.starts_with('$') {
                    self.of_type.insert((blocking, name.clone()), doc.clone());
                    types.push(name.clone());
                }
                within = code.starts_with("pub trait").then_some(name);
            } else if let Some(item) = item {
                let item = item.trim_start_matches("async ").trim_start_matches("const ");
                if let Some(name) = item.strip_prefix("fn ").map(identifier) {
                    self.function(blocking, within.as_ref(), in_macro.as_ref(), name, &doc, item);
                }
            }
            // What the code of a trait or of a hidden function shows counts for its type, too.
            if let Some(name) = within.as_ref().filter(|name| !name.starts_with('$')) {
                self.near_type.entry((blocking, name.clone())).or_default().push_str(&doc);
            }
            hidden = false;
            // The documentation in `handle!` stands before the name.
            if call.as_ref().is_none_or(|(name, _)| name != "handle") {
                doc.clear();
            }
        }
        let folder = place.rsplit_once('/').map_or("", |(folder, _)| folder);
        let of_folder = place.ends_with("/mod.rs") || place == "lib.rs";
        // The functions of no type are near it, too.
        types.push(String::new());
        for name in types {
            self.near_type.entry((blocking, name)).or_default().push_str(&module);
        }
        if of_folder {
            self.of_module.entry((blocking, folder.to_owned())).or_default().push_str(&module);
        }
    }

    fn function(
        &mut self,
        blocking: bool,
        within: Option<&String>,
        in_macro: Option<&String>,
        name: String,
        doc: &str,
        line: &str,
    ) {
        if let Some(in_macro) = in_macro {
            self.in_macros.entry(in_macro.clone()).or_default().push(name);
            return;
        }
        let of = (blocking, within.cloned().unwrap_or_default());
        self.near_type.entry(of.clone()).or_default().push_str(doc);
        self.functions.push((of, name, line.to_owned()));
    }

    /// A macro that makes a type, or functions of one.
    fn called(&mut self, blocking: bool, name: &str, arguments: &str, doc: &str, types: &mut Vec<String>) {
        let words: Vec<&str> =
            arguments.split([',', ')', ':', ' ', '{']).map(str::trim).filter(|word| !word.is_empty()).collect();
        let Some(first) = words.first().filter(|word| word.starts_with(char::is_uppercase)) else { return };
        if name == "handle" {
            self.of_type.insert((blocking, (*first).to_owned()), doc.to_owned());
            types.push((*first).to_owned());
        }
        let of_all = if name == "inspecting" { words.clone() } else { vec![*first] };
        let given = self.in_macros.get(name).cloned().unwrap_or_default();
        let named = arguments.split([',', ')']).map(str::trim).filter(|word| {
            word.starts_with(char::is_lowercase) && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
        });
        let functions: Vec<String> =
            given.into_iter().filter(|name| !name.starts_with('$')).chain(named.map(str::to_owned)).collect();
        for of in of_all.into_iter().filter(|word| word.starts_with(char::is_uppercase)) {
            self.functions.extend(functions.iter().map(|name| ((blocking, of.to_owned()), name.clone(), String::new())));
        }
    }

    /// The examples that are near a type.
    fn near(&self, of: &Place) -> String {
        let text = |of: &Place| [self.of_type.get(of), self.near_type.get(of)].into_iter().flatten().cloned().collect::<String>();
        let folder = if of.0 { "blocking" } else { "sync" };
        let mut near = text(of) + self.of_module.get(&(of.0, folder.to_owned())).map_or("", String::as_str);
        let makes = |line: &str| returned(line).any(|word| word == of.1);
        let makers: BTreeSet<&Place> = self.functions.iter().filter(|(.., line)| makes(line)).map(|(maker, ..)| maker).collect();
        near.extend(makers.into_iter().filter(|maker| *maker != of).map(text));
        if of.1 == "Held" {
            near.extend(GUARDS.map(|guard| text(&(false, guard.to_owned()))));
        }
        near
    }
}

/// The words in what a function returns.
fn returned(line: &str) -> impl Iterator<Item = &str> {
    let output = line.split_once("->").map_or("", |(_, output)| output);
    output.split(|letter: char| !letter.is_alphanumeric())
}

fn is_called(code: &str, function: &str) -> bool {
    [".", "::"].iter().any(|before| ["(", "::<"].iter().any(|after| code.contains(&format!("{before}{function}{after}"))))
}

/// What lacks an example, and how many types and functions were looked at.
fn lacking(scan: &Scan) -> (Vec<String>, usize, usize) {
    let shown = |of: &Place| if of.0 { format!("blocking::{}", of.1) } else { of.1.clone() };
    let known = |name: &str| NONE.iter().any(|(none, _)| *none == name);
    let types = scan.of_type.iter().filter(|(_, doc)| doc.is_empty()).map(|(of, _)| shown(of));
    let near = |of: &Place, line: &str| {
        let made = returned(line).filter_map(|word| scan.of_type.get(&(of.0, word.to_owned())));
        scan.near(of) + &made.cloned().collect::<String>()
    };
    let functions = scan.functions.iter().filter(|(of, name, line)| !is_called(&near(of, line), name));
    let all = types.chain(functions.map(|(of, name, _)| format!("{}::{name}", shown(of))));
    (all.filter(|name| !known(name)).collect(), scan.of_type.len(), scan.functions.len())
}

#[test]
fn every_public_type_and_function_has_an_example_near_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut scan = Scan::default();
    for path in sources(&root) {
        let place = path.strip_prefix(&root).expect("below it").display().to_string();
        if FOR_USERS.iter().any(|user| place.starts_with(user)) {
            scan.read(&place, &fs::read_to_string(&path).expect("a source"));
        }
    }
    let (lacking, types, functions) = lacking(&scan);
    assert!(types > 35 && functions > 170, "only {types} types and {functions} functions were found");
    assert!(lacking.is_empty(), "without an example near it:\n{}", lacking.join("\n"));
}

#[test]
fn an_example_of_another_type_does_not_count() {
    let source = "/// ```\n/// maker.make().shown();\n/// ```\npub struct Maker;\nimpl Maker {\n    pub fn make(&self) -> Made {\n    }\n}\n\
                  /// In prose: other.shown()\npub struct Other;\nimpl Other {\n    pub fn shown(&self) {}\n}\n\
                  /// ```\n/// made\n/// ```\npub struct Made;\nimpl<T: Into<u8>> Made {\n    pub async fn shown(&self) {}\n    pub fn hidden<T>() {}\n    fn private() {}\n}\n";
    let mut scan = Scan::default();
    scan.read("sync/x.rs", source);
    assert_eq!(lacking(&scan).0, ["Other", "Other::shown", "Made::hidden"]);
}
