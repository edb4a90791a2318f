//! Tables: as wide as they are in a pipe, no wider than the terminal on one; and what stands in them.

use lockkeeper::blocking::Client;

use crate::pty::Pty;
use crate::stores::on_each_store;
use crate::util::{end, lockkeeper, until};

/// The lines that were drawn on a terminal of so many columns.
fn drawn(words: &[&str], columns: u16) -> Vec<String> {
    let mut pty = Pty::start_with(&lockkeeper(words), columns);
    assert_eq!(pty.end().code(), Some(0), "{:?}", pty.drawn());
    // What was written before the end may be read a little later.
    let waiters = |text: &str| text.ends_with("\r\n") && text.lines().count() > 1;
    until("it is drawn", || waiters(&pty.drawn()));
    pty.drawn().lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
}

#[test]
fn on_a_narrow_terminal_the_owner_is_shortened_and_in_a_pipe_nothing() {
    on_each_store("on_a_narrow_terminal_the_owner_is_shortened_and_in_a_pipe_nothing", |url| {
        let client = Client::connect(url).expect("a server");
        let guard = client.mutex("orders:42").lock().expect("free");
        until("the holder is known", || {
            client.inspect("orders:42").expect("a server").is_some_and(|found| found.holders[0].client.is_some())
        });
        let (owner, pid) = (guard.owner().to_string(), std::process::id().to_string());
        for words in [&["list", "-S", url][..], &["show", "-S", url, "orders:42"]] {
            let piped = end(&mut lockkeeper(words)).stdout;
            assert!(piped.contains(&owner) && !piped.contains('…'), "{piped}");
            assert!(piped.lines().any(|line| line.chars().count() > 80), "{piped}");
            for (columns, is_cut) in [(80, true), (100, true), (240, false)] {
                let lines = drawn(words, columns);
                assert!(lines.iter().all(|line| line.chars().count() <= usize::from(columns)), "{columns}: {lines:#?}");
                let row = lines.iter().rfind(|line| line.contains(&pid)).unwrap_or_else(|| panic!("{pid} in {lines:#?}"));
                assert_eq!((row.contains('…'), row.contains(&owner)), (is_cut, !is_cut), "{columns}: {lines:#?}");
                assert!(lines.iter().any(|line| line.contains("orders:42")), "{columns}: {lines:#?}");
            }
        }
        guard.release().expect("held");
    });
}

#[test]
fn on_a_narrow_terminal_the_words_of_doctor_go_on_below_each_other() {
    let words = ["doctor"];
    let piped = end(&mut lockkeeper(words)).stdout;
    assert!(piped.lines().any(|line| line.len() > 40), "{piped}");
    let lines = drawn(&words, 40);
    // Only a path that is longer than the terminal is one word.
    let wide: Vec<_> = lines.iter().filter(|line| line.chars().count() > 40 && !line.contains("sqlite:")).collect();
    assert!(wide.is_empty(), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("          ")), "{lines:#?}");
}

#[test]
fn a_semaphore_that_nobody_uses_is_listed_only_if_asked_for() {
    on_each_store("a_semaphore_that_nobody_uses_is_listed_only_if_asked_for", |url| {
        let list = |words: &[&str]| end(lockkeeper(["list", "-S", url]).args(words));
        for name in ["encode", "decode"] {
            assert_eq!(end(&mut lockkeeper(["semaphore", "set", "-S", url, name, "3"])).code, Some(0));
        }
        let nothing = list(&[]);
        assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""), "{nothing:?}");
        assert!(nothing.stderr.contains("nothing is held at ") && nothing.stderr.contains("2 semaphores"), "{nothing:?}");
        assert_eq!(list(&["-o", "json"]).stdout, "[]\n");
        assert_eq!(list(&["enc*"]).stdout, "");
        for words in [&["--all"][..], &["-a", "*code"]] {
            assert_eq!(list(words).stdout.matches("semaphore 3 of 3 free").count(), 2, "{words:?}");
        }
        let named = list(&["encode"]).stdout;
        assert!(named.contains("encode") && !named.contains("decode"), "{named}");
        let client = Client::connect(url).expect("a server");
        let permit = client.semaphore("encode", 3).acquire().expect("free");
        let used = list(&[]).stdout;
        assert!(used.contains("encode  semaphore 2 of 3 free") && !used.contains("decode"), "{used}");
        permit.release().expect("held");
        assert_eq!(list(&[]).stdout, "");
    });
}
