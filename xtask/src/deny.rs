//! What we depend on, against the lists of `deny.toml`: licences, sources, more than one version, versions that are wildcards.
//!
//! `cargo deny` takes minutes to build. This needs nothing but cargo, so it always runs. `deny.toml` is written as `cargo deny` reads it.
//! Versions and sources are those of `Cargo.lock`, so of all platforms. Licences are those of this platform: cargo has the manifests of the
//! others only after it has downloaded them.

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

/// A package of `Cargo.lock`. One of ours has no source.
#[derive(Debug, PartialEq)]
struct Locked<'a> {
    name: &'a str,
    version: &'a str,
    source: Option<&'a str>,
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
    let lock = root().join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).map_err(|error| format!("cannot read {}: {error}", lock.display()))?;
    let faults = rules.faults(&metadata, &locked(&lock));
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
    fn faults(&self, metadata: &Value, locked: &[Locked<'_>]) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let packages: Vec<&Value> = metadata["packages"].as_array().into_iter().flatten().collect();
        let mut faults = Vec::new();
        for package in &packages {
            let (name, version, licence) = (text(&package["name"]), text(&package["version"]), text(&package["license"]));
            if !self.allows(&licence) {
                faults.push(format!("{name} {version}: the licence {licence:?} is not allowed"));
            }
            // A crate of ours.
            if package["source"].is_null() {
                faults.extend(wildcards(&name, package));
            }
        }
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for Locked { name, version, source } in locked {
            if let Some(source) = source.filter(|source| !self.knows(source)) {
                faults.push(format!("{name} {version}: the source {source} is not allowed"));
            }
            versions.entry(name).or_default().insert(version);
        }
        let is_skipped = |name: &str| self.several.iter().any(|skipped| skipped == name);
        for (name, versions) in versions.iter().filter(|(name, versions)| versions.len() > 1 && !is_skipped(name)) {
            let versions: Vec<&str> = versions.iter().copied().collect();
            faults.push(format!("{name}: there are the versions {}; cargo tree -i {name} says why", versions.join(" and ")));
        }
        for name in self.several.iter().filter(|name| versions.get(name.as_str()).is_none_or(|versions| versions.len() < 2)) {
            faults.push(format!("{name}: there are not several versions of it; take it off the list skip"));
        }
        if packages.is_empty() || locked.is_empty() {
            faults.push("cargo metadata or Cargo.lock names no packages".to_owned());
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

/// The packages of a `Cargo.lock`.
fn locked(text: &str) -> Vec<Locked<'_>> {
    fn value<'a>(package: &'a str, key: &str) -> Option<&'a str> {
        package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
    }
    let package =
        |text| Some(Locked { name: value(text, "name")?, version: value(text, "version")?, source: value(text, "source") });
    text.split("[[package]]\n").skip(1).filter_map(package).collect()
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
        json!({"name": name, "version": version, "license": licence, "source": REGISTRY, "dependencies": []})
    }

    const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

    /// The faults of these packages, which are also those of the lock file.
    #[track_caller]
    fn faults(packages: &[Value]) -> String {
        let rules = Rules { several: Vec::new(), ..Rules::parse(FILE).unwrap() };
        let text = |value: &'_ Value, key: &str| value[key].as_str().map(str::to_owned);
        let lock: String = packages
            .iter()
            .map(|package| {
                let entry = |key: &str| text(package, key).map_or_else(String::new, |value| format!("{key} = \"{value}\"\n"));
                format!("[[package]]\n{}{}{}\n", entry("name"), entry("version"), entry("source"))
            })
            .collect();
        rules.faults(&json!({ "packages": packages }), &locked(&lock)).join("\n")
    }

    #[test]
    fn the_lock_file_has_names_versions_and_sources() {
        let text = format!(
            "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"{REGISTRY}\"\nchecksum = \"0\"\n\n\
             [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n"
        );
        let expected = [
            Locked { name: "a", version: "1.0.0", source: Some(REGISTRY) },
            Locked { name: "ours", version: "0.1.0", source: None },
        ];
        assert_eq!(locked(&text), expected);
    }

    #[test]
    fn a_name_that_has_one_version_is_no_longer_skipped() {
        let rules = Rules { several: vec!["once".to_owned()], ..Rules::parse(FILE).unwrap() };
        let package = package("once", "1.0.0", "MIT");
        let locked = [Locked { name: "once", version: "1.0.0", source: Some(REGISTRY) }];
        let faults = rules.faults(&json!({ "packages": [package] }), &locked);
        assert_eq!(faults, ["once: there are not several versions of it; take it off the list skip"]);
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
        assert_eq!(faults(&[]), "cargo metadata or Cargo.lock names no packages");
    }
}
