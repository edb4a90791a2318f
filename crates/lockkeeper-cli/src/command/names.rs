//! `lockkeeper __names`: the names that can stand at the end of a command line, for the completions of a shell. Every failure is silence: it
//! would disturb the prompt. The line comes by stdin: others can see the arguments of a process, and there may be a password in it.

use std::io::Read;
use std::time::Duration;

use clap::Command;
use lockkeeper::Client;
use tokio::time::timeout;

use super::{block_on, print};
use crate::args::command;
use crate::store::{StoreOption, missing};
use crate::terminal;

/// The word that calls it. It is no verb: nobody types it.
pub(crate) const WORD: &str = "__names";

/// A shell waits no longer.
const LIMIT: Duration = Duration::from_secs(1);

/// More names help nobody.
const MOST: usize = 1000;

/// The verbs whose first word is a name.
const VERBS: [&str; 6] = ["run", "hold", "show", "release", "semaphore", "latch"];

/// A longer line has no name at its end that is worth the work.
const LONGEST: u64 = 65_536;

/// Prints the names that the line can go on with.
pub(crate) fn run(line: impl Read) -> u8 {
    let mut text = Vec::new();
    let whole = line.take(LONGEST).read_to_end(&mut text).is_ok();
    // fish ends the line that it passes on. Elsewhere an end of line begins another command.
    let line = text.strip_suffix(b"\n").unwrap_or(&text);
    if let Some(asked) = whole.then(|| Asked::of(&words(&String::from_utf8_lossy(line)))).flatten() {
        let _ = block_on(async move {
            let found = timeout(LIMIT, asked.names()).await.ok().flatten().unwrap_or_default();
            print(found)
        });
    }
    0
}

/// A name that is being typed.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    store: Option<String>,
    beginning: String,
}

impl Asked {
    /// What the last of these words asks for; `None` if no name can stand there.
    fn of(words: &[String]) -> Option<Self> {
        let begin = words.iter().position(|word| word.rsplit('/').next() == Some("lockkeeper"))?;
        let (beginning, before) = words[begin + 1..].split_last()?;
        let line = command();
        let (mut below, mut verb, mut store) = (&line, None, None);
        let mut before = before.iter();
        while let Some(word) = before.next() {
            if word == "--" {
                continue;
            }
            if word.starts_with('-') {
                if let Some((option, value)) = option(&line, below, word) {
                    let value = if value.is_empty() { before.next()?.as_str() } else { value };
                    store = if option == "store" { Some(value.to_owned()) } else { store };
                }
            } else {
                // A word that is no verb is the name: what follows is something else.
                below = below.find_subcommand(word)?;
                verb = verb.or(Some(below.get_name()));
            }
        }
        let takes_name = VERBS.contains(&verb?) && !below.has_subcommands() && !beginning.starts_with('-');
        takes_name.then(|| Self { store, beginning: beginning.clone() })
    }

    async fn names(&self) -> Option<Vec<String>> {
        let store = StoreOption::named(self.store.clone());
        if would_create(&store.find().ok()?.url) {
            return None;
        }
        let client = store.connect(Client::builder()).await.ok()?;
        let mut pattern = String::new();
        for character in self.beginning.chars() {
            if matches!(character, '*' | '?' | '\\') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push('*');
        let found = client.list(&pattern).limit(MOST).await.ok()?;
        Some(found.into_iter().map(|found| found.name.to_string()).filter(|name| is_offered(name)).collect())
    }
}

/// Whether connecting may make something that is not there yet. Nothing is made before the line is entered.
fn would_create(url: &str) -> bool {
    const MADE: [&str; 6] = ["postgres:", "postgresql:", "mysql:", "mariadb:", "etcd:", "etcds:"];
    missing(url).is_some() || MADE.iter().any(|scheme| url.starts_with(scheme))
}

/// A name that would be an option of the command, or would show as something else than it is, is not offered.
fn is_offered(name: &str) -> bool {
    !name.starts_with('-') && !name.contains(terminal::is_unsafe)
}

/// The option that a word is, if it takes a value, and the value if it is in the same word.
fn option<'a>(line: &Command, below: &Command, word: &'a str) -> Option<(String, &'a str)> {
    let options = || below.get_arguments().chain(line.get_arguments()).filter(|option| option.get_action().takes_values());
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').unwrap_or((long, ""));
        return options().find(|option| option.get_long() == Some(name)).map(|option| (option.get_id().to_string(), value));
    }
    let short = word.chars().nth(1)?;
    let value = &word[1 + short.len_utf8()..];
    options().find(|option| option.get_short() == Some(short)).map(|option| (option.get_id().to_string(), value))
}

/// The words of the last command of a line, without quotes and backslashes. The last word may be empty.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quote, mut characters) = (None, line.chars());
    let add = |words: &mut Vec<String>, character: char| {
        if let Some(last) = words.last_mut() {
            last.push(character);
        }
    };
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), character) if character == open => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None | Some('"'), '\\') => {
                if let Some(next) = characters.next() {
                    add(&mut words, next);
                }
            }
            (None, ' ' | '\t') if words.last().is_some_and(String::is_empty) => {}
            (None, ' ' | '\t') => words.push(String::new()),
            (None, ';' | '|' | '&' | '\n') => words = vec![String::new()],
            (_, character) => add(&mut words, character),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_and_no_invisible_mark_is_offered() {
        assert!(is_offered("orders:42") && is_offered("o d"));
        assert!(!is_offered("--yes") && !is_offered("-Sredis://evil") && !is_offered("a\u{202e}b") && !is_offered("a\u{1b}[2J"));
    }

    #[test]
    fn nothing_is_made_by_a_completion() {
        assert!(would_create("sqlite:/tmp/no such file.db") && would_create("postgres://h/d") && would_create("mysql://h/d"));
        assert!(!would_create("sqlite:/proc/self/stat") && !would_create("redis://h"));
    }

    #[test]
    fn a_name_is_asked_for_where_one_can_stand() {
        let asked = |line: &str| Asked::of(&words(line)).map(|asked| (asked.beginning, asked.store));
        let name = |beginning: &str| Some((beginning.to_owned(), None));
        assert_eq!(asked("lockkeeper show "), name(""));
        assert_eq!(asked("cd x && sudo /usr/bin/lockkeeper release --yes ord"), name("ord"));
        assert_eq!(asked("lockkeeper run -w 3 -n --lease=9s orders:4"), name("orders:4"));
        assert_eq!(asked("lockkeeper latch wait 'a b"), name("a b"));
        let store = |beginning: &str, url: &str| Some((beginning.to_owned(), Some(url.to_owned())));
        assert_eq!(asked("lockkeeper -S redis://h:1 show a"), store("a", "redis://h:1"));
        assert_eq!(asked("lockkeeper show -Ssqlite:x a"), store("a", "sqlite:x"));
        assert_eq!(asked("lockkeeper run --store=sqlite:x "), store("", "sqlite:x"));
        for none in [
            "lockkeeper ",
            "lockkeeper sh",
            "lockkeeper show a ",
            "lockkeeper run job tr",
            "lockkeeper show -",
            "lockkeeper latch ",
            "lockkeeper run -w ",
            "ls ",
        ] {
            assert_eq!(asked(none), None, "{none}");
        }
    }
}
