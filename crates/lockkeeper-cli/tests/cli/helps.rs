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
    assert_eq!(codes(&help), [1, 64, 69, 70, 79, 80, 126, 127], "{help}");
    assert_eq!(codes(include_str!("../../../../docs/cli.md")), codes(&help));
}

#[test]
fn every_verb_has_help_and_a_page() {
    for verb in ["run", "hold", "list", "show", "watch", "release", "semaphore", "latch", "doctor", "completions", "man"] {
        assert_eq!(end(&mut lockkeeper([verb, "--help"])).code, Some(0), "{verb}");
        assert!(end(&mut lockkeeper(["man", verb])).stdout.contains(".TH"), "{verb}");
    }
    assert_refused(&mut lockkeeper(["help", "walk"]), 64, "there is no topic \"walk\"");
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
