//! The blocks of code that are more than shell recipes: other chapters' commands, a Makefile, a unit, an image, a crontab, configuration files.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};

use lockkeeper::Client;
use lockkeeper_testkit::poll::until_within;
use std::time::Duration;

use crate::{Place, SHELL};

const INTRODUCTION: &str = include_str!("../../../../docs/guide/src/introduction.md");
const OPERATING: &str = include_str!("../../../../docs/guide/src/operating.md");
const FENCING: &str = include_str!("../../../../docs/guide/src/fencing.md");
const CONFIG: &str = include_str!("../../../../docs/config.md");

const LIMIT: Duration = Duration::from_secs(30);

/// The blocks of a language, in their order.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    page.split(&format!("```{language}\n")).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

#[track_caller]
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let [only] = blocks(page, language)[..] else { panic!("there is more or less than one block of {language}") };
    only
}

/// What follows this word at the beginning of a line of the block.
#[track_caller]
fn after<'a>(block: &'a str, word: &str) -> &'a str {
    block.lines().find_map(|line| line.trim_start().strip_prefix(word)).unwrap_or_else(|| panic!("no {word} in {block}"))
}

impl Place {
    /// A command that stands in for the reader's own. It says what it is called and which lock it runs under, and then runs `script`.
    fn stub(&self, name: &str, script: &str) {
        let file = self.0.join(name);
        fs::write(&file, format!("#!/bin/sh\necho \"{name} under $LOCKKEEPER_NAME\"\n{script}\n")).expect("a script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its mode");
    }

    /// The text with the places of a real machine replaced by this folder.
    fn here(&self, text: &str) -> String {
        let folder = self.0.display().to_string();
        text.replace("/usr/local/bin", &format!("{folder}/bin")).replace("/var/lib/jobs", &folder)
    }

    /// Runs a script that must end well, and gives what it prints.
    #[track_caller]
    fn printed(&self, script: &str) -> String {
        let ended = self.sh(script);
        let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success(), "{}:\n{script}\n{out}{err}", ended.status);
        out.into_owned()
    }

    /// Starts a holder of the name, and waits until it has it. It ends when it is dropped.
    fn hold(&self, name: &str) -> Ending {
        let mut holder = self.command("lockkeeper");
        let mut child = holder.args(["hold", name]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.contains(name), "{line}");
        Ending(child)
    }
}

/// A process that is told to end when this is dropped, so that it releases what it holds.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

#[test]
fn the_commands_of_other_chapters_run() {
    let place = Place::new("chapters");
    assert_eq!(place.printed(block(INTRODUCTION, "sh")), "only one of us at a time\n");
    let printed = place.printed(block(FENCING, "sh"));
    let token = printed.trim_end().strip_prefix("token: ").and_then(|token| token.parse::<u64>().ok());
    assert!(token.is_some(), "{printed}");
    let _holder = place.hold("orders:42");
    until_within(LIMIT, "the holder is known", || place.printed("lockkeeper list").contains(" lockkeeper "));
    let printed = place.printed(&format!("set -e\n{}", block(OPERATING, "sh")));
    for part in ["ok  store", "NAME", "WAITERS", "orders:42  mutex", "holders:", "TOKEN"] {
        assert!(printed.contains(part), "{part} is not in:\n{printed}");
    }
}

#[test]
fn the_makefile_deploys_under_the_lock() {
    let place = Place::new("make");
    fs::write(place.0.join("Makefile"), block(SHELL, "make")).expect("a file");
    place.stub("deploy.sh", "lockkeeper show deploy-production >/dev/null && echo locked");
    let printed = place.printed("make");
    assert!(printed.ends_with("deploy.sh under deploy-production\nlocked\n"), "{printed}");
    // As long as another one deploys it waits; here for a shorter time than on the page.
    let _holder = place.hold("deploy-production");
    let makefile = block(SHELL, "make").replace("-w 10m", "-w 0.2");
    fs::write(place.0.join("Makefile"), makefile).expect("a file");
    let ended = place.sh("make");
    let err = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && err.contains("is held by ") && err.contains("Error 75"), "{err}");
}

#[test]
fn the_unit_starts_its_command_and_a_second_start_is_no_failure() {
    let place = Place::new("unit");
    let unit = block(SHELL, "ini");
    place.stub("bin/sync", "");
    // systemd splits at spaces, and uses no shell.
    let command = place.here(after(unit, "ExecStart="));
    let words: Vec<&str> = command.split(' ').collect();
    let (variable, store) = after(unit, "Environment=").split_once('=').expect("a variable");
    let start = || {
        let mut unit = place.command(words[0]);
        unit.args(&words[1..]).env(variable, place.here(store)).output().expect("it starts")
    };
    let first = start();
    assert_eq!(String::from_utf8_lossy(&first.stdout), "bin/sync under sync\n", "{first:?}");
    assert!(first.status.success(), "{first:?}");
    let _holder = place.hold("sync");
    let second = start();
    assert_eq!(second.status.code(), after(unit, "SuccessExitStatus=").parse().ok(), "{second:?}");
}

#[test]
fn the_image_and_the_pod_run_their_commands() {
    let place = Place::new("image");
    place.stub("migrate", "");
    let words = |list: &str| serde_json::from_str::<Vec<String>>(list).expect("a list of words");
    let image = block(SHELL, "dockerfile");
    let of_image = [words(after(image, "ENTRYPOINT ")), words(after(image, "CMD "))].concat();
    let of_pod = words(after(block(SHELL, "yaml"), "command: "));
    for (words, name) in [(of_image, "migrate"), (of_pod, "shop-migrate")] {
        let ended = place.command(&words[0]).args(&words[1..]).output().expect("it starts");
        assert_eq!(String::from_utf8_lossy(&ended.stdout), format!("migrate under {name}\n"), "{ended:?}");
        assert!(ended.status.success(), "{ended:?}");
    }
    let (variable, store) = after(image, "ENV ").split_once('=').expect("a variable");
    assert!(variable == "LOCKKEEPER_STORE" && Client::setup_sql(store).is_ok(), "{store}");
}

#[test]
fn the_line_of_the_crontab_runs_on_one_host_and_is_skipped_on_the_others() {
    let place = Place::new("cron");
    place.stub("bin/report", "");
    let crontab = block(SHELL, "crontab");
    let (variable, store) = crontab.lines().next().and_then(|line| line.split_once('=')).expect("a variable");
    assert!(variable == "LOCKKEEPER_STORE" && Client::setup_sql(store).is_ok(), "{store}");
    // Five fields say when; cron gives the rest to a shell.
    let line = crontab.lines().nth(1).expect("a line");
    let fields: Vec<&str> = line.split_whitespace().collect();
    let time = "0123456789*/,-";
    assert!(fields[..5].iter().all(|field| field.chars().all(|letter| time.contains(letter))), "{line}");
    let command = place.here(&fields[5..].join(" "));
    let mut first = place.command("sh");
    let mut first = Ending(first.args(["-c", &format!("exec {command}")]).stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut said = String::new();
    let mut output = BufReader::new(first.0.stdout.take().expect("piped"));
    output.read_line(&mut said).expect("a line");
    assert_eq!(said, "bin/report under nightly-report\n");
    // The job has ended, and its lock is held for the rest of the minute.
    let second = place.sh(&command);
    let err = String::from_utf8_lossy(&second.stderr);
    assert!(second.status.success() && second.stdout.is_empty() && err.contains("is held by "), "{second:?}");
    drop(first);
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("it has ended");
    assert_eq!(rest, "", "it ran once");
}

#[test]
fn every_configuration_file_of_the_page_is_one() {
    let place = Place::new("config");
    let file = place.0.join("lockkeeper.toml");
    let load = |text: &str| {
        fs::write(&file, text).expect("a file");
        // A file with a password in it is for its owner alone.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode");
        Client::setup_sql(format!("config:{}", file.display())).map(drop).map_err(|error| error.to_string())
    };
    fs::write(place.0.join("redisson.yaml"), "singleServerConfig:\n  address: \"redis://127.0.0.1:6379\"\n").expect("a file");
    let all = blocks(CONFIG, "toml");
    assert!(all.len() >= 5, "only {} blocks were found", all.len());
    for text in all {
        // The variables that a service would have.
        let text = text.replace("${REDIS_PASSWORD}", "${LOCKKEEPER_NONE:-secret}");
        assert_eq!(load(&text), Ok(()), "{text}");
        let unknown = load(&format!("colour = 3\n{text}")).expect_err("a setting that does not exist");
        assert!(unknown.contains("colour"), "{unknown}");
    }
}
