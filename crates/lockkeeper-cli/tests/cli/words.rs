//! What is said to somebody who does not know it yet: a store that excludes nobody, a verb that does not exist, who is in the way.

use lockkeeper::blocking::Client;

use crate::config::Directory;
use crate::stores::{fresh, on_each_store};
use crate::util::{assert_refused, end, lockkeeper, run};

#[test]
fn a_store_of_one_process_is_refused_by_every_verb_that_uses_one() {
    for private in ["memory:", "memory:mine", "redlock:memory:a,memory:b,memory:c,admit=new"] {
        for words in [
            &["run", "job", "touch", "/nonexistent/ran"][..],
            &["hold", "job"],
            &["list"],
            &["show", "job"],
            &["watch"],
            &["release", "--yes", "job"],
            &["semaphore", "set", "job", "3"],
            &["latch", "down", "job"],
        ] {
            assert_refused(lockkeeper(words).env("LOCKKEEPER_STORE", private), 64, "lives inside one process");
        }
    }
    assert_refused(&mut run(["-S", "memory:", "job", "true"]), 64, "use sqlite: on one machine, or redis://HOST across machines");
    let directory = Directory::new("private");
    let file = directory.0.join("private.toml");
    std::fs::write(&file, "store = \"memory:\"\n").expect("a file");
    assert_refused(&mut run(["-S", &format!("config:{}", file.display()), "job", "true"]), 64, "lives inside one process");
    // That somebody else calls a file so does not matter.
    let odd = format!("sqlite:{}/a,memory:b", directory.0.display());
    assert_eq!(end(&mut run(["-S", &odd, "job", "true"])).code, Some(0));
}

#[test]
fn the_store_may_stand_before_the_verb_and_the_nearer_one_wins() {
    let store = fresh();
    let named = |words: &[&str]| end(&mut lockkeeper(words));
    for words in [&["-S", &store, "run", "-v", "job", "true"][..], &["run", "-S", &store, "-v", "job", "true"]] {
        let ended = named(words);
        assert!(ended.code == Some(0) && ended.stderr.contains(&format!("from {store} ")), "{words:?}: {ended:?}");
    }
    let nearer = named(&["--store", "etcd://far", "run", "-S", &store, "job", "true"]);
    assert_eq!(nearer.code, Some(0), "{nearer:?}");
    assert_eq!(named(&["-S", &store, "semaphore", "set", "permits", "3"]).stdout, "3 of 3 free\n");
    assert_eq!(named(&["semaphore", "-S", &store, "set", "permits", "4"]).stdout, "4 of 4 free\n");
    assert!(named(&["semaphore", "show", "permits", "-S", &store]).stdout.contains("4 of 4 free"));
    // What follows the name is the command's, whatever it looks like.
    let passed = named(&["-S", &store, "run", "job", "echo", "-S", "mongo://h", "--store=x"]);
    assert_eq!((passed.code, passed.stdout.as_str()), (Some(0), "-S mongo://h --store=x\n"), "{passed:?}");
    let passed = named(&["-S", &store, "run", "job", "--", "echo", "--store", "mongo://h"]);
    assert_eq!((passed.code, passed.stdout.as_str()), (Some(0), "--store mongo://h\n"), "{passed:?}");
}

#[test]
fn what_is_mistyped_gets_a_suggestion_and_the_verb_to_read_about() {
    for (words, says) in [
        (&["rnu", "job", "true"][..], "did you mean run? see lockkeeper --help"),
        (&["-S", "sqlite:", "lsit"], "did you mean list? see lockkeeper --help"),
        (&["semaphore", "sett", "job", "3"], "did you mean set? see lockkeeper semaphore --help"),
        (&["run", "--fiar", "job", "true"], "did you mean --fair? see lockkeeper run --help"),
        (&["list", "-o", "jsn"], "did you mean json? see lockkeeper list --help"),
        (&["list", "--sideways"], "; see lockkeeper list --help"),
        (&["run", "-w", "soon", "job", "true"], "; see lockkeeper run --help"),
        (&["-S", "run", "latch", "set", "ready", "0"], "; see lockkeeper latch set --help"),
        (&["semaphore"], "there is nothing to do; see lockkeeper semaphore --help"),
        (&[], "there is nothing to do; see lockkeeper --help"),
    ] {
        assert_refused(&mut lockkeeper(words), 64, &format!("{says}\n"));
    }
}

#[test]
fn a_password_in_the_wrong_place_is_not_repeated() {
    let url = "redis://me:secret=1@127.0.0.1";
    for words in
        [&[url, "list"][..], &["semaphore", url], &["list", "-o", url], &["run", &format!("--wait={url}"), "job", "true"]]
    {
        let ended = end(&mut lockkeeper(words));
        assert!(
            ended.code == Some(64) && ended.stderr.contains("URL") && !ended.stderr.contains("secret"),
            "{words:?}: {ended:?}"
        );
    }
}

#[test]
fn whoever_does_not_get_it_is_told_who_has_it() {
    on_each_store("whoever_does_not_get_it_is_told_who_has_it", |url| {
        let client = Client::connect(url).expect("a server");
        let _guard = client.mutex("job").lock().expect("free");
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // Whoever holds tells who it is soon after, not before.
        crate::util::until("the holder is known", || {
            client.inspect("job").expect("a server").is_some_and(|found| found.holders[0].client.is_some())
        });
        let held = format!("is held by {host} pid {}", std::process::id());
        for words in [&["-n", "job"][..], &["-w", "0.1", "job"]] {
            assert_refused(run(["-S", url]).args(words).arg("true"), 1, &held);
        }
        assert_refused(&mut lockkeeper(["hold", "-S", url, "-n", "-E", "7", "job"]), 7, &held);
    });
}
