//! What we depend on, against the lists of `deny.toml`: licences, sources, more than one version, versions that are wildcards.
//!
//! `cargo deny` takes minutes to build. This needs nothing but cargo, so it always runs. `deny.toml` is written as `cargo deny` reads it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::steps::{Outcome, Run, root};

/// The lists of `deny.toml`.
#[derive(Debug, Default)]
struct Rules {
    licences: Vec<String>,
    registries: Vec<String>,
    repositories: Vec<String>,
    /// Of these there may be several versions.
    several: Vec<String>,
}

/// The step.
pub(crate) fn run() -> Result<Outcome, String> {
    let file = root().join("deny.toml");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let rules = Rules::parse(&text)?;
    let version = Run::new("rustc", &["-vV"]).capture()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc -vV names no host")?;
    let metadata = Run::cargo(&["metadata", "--format-version", "1", "--all-features", "--filter-platform", host]).capture()?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let faults = rules.faults(&metadata);
    if faults.is_empty() {
        return Ok(Outcome::Done);
    }
    Err(format!("{}\ndeny.toml says what is allowed", faults.join("\n")))
}

impl Rules {
    fn parse(text: &str) -> Result<Self, String> {
        let rules = Self {
            licences: list(text, "licenses", "allow")?,
            registries: list(text, "sources", "allow-registry")?,
            repositories: list(text, "sources", "allow-git")?,
            several: list(text, "bans", "skip")?,
        };
        Ok(rules)
    }

    /// What is not as it should be.
    fn faults(&self, metadata: &Value) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let packages: Vec<&Value> = metadata["packages"].as_array().into_iter().flatten().collect();
        let mut faults = Vec::new();
        let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for package in &packages {
            let (name, version) = (text(&package["name"]), text(&package["version"]));
            let licence = text(&package["license"]);
            if !self.allows(&licence) {
                faults.push(format!("{name} {version}: the licence {licence:?} is not allowed"));
            }
            match package["source"].as_str() {
                // A crate of ours.
                None => faults.extend(wildcards(&name, package)),
                Some(source) if !self.knows(source) => {
                    faults.push(format!("{name} {version}: the source {source} is not allowed"));
                }
                Some(_) => {}
            }
            versions.entry(name).or_default().insert(version);
        }
        for (name, versions) in versions.iter().filter(|(name, versions)| versions.len() > 1 && !self.several.contains(name)) {
            let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
            faults.push(format!("{name}: there are the versions {}; cargo tree -i {name} says why", versions.join(" and ")));
        }
        if packages.is_empty() {
            faults.push("cargo metadata names no packages".to_owned());
        }
        faults
    }

    fn knows(&self, source: &str) -> bool {
        let (kind, place) = source.split_once('+').unwrap_or(("", source));
        let place = place.split(['?', '#']).next().unwrap_or(place);
        match kind {
            "registry" | "sparse" => self.registries.iter().any(|known| known == place),
            "git" => self.repositories.iter().any(|known| known == place),
            _ => false,
        }
    }

    /// Whether an SPDX expression can be met with the licences that are allowed. (`/` is how `OR` was written once.)
    fn allows(&self, expression: &str) -> bool {
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ").replace(" WITH ", "+WITH+");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = words.as_slice();
        let met = self.any(&mut rest);
        rest.is_empty() && met == Some(true)
    }

    fn any(&self, words: &mut &[&str]) -> Option<bool> {
        let mut met = self.each(words)?;
        while let Some((&"OR", rest)) = words.split_first() {
            *words = rest;
            met |= self.each(words)?;
        }
        Some(met)
    }

    fn each(&self, words: &mut &[&str]) -> Option<bool> {
        let mut met = self.one(words)?;
        while let Some((&"AND", rest)) = words.split_first() {
            *words = rest;
            met &= self.one(words)?;
        }
        Some(met)
    }

    fn one(&self, words: &mut &[&str]) -> Option<bool> {
        let (first, rest) = words.split_first()?;
        *words = rest;
        if *first != "(" {
            return Some(self.licences.iter().any(|allowed| *allowed == first.replace("+WITH+", " WITH ")));
        }
        let met = self.any(words)?;
        let (&close, rest) = words.split_first()?;
        *words = rest;
        (close == ")").then_some(met)
    }
}

/// Dependencies of a crate of ours on any version whatever. By a path it is allowed.
fn wildcards(name: &str, package: &Value) -> Vec<String> {
    let all = package["dependencies"].as_array().into_iter().flatten();
    let any = all.filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null());
    any.map(|dependency| format!("{name} depends on any version of {}", dependency["name"])).collect()
}

/// The strings of `key = [...]` in a table of the file.
fn list(text: &str, table: &str, key: &str) -> Result<Vec<String>, String> {
    let missing = || format!("deny.toml has no list {key} in [{table}]");
    let body = text.split_once(&format!("[{table}]\n")).ok_or_else(missing)?.1;
    let body = body.split("\n[").next().unwrap_or(body);
    let start = format!("{key} = [");
    let from = body.lines().position(|line| line.starts_with(&start)).ok_or_else(missing)?;
    let lines = body.lines().skip(from).map(|line| line.split('#').next().unwrap_or(line));
    let value: String =
        lines.flat_map(|line| line.chars().chain(['\n'])).skip(start.len()).take_while(|&char| char != ']').collect();
    Ok(value.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FILE: &str = include_str!("../../deny.toml");

    fn package(name: &str, version: &str, licence: &str) -> Value {
        let source = "registry+https://github.com/rust-lang/crates.io-index";
        json!({"name": name, "version": version, "license": licence, "source": source, "dependencies": []})
    }

    #[track_caller]
    fn faults(packages: &[Value]) -> String {
        Rules::parse(FILE).unwrap().faults(&json!({ "packages": packages })).join("\n")
    }

    #[test]
    fn lists_are_read_over_several_lines_and_from_their_own_table() {
        let text = "[a]\nallow = [\n  \"one\", # \"not this\"\n  \"two\",\n]\n[b]\nallow = []\n";
        assert_eq!(list(text, "a", "allow").unwrap(), ["one", "two"]);
        assert!(list(text, "b", "allow").unwrap().is_empty());
        assert!(list(text, "b", "skip").unwrap_err().contains("no list skip in [b]"));
    }

    #[test]
    fn a_licence_is_met_by_one_side_of_or_and_both_of_and() {
        let rules = Rules { licences: vec!["MIT".to_owned(), "ISC".to_owned()], ..Rules::default() };
        for met in ["MIT", "GPL-3.0 OR MIT", "MIT/GPL-3.0", "MIT AND ISC", "(GPL-3.0 OR MIT) AND ISC", "ISC AND (MIT OR GPL-3.0)"]
        {
            assert!(rules.allows(met), "{met}");
        }
        for not in
            ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "MIT WITH exception", "MIT ISC", "(MIT", "MIT OR"]
        {
            assert!(!rules.allows(not), "{not}");
        }
    }

    #[test]
    fn what_is_allowed_passes() {
        assert_eq!(faults(&[package("good", "1.0.0", "MIT OR GPL-3.0")]), "");
    }

    #[test]
    fn a_forbidden_licence_source_version_or_wildcard_is_named() {
        assert!(faults(&[package("copyleft", "1.0.0", "GPL-3.0")]).contains("copyleft 1.0.0: the licence \"GPL-3.0\""));
        assert!(faults(&[package("nothing", "1.0.0", "")]).contains("nothing 1.0.0: the licence \"\""));
        for source in ["git+https://example.org/fork?rev=1#1", "registry+https://example.org/index", "other"] {
            let mut forked = package("forked", "1.0.0", "MIT");
            forked["source"] = json!(source);
            assert!(faults(&[forked]).contains(&format!("forked 1.0.0: the source {source}")), "{source}");
        }
        let twice = [package("twice", "1.0.0", "MIT"), package("twice", "2.0.0", "MIT")];
        assert!(faults(&twice).contains("twice: there are the versions 1.0.0 and 2.0.0"));
        let mut ours = package("ours", "1.0.0", "MIT");
        ours["source"] = Value::Null;
        ours["dependencies"] = json!([{"name": "any", "req": "*"}, {"name": "beside", "req": "*", "path": "/x"}]);
        assert_eq!(faults(&[ours]), "ours depends on any version of \"any\"");
        assert_eq!(faults(&[]), "cargo metadata names no packages");
    }
}
