//! What is printed for people who ask: help, version, exit statuses, completions, manual pages.

use crate::util::{assert_refused, end, lockkeeper};

#[test]
fn help_and_version_go_to_stdout() {
    for words in [&["--help"][..], &["help"], &["run", "--help"], &["help", "run"]] {
        let ended = end(&mut lockkeeper(words));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{words:?}");
        assert!(ended.stdout.contains("only one of us at a time"), "{words:?}: {}", ended.stdout);
    }
    assert_eq!(end(&mut lockkeeper(["--version"])).stdout, concat!("lockkeeper ", env!("CARGO_PKG_VERSION"), "\n"));
}

/// The codes that a table lists, in its order.
fn codes(table: &str) -> Vec<u8> {
    table.lines().filter_map(|line| line.trim_start_matches(['|', ' ']).split([' ', '|']).next()?.parse().ok()).collect()
}

#[test]
fn help_and_the_docs_tell_the_same_exit_statuses() {
    let help = end(&mut lockkeeper(["help", "exit-codes"])).stdout;
    assert_eq!(codes(&help), [1, 64, 69, 70, 79, 80, 81, 126, 127], "{help}");
    assert_eq!(codes(include_str!("../../../../docs/cli.md")), codes(&help));
}

#[test]
fn every_verb_has_help_and_a_page() {
    for verb in
        ["run", "hold", "list", "show", "watch", "release", "semaphore", "latch", "doctor", "torture", "completions", "man"]
    {
        assert_eq!(end(&mut lockkeeper([verb, "--help"])).code, Some(0), "{verb}");
        assert!(end(&mut lockkeeper(["man", verb])).stdout.contains(".TH"), "{verb}");
    }
    assert_refused(&mut lockkeeper(["help", "walk"]), 64, "there is no topic \"walk\"");
}

#[test]
fn the_first_help_names_the_store_option_and_its_variable() {
    let help = end(&mut lockkeeper(["--help"])).stdout;
    assert!(help.contains("-S, --store <URL>") && help.contains("LOCKKEEPER_STORE"), "{help}");
    // What needs no store does not speak of it, but takes it.
    assert!(!end(&mut lockkeeper(["man", "--help"])).stdout.contains("--store"));
    assert_eq!(end(&mut lockkeeper(["-S", "sqlite:", "help", "exit-codes"])).code, Some(0));
}

/// The lines of a section of a page.
fn section<'a>(page: &'a str, title: &str) -> Vec<&'a str> {
    let heading = |line: &&str| line.strip_prefix(".SH ").is_some_and(|of| of.trim_matches('"') == title);
    let lines: Vec<_> =
        page.lines().skip_while(|line| !heading(line)).skip(1).take_while(|line| !line.starts_with(".SH")).collect();
    assert!(!lines.is_empty(), "no {title} in {page}");
    lines
}

#[test]
fn pages_have_the_usual_sections_and_examples_as_they_are_typed() {
    for (verb, statuses) in
        [(&[][..], 11), (&["run"], 10), (&["hold"], 6), (&["list"], 5), (&["torture"], 5), (&["latch", "wait"], 5), (&["man"], 3)]
    {
        let page = end(&mut lockkeeper(["man"].iter().chain(verb))).stdout;
        assert!(!page.contains("EXTRA"), "{verb:?}: {page}");
        assert_eq!(section(&page, "EXIT STATUS").iter().filter(|line| **line == ".TP").count(), statuses, "{verb:?}: {page}");
        if statuses > 3 {
            assert!(section(&page, "ENVIRONMENT").iter().any(|line| line.contains("LOCKKEEPER_STORE")), "{verb:?}: {page}");
        }
    }
    let page = end(&mut lockkeeper(["man", "run"])).stdout;
    let examples = section(&page, "EXAMPLES");
    let typed = examples.iter().position(|line| line.contains("only one of us at a time")).expect("the first example");
    assert_eq!((examples[typed - 1], examples[typed + 1]), (".nf", ".fi"), "{page}");
    assert!(section(&page, "ENVIRONMENT OF THE COMMAND").iter().any(|line| line.contains("LOCKKEEPER_TOKEN")), "{page}");
    assert!(section(&page, "FILES").iter().any(|line| line.contains("locks.db")), "{page}");
    // A term is followed by what it means.
    for title in ["EXIT STATUS", "ENVIRONMENT", "ENVIRONMENT OF THE COMMAND", "FILES"] {
        let explained = section(&page, title)
            .split(|line| *line == ".TP")
            .skip(1)
            .all(|item| item.len() >= 2 && item.iter().all(|line| !line.is_empty()));
        assert!(explained, "{title} in {page}");
    }
}

#[test]
fn completions_know_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = end(&mut lockkeeper(["completions", shell]));
        assert_eq!(ended.code, Some(0), "{shell}");
        assert!(ended.stdout.contains("semaphore") && !ended.stdout.contains("__exec"), "{shell}");
    }
    assert_refused(&mut lockkeeper(["completions", "cmd"]), 64, "cmd");
}
