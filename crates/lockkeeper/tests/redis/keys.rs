//! Which keys scripts use beside the one that they declare: those that `docs/backends/redis.md` lists, and no others.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use lockkeeper::{Client, ErrorKind};

use crate::site::{Site, ms, until};

const DOCUMENT: &str = include_str!("../../../../docs/backends/redis.md");

/// Every command that scripts send, as its words.
fn monitored(port: u16) -> (std::sync::mpsc::Receiver<Vec<String>>, TcpStream) {
    let (send, receive) = std::sync::mpsc::channel();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"MONITOR\r\n").unwrap();
    let (lines, stop) = (BufReader::new(stream.try_clone().unwrap()).lines(), stream);
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some((_, words)) = line.split_once(" lua] ") {
                let _ = send.send(words.split('"').skip(1).step_by(2).map(str::to_owned).collect());
            }
        }
    });
    (receive, stop)
}

/// The shape of a key of this name: what changes from owner to owner is left out.
fn shape(key: &str, name: &str) -> String {
    let shape = key.replace(&format!("{{{name}}}"), "{NAME}");
    if let Some((before, after)) = shape.split_once(":rwlock_timeout:") {
        let owner = before.strip_prefix("{NAME}:").unwrap_or(before);
        assert!(owner.len() > 36 && after.parse::<u32>().is_ok(), "{key}");
        return "{NAME}:OWNER:rwlock_timeout:N".to_owned();
    }
    match shape.split_once("lockkeeper:request:{NAME}:") {
        Some(("", _)) => "lockkeeper:request:{NAME}:ID".to_owned(),
        _ if shape == name => "NAME".to_owned(),
        _ => shape,
    }
}

/// The whole family, contended and not, once each.
async fn use_everything(client: &Client, other: &Client, name: &str) {
    let wait = ms(30);
    let (mutex, fair) = (client.mutex(name), client.fair_mutex(name));
    let guard = mutex.lock().await.unwrap();
    other.mutex(name).lock().timeout(wait).await.unwrap_err();
    guard.extend(ms(60_000)).await.unwrap();
    other.fair_mutex(name).lock().timeout(wait).await.unwrap_err();
    guard.release().await.unwrap();
    let guard = fair.lock().await.unwrap();
    other.fair_mutex(name).lock().timeout(wait).await.unwrap_err();
    client.inspect(name).await.unwrap();
    guard.release().await.unwrap();
    let rwlock = client.rwlock(name);
    let readers = (rwlock.read().await.unwrap(), other.rwlock(name).read().await.unwrap());
    other.rwlock(name).write().timeout(wait).await.unwrap_err();
    readers.0.extend(ms(60_000)).await.unwrap();
    client.inspect(name).await.unwrap();
    readers.0.release().await.unwrap();
    readers.1.release().await.unwrap();
    rwlock.write().await.unwrap().downgrade().await.unwrap().release().await.unwrap();
    let _held = rwlock.read().await.unwrap();
    client.force_release(name).await.unwrap();
    let semaphore = client.semaphore(name, 2);
    let permit = semaphore.acquire().await.unwrap();
    semaphore.resize(3).await.unwrap();
    permit.release().await.unwrap();
    semaphore.remove().await.unwrap();
    let latch = client.latch(name);
    latch.try_set(1).await.unwrap();
    latch.count_down().await.unwrap();
    client.multi_lock([name]).lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_use_the_keys_that_the_document_lists() {
    let Some(site) = Site::sound("keys of scripts").await else { return };
    let (client, other) = (site.other().await, site.other().await);
    let (commands, stop) = monitored(site.server.port);
    let mut listed = false;
    until("the monitor runs", || {
        redis::cmd("EVAL").arg("return redis.call('GET', KEYS[1])").arg(1).arg("probe").exec(&mut site.eyes()).unwrap();
        listed |= commands.try_recv().is_ok();
        listed
    })
    .await;
    use_everything(&client, &other, "k").await;
    redis::cmd("EVAL").arg("return redis.call('GET', KEYS[1])").arg(1).arg("end").exec(&mut site.eyes()).unwrap();
    let mut shapes = BTreeSet::new();
    while let Ok(words) = commands.recv_timeout(ms(10_000)) {
        let [command, key, ..] = &words[..] else { continue };
        if key == "end" {
            break;
        }
        let keyless = ["PUBLISH", "PUBSUB", "TIME"].iter().any(|word| command.eq_ignore_ascii_case(word));
        if !keyless && key != "probe" {
            shapes.insert(shape(key, "k"));
        }
    }
    stop.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(shapes.len() >= 9, "this cannot be all: {shapes:?}");
    let section = DOCUMENT.split("\n## ").find(|section| section.contains("allow-undeclared-keys")).expect("it is documented");
    let missing: Vec<_> = shapes.iter().filter(|shape| !section.contains(&format!("`{shape}`"))).collect();
    assert!(missing.is_empty(), "the document does not list {missing:?}");
}

/// What Dragonfly refuses, as `MONITOR` shows it: a script that uses a key that it did not declare, and does not say so in its first line.
#[derive(Default)]
struct Strict {
    /// Scripts that may use other keys, by their hash.
    allowed: BTreeSet<String>,
    /// The script that runs, with its declared keys.
    running: Option<(String, BTreeSet<String>)>,
    /// How many commands used keys that were not declared, in scripts that may.
    undeclared: usize,
    refused: Vec<String>,
}

impl Strict {
    fn reads(&mut self, line: &str) {
        // Our scripts and keys have no quotation marks in them.
        let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        let Some((command, rest)) = words.split_first() else { return };
        if line.contains(" lua] ") {
            let keyless = ["PUBLISH", "PUBSUB", "TIME"].iter().any(|word| command.eq_ignore_ascii_case(word));
            let (Some((script, keys)), Some(key)) = (&self.running, rest.first()) else { return };
            if !keyless && !keys.contains(*key) {
                match self.allowed.contains(script) {
                    true => self.undeclared += 1,
                    false => self.refused.push(format!("{command} {key} in {script}")),
                }
            }
            return;
        }
        let script = match (command.to_uppercase().as_str(), rest) {
            ("EVAL", [text, ..]) => self.learns(text),
            ("EVALSHA", [hash, ..]) => (*hash).to_owned(),
            ("SCRIPT", [_, text]) => return drop(self.learns(text)),
            _ => return self.running = None,
        };
        let count = rest.get(1).and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
        self.running = Some((script, rest.iter().skip(2).take(count).map(|key| (*key).to_owned()).collect()));
    }

    /// Notes a script whose text is seen; its hash.
    fn learns(&mut self, text: &str) -> String {
        let text = text.replace("\\n", "\n").replace("\\\\", "\\");
        let hash = redis::Script::new(&text).get_hash().to_owned();
        if text.starts_with("--!df flags=allow-undeclared-keys\n") {
            self.allowed.insert(hash.clone());
        }
        hash
    }
}

/// Dragonfly runs every script of ours with its default settings: none uses a key that is neither declared nor allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_script_uses_a_key_that_dragonfly_would_refuse() {
    let Some(site) = Site::sound("a server that refuses keys").await else { return };
    let (send, lines) = std::sync::mpsc::channel();
    let mut stream = TcpStream::connect(("127.0.0.1", site.server.port)).unwrap();
    stream.write_all(b"MONITOR\r\n").unwrap();
    let mut read = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    assert_eq!(read.next().as_deref(), Some("+OK"));
    std::thread::spawn(move || read.for_each(|line| drop(send.send(line))));
    // The control: the same script declares its key, does not, and says that it does not.
    let get = |first: &str, keys: &[&str]| {
        let text = format!("{first}return redis.call('GET', ARGV[1])");
        redis::cmd("EVAL").arg(text).arg(keys.len()).arg(keys).arg("probe").exec(&mut site.eyes()).unwrap();
    };
    get("", &["probe"]);
    get("", &[]);
    get("--!df flags=allow-undeclared-keys\n", &[]);
    let (client, other) = (site.other().await, site.other().await);
    use_everything(&client, &other, "k").await;
    redis::cmd("ECHO").arg("end").exec(&mut site.eyes()).unwrap();
    let mut strict = Strict::default();
    loop {
        let line = lines.recv_timeout(ms(10_000)).expect("the end is seen");
        if line.contains("\"ECHO\" \"end\"") {
            break;
        }
        strict.reads(&line);
    }
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    let (control, ours): (Vec<&String>, Vec<&String>) = strict.refused.iter().partition(|refused| refused.contains("probe"));
    assert_eq!(control.len(), 1, "the control was not caught, or a sound script was: {control:?}");
    assert!(ours.is_empty(), "{ours:#?}");
    assert!(strict.undeclared > 50, "scripts did not run: nothing was tested ({})", strict.undeclared);
}

/// A name may begin as our own keys do, and is listed as any other; one that is such a key is refused, and the key is not touched.
#[tokio::test]
async fn a_lock_whose_name_begins_as_our_keys_is_listed() {
    let Some(site) = Site::sound("names that begin as our keys").await else { return };
    let client = site.other().await;
    let guard = client.mutex("lockkeeper:nightly").lock().await.unwrap();
    let found = client.list("lockkeeper:*").await.unwrap();
    let names: Vec<_> = found.iter().map(|lock| lock.name.as_str()).collect();
    assert_eq!(names, ["lockkeeper:nightly"]);
    guard.release().await.unwrap();
    let error = client.mutex("lockkeeper:token").lock().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
    assert!(error.to_string().contains("keeps for itself"), "{error}");
    client.mutex("orders").lock().await.expect("the token counter is as it was").release().await.unwrap();
}
