//! Which keys scripts use beside the one that they declare: those that `docs/backends/redis.md` lists, and no others.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use lockkeeper::Client;

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
