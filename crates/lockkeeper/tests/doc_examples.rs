//! Every public function that a user calls is called in an example of the documentation.
//!
//! The scan goes by names: one example with `guard.extend(…)` is enough for `extend` of all guards. Store authors have docs/store-authors.md.

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
const NONE: [(&str, &str); 1] = [("layer", "hidden: only programs that record histories call it")];

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

/// The code in the documentation of a file, and the names of its public functions.
fn scan(source: &str) -> (String, Vec<String>) {
    let (mut code, mut functions) = (String::new(), Vec::new());
    let mut inside = false;
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
            if text.trim_start().starts_with("```") {
                inside = !inside;
            } else if inside {
                code.push_str(text);
                code.push('\n');
            }
            continue;
        }
        inside = false;
        let Some(rest) = line.strip_prefix("pub ") else { continue };
        let rest = rest.trim_start_matches("async ").trim_start_matches("const ");
        let name = rest.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next());
        // The names in macros are given where the macro is used.
        functions.extend(name.filter(|name| !name.starts_with('$')).map(str::to_owned));
    }
    (code, functions)
}

fn is_called(code: &str, function: &str) -> bool {
    [".", "::"].iter().any(|before| ["(", "::<"].iter().any(|after| code.contains(&format!("{before}{function}{after}"))))
}

#[test]
fn every_public_function_is_called_in_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut code, mut functions) = (String::new(), Vec::new());
    for path in sources(&root) {
        let (examples, public) = scan(&fs::read_to_string(&path).expect("a source"));
        code.push_str(&examples);
        let place = path.strip_prefix(&root).expect("below it").display().to_string();
        if FOR_USERS.iter().any(|user| place.starts_with(user)) {
            functions.extend(public.into_iter().map(|name| (place.clone(), name)));
        }
    }
    assert!(functions.len() > 150, "only {} functions were found", functions.len());
    let named = |name: &str| NONE.iter().any(|(known, _)| *known == name);
    let missing: Vec<String> = functions
        .iter()
        .filter(|(_, name)| !is_called(&code, name) && !named(name))
        .map(|(place, name)| format!("{place}: {name}"))
        .collect();
    assert!(missing.is_empty(), "no example calls these:\n{}", missing.join("\n"));
}

#[test]
fn a_function_without_an_example_is_found() {
    let source = "/// ```\n/// thing.shown();\n/// ```\npub fn shown() {}\n/// thing.hidden() in prose\npub async fn hidden<T>() {}\nfn private() {}\n";
    let (code, functions) = scan(source);
    assert_eq!(functions, ["shown", "hidden"]);
    assert!(is_called(&code, "shown") && !is_called(&code, "hidden"));
}
