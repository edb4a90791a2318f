//! The verbs beside `run`, against a real server.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use lockkeeper::blocking::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::redis::store;
use crate::stores::{on_each_store, on_sqlite};
use crate::util::{assert_refused, end, lockkeeper, run};

/// `lockkeeper hold`, and the line that it printed.
fn holding(url: &str, options: &[&str]) -> (Child, String) {
    let mut words = vec!["hold", "-S", url];
    words.extend(options);
    let mut holder =
        lockkeeper(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut line = String::new();
    BufReader::new(holder.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    (holder, line)
}

#[test]
fn hold_prints_a_line_and_holds_until_stdin_ends_or_a_signal_comes() {
    on_each_store("hold_prints_a_line_and_holds_until_stdin_ends_or_a_signal_comes", |url| {
        for signal in [None, Some(Signal::TERM), Some(Signal::INT)] {
            let (mut holder, line) = holding(url, &["job"]);
            assert!(line.starts_with("{\"name\":\"job\",\"kind\":\"mutex\",\"holds\":\"all\",\"owner\":\""), "{line}");
            assert!(line.contains("\"token\":1"), "{line}");
            assert_refused(&mut run(["-S", url, "-n", "job", "true"]), 1, "is held by ");
            match signal {
                None => drop(holder.stdin.take()),
                Some(signal) => kill_process(Pid::from_child(&holder), signal).expect("it runs"),
            }
            assert_eq!(holder.wait().expect("it ends").code(), Some(0));
            assert_eq!(end(&mut run(["-S", url, "-n", "job", "true"])).code, Some(0));
        }
    });
}

/// Whoever holds tells who it is soon after, not before.
fn until_known(url: &str, holder: &std::process::Child) {
    let pid = format!("\"pid\":{}", holder.id());
    crate::util::until("the holder is known", || {
        end(&mut lockkeeper(["list", "-S", url, "-o", "json", "job"])).stdout.contains(&pid)
    });
}

#[test]
fn a_hold_that_is_taken_away_ends_with_79() {
    on_each_store("a_hold_that_is_taken_away_ends_with_79", |url| {
        let (holder, _) = holding(url, &["-l", "6s", "job"]);
        until_known(url, &holder);
        assert_refused(&mut lockkeeper(["release", "-S", url, "job"]), 64, "--yes");
        let ended = end(&mut lockkeeper(["release", "-S", url, "--yes", "job"]));
        assert!(ended.code == Some(0) && ended.stdout.contains(&format!("pid {} (", holder.id())), "{ended:?}");
        assert!(ended.stderr.contains("at its next renewal, within a third of its lease"), "{ended:?}");
        assert_refused(&mut lockkeeper(["release", "-S", url, "--yes", "job"]), 1, "nobody holds");
        let output = holder.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(79), "{output:?}");
    });
}

#[test]
fn shared_and_exclusive_are_the_sides_of_one_lock() {
    on_each_store("shared_and_exclusive_are_the_sides_of_one_lock", |url| {
        let (one, _) = holding(url, &["-s", "job"]);
        let (two, _) = holding(url, &["-s", "job"]);
        assert_refused(&mut run(["-S", url, "-x", "-n", "job", "true"]), 1, "is held by ");
        assert_refused(&mut run(["-S", url, "-n", "job", "true"]), 64, "is in use as a read-write lock");
        for holder in [one, two] {
            holder.wait_with_output().expect("its stdin ends");
        }
        assert_eq!(end(&mut run(["-S", url, "-x", "-n", "job", "true"])).code, Some(0));
    });
}

#[test]
fn permits_are_counted_and_another_size_is_refused() {
    on_each_store("permits_are_counted_and_another_size_is_refused", |url| {
        let (holder, _) = holding(url, &["--permits", "3", "--take", "2", "job"]);
        let says = "\"job\" has 1 of 3 permits free, not 2; it is held by ";
        assert_refused(&mut run(["-S", url, "-n", "--permits", "3", "--take", "2", "job", "true"]), 1, says);
        assert_refused(&mut run(["-S", url, "-n", "--permits", "0", "job", "true"]), 64, "a number of permits is 1 or more");
        assert_eq!(end(&mut run(["-S", url, "-n", "--permits", "3", "job", "true"])).code, Some(0));
        assert_refused(&mut run(["-S", url, "-n", "--permits", "4", "job", "true"]), 64, "has 3 permits");
        let resize = "has 3 permits, not 4; use --permits 3, or lockkeeper semaphore set \"job\" 4\n";
        assert_refused(&mut run(["-S", url, "-n", "--permits", "4", "job", "true"]), 64, resize);
        let shown = end(&mut lockkeeper(["semaphore", "show", "-S", url, "job"]));
        assert!(shown.stdout.contains("permits: 1 of 3 free") && shown.stdout.contains("2 of 3"), "{shown:?}");
        assert_eq!(end(&mut lockkeeper(["semaphore", "set", "-S", url, "job", "5"])).stdout, "3 of 5 free\n");
        assert_refused(&mut lockkeeper(["semaphore", "remove", "-S", url, "job"]), 1, "somebody has a permit");
        holder.wait_with_output().expect("its stdin ends");
        assert_refused(&mut lockkeeper(["semaphore", "set", "-S", url, "job", "0"]), 64, "0");
        assert_refused(&mut run(["-S", url, "job", "true"]), 64, "semaphore");
        assert_eq!(end(&mut lockkeeper(["semaphore", "remove", "-S", url, "job"])).code, Some(0));
        assert_eq!(end(&mut run(["-S", url, "job", "true"])).code, Some(0), "its name is free for a mutex");
        let unmatched = end(&mut lockkeeper(["list", "-S", url, "jib*"]));
        assert!(unmatched.stderr.contains("nothing that matches \"jib*\""), "{unmatched:?}");
    });
}

#[test]
fn a_latch_is_set_counted_down_and_waited_for() {
    on_each_store("a_latch_is_set_counted_down_and_waited_for", |url| {
        let latch = |words: &[&str]| {
            let mut command = lockkeeper(["latch", words[0], "-S", url]);
            command.args(&words[1..]);
            command
        };
        assert_eq!(end(&mut latch(&["set", "ready", "2"])).code, Some(0));
        assert_refused(&mut latch(&["set", "ready", "3"]), 1, "2 to go");
        assert_refused(&mut latch(&["wait", "-w", "0.2", "-E", "9", "ready"]), 9, "still closed");
        let waiter = latch(&["wait", "ready"]).spawn().expect("the binary starts");
        assert_eq!(end(&mut latch(&["show", "ready"])).stdout, "2\n");
        assert_eq!(end(&mut latch(&["down", "ready"])).stdout, "1\n");
        assert_eq!(end(&mut latch(&["down", "ready"])).stdout, "0\n");
        assert!(waiter.wait_with_output().expect("it opens").status.success());
        // A closed latch can be replaced, counted down by more than one, and removed.
        assert_eq!(end(&mut latch(&["set", "ready", "2"])).code, Some(0));
        assert_refused(&mut latch(&["set", "ready", "5"]), 1, "--force");
        assert_eq!(end(&mut latch(&["set", "--force", "ready", "5"])).code, Some(0));
        assert_eq!(end(&mut latch(&["down", "--by", "3", "ready"])).stdout, "2\n");
        assert_eq!(end(&mut latch(&["remove", "ready"])).code, Some(0));
        assert_eq!(end(&mut latch(&["show", "ready"])).stdout, "0\n");
        assert_refused(&mut latch(&["remove", "ready"]), 1, "nothing to remove");
        assert_eq!(end(&mut latch(&["set", "ready", "2"])).code, Some(0));
        assert_eq!(end(&mut latch(&["down", "--by", "9", "ready"])).stdout, "0\n");
        // A mistyped name is open, and said to be unknown.
        let unknown = end(&mut latch(&["wait", "raedy"]));
        assert!(unknown.code == Some(0) && unknown.stderr.contains("no latch \"raedy\" is set"), "{unknown:?}");
    });
}

#[test]
fn list_and_show_tell_who_holds_what() {
    on_each_store("list_and_show_tell_who_holds_what", |url| {
        let nothing = end(&mut lockkeeper(["list", "-S", url]));
        assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""));
        assert_refused(&mut lockkeeper(["show", "-S", url, "job"]), 1, "there is nothing named");
        let client = Client::connect(url).expect("a server");
        let guard = client.mutex("orders\n42").lock().expect("free");
        let (holder, _) = holding(url, &["--fair", "job"]);
        let mut waiter = run(["-S", url, "--fair", "job", "true"]).spawn().expect("the binary starts");
        crate::util::until("it waits", || end(&mut lockkeeper(["show", "-S", url, "job"])).stdout.contains("queue"));
        until_known(url, &holder);
        let table = end(&mut lockkeeper(["list", "-S", url])).stdout;
        let lines: Vec<_> = table.lines().collect();
        assert!(lines.len() == 3 && lines[0].starts_with("NAME "), "{table}");
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert!(lines[1].contains("mutex") && lines[1].contains(&format!("{host} {}", holder.id())), "{table}");
        // Redis does not tell since when; and there is one waiter.
        assert_eq!(lines[1].split_whitespace().any(|cell| cell == "-"), url.starts_with("redis"), "{table}");
        assert!(lines[1].ends_with('1'), "{table}");
        assert!(lines[2].starts_with("orders\u{fffd}42"), "{table}");
        let only = end(&mut lockkeeper(["list", "-S", url, "jo?"])).stdout;
        assert_eq!(only.lines().count(), 2, "{only}");
        let shown = end(&mut lockkeeper(["show", "-S", url, "job"])).stdout;
        assert!(shown.starts_with("job  mutex\nholders:\n") && shown.contains("\n  1  all, in turn"), "{shown}");
        // The waiter is named as the holder is: which process of which program on which host.
        let process = format!("{host} {}", waiter.id());
        crate::util::until("the waiter is known", || {
            let shown = end(&mut lockkeeper(["show", "-S", url, "job"])).stdout;
            shown.lines().any(|line| line.starts_with("  1  all, in turn") && line.contains(&process) && line.contains(" true "))
        });
        let json = end(&mut lockkeeper(["list", "-S", url, "-o", "json", "job"])).stdout;
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let queued = &json[0]["queue"][0];
        assert_eq!((&queued["host"], &queued["pid"], &queued["program"]), (&host.into(), &waiter.id().into(), &"true".into()));
        holder.wait_with_output().expect("its stdin ends");
        assert!(waiter.wait().expect("it gets it").success());
        guard.release().expect("held");
    });
}

#[test]
fn watch_tells_changes_as_lines() {
    on_each_store("watch_tells_changes_as_lines", |url| {
        let client = Client::connect(url).expect("a server");
        let guard = client.mutex("job").lock().expect("free");
        let mut watcher = lockkeeper(["watch", "-S", url, "-o", "json", "--every", "50ms"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(watcher.stdout.take().expect("piped")).lines().map(|line| line.expect("a line"));
        assert!(lines.next().expect("a line").starts_with("{\"change\":\"new\",\"name\":\"job\",\"kind\":\"mutex\""));
        guard.release().expect("held");
        let gone = lines.find(|line| line.starts_with("{\"change\":\"gone\",\"name\":\"job\"")).expect("a line");
        assert!(!gone.is_empty());
        watcher.kill().expect("it runs");
        watcher.wait().expect("it is killed");
    });
}

#[test]
fn doctor_is_content_with_a_good_server_only() {
    let Some((_server, server_url)) = store("doctor_is_content_with_a_good_server_only") else { return };
    let url = server_url.as_str();
    let good = end(&mut lockkeeper(["doctor", "-S", url]));
    assert_eq!((good.code, good.stderr.as_str()), (Some(0), ""), "{good:?}");
    for about in ["store", "source    -S", "version", "role", "eviction", "rights", "clock"] {
        assert!(good.stdout.contains(&format!("ok  {about}")), "{about}: {}", good.stdout);
    }
    let evicting = crate::server::Server::start_with(crate::server::Flavour::Redis, &["--maxmemory-policy", "allkeys-lru"]);
    let bad = end(&mut lockkeeper(["doctor", "-S", &evicting.url(0)]));
    assert_eq!(bad.code, Some(69), "{bad:?}");
    assert!(bad.stdout.contains("BAD  eviction") && bad.stdout.contains("set noeviction"), "{bad:?}");
    assert!(bad.stdout.contains("ok   rights"), "the rest is told too: {bad:?}");
    for (url, code) in [(server_url.as_str(), 0), (evicting.url(0).as_str(), 69)] {
        let told = end(&mut lockkeeper(["doctor", "-S", url, "-o", "json"]));
        assert_eq!(told.code, Some(code), "{told:?}");
        let told: serde_json::Value = serde_json::from_str(&told.stdout).expect("a line of JSON");
        assert_eq!((&told["safe"], &told["named_by"]), (&(code == 0).into(), &"-S".into()), "{told}");
        let findings = told["findings"].as_array().expect("findings");
        let eviction = findings.iter().find(|found| found["about"] == "eviction").expect("it was looked at");
        assert_eq!(eviction["verdict"], if code == 0 { "ok" } else { "bad" }, "{told}");
        assert!(
            eviction["says"].is_string() && told["store"].as_str().is_some_and(|store| store.starts_with("redis://")),
            "{told}"
        );
    }
    let unreachable = end(&mut lockkeeper(["doctor", "-S", "redis://me:secret@127.0.0.1:1"]));
    assert_eq!(unreachable.code, Some(69));
    assert!(unreachable.stdout.contains("BAD") && !unreachable.stdout.contains("secret"), "{unreachable:?}");
    for private in ["memory:", "memory:mine", "redlock:memory:a,memory:b,memory:c"] {
        let private = end(&mut lockkeeper(["doctor", "-S", private]));
        assert!(private.code == Some(69) && private.stdout.contains("BAD  reach"), "{private:?}");
    }
}

#[test]
fn doctor_names_the_file_and_what_is_wrong_with_it() {
    on_sqlite("doctor_names_the_file_and_what_is_wrong_with_it", |url| {
        let good = end(&mut lockkeeper(["doctor", "-S", url]));
        assert_eq!((good.code, good.stderr.as_str()), (Some(0), ""), "{good:?}");
        assert!(good.stdout.contains(url) && good.stdout.contains("ok  file") && good.stdout.contains("ok  users"), "{good:?}");
        std::fs::write(url.trim_start_matches("sqlite:"), "no database at all, but a text of some length").expect("a file");
        let bad = end(&mut lockkeeper(["doctor", "-S", url]));
        assert!(bad.code == Some(69) && bad.stdout.contains("BAD  file"), "{bad:?}");
    });
}
