//! A simulation replays a seed only if nothing in the library draws from chance that the seed does not give: no `select!` that picks a branch at random, no
//! random number beside those of `runtime`, and no order of a table that differs from run to run. Checked on the source text.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that draw from chance.
const CHANCE: [&str; 6] = ["fastrand", "getrandom", "RandomState", "Uuid::new", "Uuid::now", "thread_rng"];

/// What the simulation of `verify` runs, below `src`.
const SIMULATED: [&str; 8] =
    ["session", "sync", "backend", "layer", "model", "conformance/session_", "store/memory", "store/kit"];

/// Files there that have a table without an order, and why that does no harm.
const UNORDERED: [(&str, &str); 9] = [
    ("session/registry.rs", "looked up by numbers; what is walked is a vector"),
    ("session/queues.rs", "looked up by names; what is walked is sorted before"),
    ("session/owner.rs", "looked up by names"),
    ("layer/quorum/mod.rs", "looked up by votes"),
    ("layer/quorum/member.rs", "looked up by votes"),
    ("conformance/session_server.rs", "looked up by numbers; sessions that end are sorted"),
    ("store/memory/state.rs", "looked up by names; a listing sorts what it walks"),
    ("store/kit/cards.rs", "looked up by clients"),
    ("store/kit/listeners.rs", "looked up by names; only stores with connections walk all of it, when one of them was lost"),
];

fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| files(&entry.unwrap().path(), found));
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        found.push(path.to_owned());
    }
}

/// The files below `src`, each with its path from there and its text without comments and tests.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&root, &mut found);
    assert!(found.len() > 200, "only {} files were found", found.len());
    let name = |file: &Path| file.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
    let code = |file: &Path| code(&fs::read_to_string(file).unwrap());
    let mut sources: Vec<_> = found.iter().map(|file| (name(file), code(file))).collect();
    sources.retain(|(name, _)| !name.ends_with("test.rs") && !name.ends_with("tests.rs"));
    sources.sort();
    sources
}

fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// The lines of `select!` that picks a branch at random.
fn picks_at_random(code: &str) -> Vec<&str> {
    let lines: Vec<&str> = code.lines().collect();
    let selects = lines.iter().enumerate().filter(|(_, line)| line.contains("select! {"));
    selects.filter(|(at, _)| lines.get(at + 1) != Some(&"biased;")).map(|(_, line)| *line).collect()
}

fn draws(code: &str) -> Vec<&str> {
    CHANCE.into_iter().filter(|word| code.contains(word)).collect()
}

fn is_unordered(code: &str) -> bool {
    code.contains("HashMap") || code.contains("HashSet")
}

#[test]
fn no_select_picks_a_branch_at_random() {
    let sources = sources();
    assert!(sources.iter().filter(|(_, code)| code.contains("select! {")).count() > 10);
    for (name, code) in sources {
        let found = picks_at_random(&code);
        assert!(
            found.is_empty(),
            "{name}: {found:?} picks a branch at random; write `biased;` first, and the branches in an order in which none starves"
        );
    }
}

#[test]
fn chance_comes_from_the_runtime() {
    for (name, code) in sources().into_iter().filter(|(name, _)| !name.starts_with("runtime")) {
        assert_eq!(draws(&code), [""; 0], "{name}: a simulation cannot replay this; take it from crate::runtime");
    }
}

#[test]
fn tables_without_an_order_are_only_looked_up() {
    let simulated = |name: &str| SIMULATED.iter().any(|path| name.starts_with(path));
    let found: Vec<String> =
        sources().into_iter().filter(|(name, code)| simulated(name) && is_unordered(code)).map(|(name, _)| name).collect();
    let mut known: Vec<&str> = UNORDERED.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(
        found, known,
        "the order of a HashMap differs from run to run: use a BTreeMap, or say here why its order does no harm"
    );
}

#[test]
fn what_does_not_replay_is_found() {
    let of = |text: &str| code(text);
    assert_eq!(picks_at_random(&of("tokio::select! {\n    a = b => c,\n}")).len(), 1);
    assert_eq!(picks_at_random(&of("let a = select! {\n    // Why.\n    biased;\n    a = b => c,\n}")).len(), 0);
    assert_eq!(picks_at_random(&of("/// tokio::select! {\n///     a = b => c,")).len(), 0);
    assert_eq!(draws(&of("let a = fastrand::u64(..);\nlet b = Uuid::new_v4();")), ["fastrand", "Uuid::new"]);
    assert_eq!(draws(&of("#[cfg(test)]\nmod tests {\n    fastrand::u64(..);\n}")), [""; 0]);
    assert!(is_unordered(&of("use std::collections::HashSet;")) && !is_unordered(&of("// A HashMap would do.")));
}
