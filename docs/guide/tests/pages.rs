//! The pages hold together: links lead somewhere, every chapter is listed and tested, code that is shown is code that runs.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn guide() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The Markdown files in a folder and below it.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn chapters() -> Vec<PathBuf> {
    pages(&guide().join("src")).into_iter().filter(|page| !page.ends_with("SUMMARY.md")).collect()
}

/// The lines outside of code blocks, without code spans.
fn prose(text: &str) -> String {
    let mut inside = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            let plain: Vec<&str> = line.split('`').step_by(2).collect();
            prose.push_str(&plain.concat());
            prose.push('\n');
        }
    }
    prose
}

/// The targets of links that lead to other files, or to headings.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target.to_owned()));
    targets.filter(|target| !target.contains(':')).collect()
}

/// The names by which headings can be linked to, as GitHub and mdBook make them.
fn anchors(text: &str) -> HashSet<String> {
    let mut inside = false;
    let mut anchors = HashSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside;
        }
        let Some(heading) = line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#') && !inside) else {
            continue;
        };
        let kept = heading.chars().filter(|&character| character.is_alphanumeric() || "-_ ".contains(character));
        anchors
            .insert(kept.flat_map(char::to_lowercase).map(|character| if character == ' ' { '-' } else { character }).collect());
    }
    anchors
}

/// Why a link of the page leads nowhere, if so.
fn broken(page: &Path, link: &str) -> Option<String> {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() { page.to_owned() } else { page.parent().expect("a folder").join(file) };
    if !target.exists() {
        return Some(format!("{}: {link}: there is no such file", page.display()));
    }
    let anchor = anchor.filter(|_| target.extension().is_some_and(|ending| ending == "md"))?;
    let known = anchors(&fs::read_to_string(&target).expect("a page"));
    (!known.contains(anchor)).then(|| format!("{}: {link}: there is no such heading", page.display()))
}

#[test]
fn all_relative_links_lead_to_a_file_and_a_heading() {
    let root = guide().join("../..").canonicalize().expect("the root");
    let mut all = pages(&root.join("docs"));
    let others = [
        "README.md",
        "README.zh-CN.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "crates/lockkeeper/tests/README.md",
        "verify/README.md",
    ];
    all.extend(others.map(|page| root.join(page)));
    let mut bad = Vec::new();
    let mut seen = 0;
    for page in &all {
        for link in links(&fs::read_to_string(page).expect("a page")) {
            seen += 1;
            bad.extend(broken(page, &link));
        }
    }
    assert!(bad.is_empty(), "\n{}", bad.join("\n"));
    assert!(seen > 100, "only {seen} links were found: are they still looked for?");
}

#[test]
fn a_broken_link_is_noticed() {
    let text =
        "see [a](introduction.md#introduction), [b](none.md), [c](#nothing-here)\n`[d](code.md)`\n```\n[e](block.md)\n```\n";
    let found = links(text);
    assert_eq!(found, ["introduction.md#introduction", "none.md", "#nothing-here"]);
    let page = guide().join("src/introduction.md");
    let bad: Vec<bool> = found.iter().map(|link| broken(&page, link).is_some()).collect();
    assert_eq!(bad, [false, true, true]);
}

#[test]
fn every_chapter_is_listed_and_compiled() {
    let (summary, library) = (fs::read_to_string(guide().join("src/SUMMARY.md")).expect("it"), include_str!("../lib.rs"));
    let listed: HashSet<String> = links(&summary).into_iter().collect();
    let chapters: Vec<String> =
        chapters().iter().map(|page| page.file_name().expect("a name").to_string_lossy().into_owned()).collect();
    for chapter in &chapters {
        assert!(listed.contains(chapter), "{chapter} is not in SUMMARY.md");
        assert!(library.contains(&format!("\"{chapter}\"")), "{chapter} is not in lib.rs, so its code is not compiled");
    }
    assert_eq!(listed.len(), chapters.len(), "SUMMARY.md lists chapters that do not exist: {listed:?}");
}

/// Which stores a chapter does not name.
fn unnamed(text: &str) -> Vec<&'static str> {
    let names = [["PostgreSQL", "postgres://"], ["MySQL", "mysql://"], ["ZooKeeper", "zookeeper://"], ["etcd", "etcd://"]];
    names.into_iter().filter(|names| names.iter().all(|name| !text.contains(name))).map(|[name, _]| name).collect()
}

/// What a lease, a loss or a message is depends on the store: a user of each finds it in the chapters.
#[test]
fn chapters_about_what_differs_between_stores_name_them_all() {
    for chapter in ["introduction", "stores", "leases", "loss", "shutdown", "operating", "errors", "troubleshooting", "fencing"] {
        let text = fs::read_to_string(guide().join("src").join(chapter).with_extension("md")).expect("a chapter");
        assert!(unnamed(&text).is_empty(), "{chapter} does not name {:?}", unnamed(&text));
    }
    assert_eq!(unnamed("PostgreSQL, mysql:// and ZooKeeper"), ["etcd"]);
}

/// Why mdBook would not take the summary, if so.
fn misread(summary: &str) -> Option<String> {
    let entry = |line: &str| {
        let line = line.trim_start().trim_start_matches("- ");
        line.starts_with('[') && line.ends_with(".md)") && line.matches("](").count() == 1
    };
    let mut listed = HashSet::new();
    let mut lines = summary.lines();
    if lines.next() != Some("# Summary") {
        return Some("it does not begin with # Summary".to_owned());
    }
    lines.filter(|line| !line.is_empty() && !line.starts_with("# ")).find_map(|line| {
        let twice = !listed.insert(links(line));
        (twice || !entry(line)).then(|| format!("{line:?} is no chapter, or is there twice"))
    })
}

#[test]
fn the_summary_is_one_that_mdbook_takes() {
    assert_eq!(misread(include_str!("../src/SUMMARY.md")), None);
    for bad in ["- [a](a.md)\n", "# Summary\n- a.md\n", "# Summary\n- [a](a.md)\n- [b](a.md)\n", "# Summary\ntext\n"] {
        assert!(misread(bad).is_some(), "{bad:?}");
    }
}

#[test]
fn every_code_block_ends() {
    for page in chapters() {
        let text = fs::read_to_string(&page).expect("a page");
        let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
        assert!(fences.is_multiple_of(2), "{}: a code block does not end", page.display());
    }
}

/// The code blocks of a page: the line before, the language, the code.
fn blocks(text: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let (mut before, mut lines) = (String::new(), text.lines());
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let code: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push((before.clone(), language.to_owned(), code.join("\n")));
        }
        before = line.to_owned();
    }
    found
}

#[test]
fn code_that_the_doc_tests_ignore_is_part_of_a_program() {
    let mut seen = 0;
    for page in chapters() {
        for (before, language, code) in blocks(&fs::read_to_string(&page).expect("a page")) {
            if !language.contains("ignore") {
                continue;
            }
            let program = before.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
            let program =
                program.unwrap_or_else(|| panic!("{}: the line before does not name a program:\n{code}", page.display()));
            let source = fs::read_to_string(guide().join(program)).unwrap_or_else(|error| panic!("{program}: {error}"));
            assert!(source.contains(&code), "{}: this is not in {program}:\n{code}", page.display());
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen} blocks were found");
}

#[test]
fn shell_code_is_well_formed() {
    let mut seen = 0;
    for page in chapters() {
        for (_, language, code) in blocks(&fs::read_to_string(&page).expect("a page")) {
            if language != "sh" {
                continue;
            }
            let checked = Command::new("sh").args(["-n", "-c", &code]).stdin(Stdio::null()).output().expect("a shell");
            assert!(checked.status.success(), "{}:\n{code}\n{}", page.display(), String::from_utf8_lossy(&checked.stderr));
            seen += 1;
        }
    }
    assert!(seen >= 8, "only {seen} blocks were found");
}

/// The sections of the page of benchmarks, by what links call them.
fn measured() -> Vec<(String, String)> {
    let page = fs::read_to_string(guide().join("../benchmarks.md")).expect("the page");
    let (_, results) = page.split_once("\n## Results\n").expect("results");
    let sections = results.split("\n### ").skip(1).map(|section| {
        let heading = section.lines().next().unwrap_or_default().to_lowercase();
        let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
        (kept.collect::<String>().replace(' ', "-"), section.to_owned())
    });
    sections.collect()
}

/// Whether a row of ours has the figure: a cell begins with it.
fn is_measured(section: &str, figure: &str) -> bool {
    let ours = section.lines().filter(|line| line.starts_with("| **lockkeeper**"));
    ours.flat_map(|line| line.split('|')).any(|cell| cell.split_whitespace().next() == Some(figure))
}

/// Figures are copied from the page of benchmarks by hand. A run replaces them there.
#[test]
fn the_figures_of_stores_are_those_that_were_measured() {
    const LINK: &str = "](../../benchmarks.md#";
    let (sections, page) = (measured(), fs::read_to_string(guide().join("src/stores.md")).expect("the page"));
    let mut compared = 0;
    for (at, _) in page.match_indices(LINK) {
        let anchor = page[at + LINK.len()..].split(')').next().unwrap_or_default();
        let (before, text) = page[..at].rsplit_once('[').expect("the text of the link");
        // Where the link has a name, its figure stands before it, in percent.
        let before_percent = || before.rsplit_once(" %").and_then(|(before, _)| before.split_whitespace().last());
        let figure = text.split(' ').next().filter(|word| word.starts_with(|first: char| first.is_ascii_digit()));
        let figure = figure.or_else(before_percent).expect("a figure");
        let (_, section) = sections.iter().find(|(name, _)| name == anchor).unwrap_or_else(|| panic!("no section {anchor}"));
        assert!(is_measured(section, figure), "{figure} is not in #{anchor}: copy what was measured into stores.md");
        assert!(!is_measured(section, &format!("{figure}1")));
        compared += 1;
    }
    assert!(compared >= 15, "only {compared} figures were found");
}

/// The quoted words of `key = ...` in a line of TOML: of a list, or one.
fn quoted<'a>(line: &'a str, key: &str) -> Vec<&'a str> {
    let Some((_, value)) = line.split_once(&format!("{key} = ")) else { return Vec::new() };
    let end = if value.starts_with('[') { value.find(']') } else { value[1..].find('"').map(|end| end + 2) };
    value[..end.unwrap_or(value.len())].split('"').skip(1).step_by(2).collect()
}

/// What is wrong with a line that a reader would copy into a Cargo.toml. `ours` is the manifest of the library, `workspace` that of all.
fn wrong_dependency(line: &str, ours: &str, workspace: &str) -> Vec<String> {
    let name = line.split(" = ").next().unwrap_or_default();
    let (line, comment) = line.split_once(" # or ").unwrap_or((line, ""));
    let key = if name == "lockkeeper" { "version" } else { name };
    let known = workspace.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))?.split('"').nth(1));
    let mut wrong = Vec::new();
    if !quoted(line, "version").iter().all(|shown| known.is_some_and(|known| known.starts_with(shown))) {
        wrong.push(format!("{name} has the version {known:?}"));
    }
    if name == "lockkeeper" {
        let features = ours.split_once("[features]\n").map_or("", |(_, rest)| rest.split("\n[").next().unwrap_or_default());
        let is_feature = |feature: &str| features.lines().any(|line| line.starts_with(&format!("{feature} = ")));
        let named = quoted(line, "features").into_iter().chain(comment.split(", ").filter(|word| !word.is_empty()));
        wrong.extend(named.filter(|feature| !is_feature(feature)).map(|feature| format!("there is no feature {feature}")));
    }
    wrong
}

#[test]
fn dependencies_are_shown_with_versions_and_features_that_there_are() {
    let root = guide().join("../..");
    let read = |page: &str| fs::read_to_string(root.join(page)).expect("a file");
    let (ours, workspace) = (read("crates/lockkeeper/Cargo.toml"), read("Cargo.toml"));
    let mut seen = 0;
    for page in ["README.md", "docs/testing.md", "docs/guide/src/testing.md"] {
        for (_, language, code) in blocks(&read(page)) {
            if language != "toml" || !code.contains("dependencies]") {
                continue;
            }
            for line in code.lines().filter(|line| line.contains(" = ")) {
                let wrong = wrong_dependency(line, &ours, &workspace);
                assert!(wrong.is_empty(), "{page}: {line}: {wrong:?}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 6, "only {seen} dependencies were found");
}

#[test]
fn a_wrong_dependency_is_noticed() {
    let (ours, workspace) =
        ("[features]\nredis = []\n[dependencies]\nother = \"1\"\n", "version = \"0.1.0\"\ntokio = { version = \"1.5\" }\n");
    let wrong = |line: &str| wrong_dependency(line, ours, workspace).len();
    assert_eq!(wrong("lockkeeper = { version = \"0.1\", features = [\"redis\"] } # or redis"), 0);
    assert_eq!(wrong("tokio = { version = \"1\", features = [\"full\"] }"), 0);
    assert_eq!(wrong("lockkeeper = { version = \"0.2\", features = [\"reddis\", \"other\"] } # or redis, sqlite"), 4);
    assert_eq!(wrong("tokio = { version = \"2\" }"), 1);
}
