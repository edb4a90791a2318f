//! Servers that are not quite Redis: one command is missing. What locks need is named with a remedy, and all else goes on without it.

use std::collections::BTreeSet;
use std::time::Instant;

use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use lockkeeper::{Client, ErrorKind};

use crate::server::{Flavour, Server};
use crate::site::{Site, ms, plain_connection};

/// A server without a command. `None`: skipped, and said so.
fn without(command: &str) -> Option<Server> {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip(&format!("a server without {command}"), &why);
        return None;
    }
    let server = Server::start_with(Flavour::Redis, &["--rename-command", command, ""]);
    let refused = redis::cmd(command).arg("x").arg("x").query::<redis::Value>(&mut plain_connection(&server.url(0)));
    let words = refused.expect_err("it knows the command: nothing was tested").to_string();
    assert!(words.contains("unknown command"), "{words}");
    Some(server)
}

/// A lock, its release, and a waiter that is let in although it may have to find out by itself.
async fn works(command: &str, url: &str) {
    let client = Client::connect(url).await.unwrap_or_else(|error| panic!("without {command}: {error}"));
    let held = client.mutex("m").lock().await.unwrap_or_else(|error| panic!("without {command}: {error}"));
    let other = Client::connect(url).await.unwrap();
    let waiter = tokio::spawn(async move {
        let guard = other.mutex("m").lock().timeout(ms(5_000)).await?;
        guard.release().await
    });
    tokio::time::sleep(ms(100)).await;
    held.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap_or_else(|error| panic!("without {command}: {error}"));
    assert!(released.elapsed() < ms(1_500), "without {command}: let in after {:?}", released.elapsed());
    client.fair_mutex("f").lock().await.unwrap().release().await.unwrap();
    client.rwlock("rw").read().await.unwrap().release().await.unwrap();
    client.semaphore("s", 2).acquire().await.unwrap().release().await.unwrap();
    client.latch("l").try_set(1).await.unwrap();
    assert_eq!(client.latch("l").count_down().await.unwrap(), 0);
    assert!(client.inspect("m").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_push_is_refused_with_the_remedy_and_serves_with_it() {
    for command in OF_WAITERS {
        let Some(server) = without(command) else { return };
        let error = Client::connect(server.url(0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{command}: {error:?}");
        assert!(error.to_string().contains(command) && error.to_string().contains("?push=off"), "{command}: {error}");
        works(command, &format!("{}?push=off", server.url(0))).await;
    }
}

/// Those without which locks work, and waiters are notified or poll.
const SPARED: [&str; 11] =
    ["CLIENT", "EVAL", "EVALSHA", "INFO", "PUBLISH", "PUBSUB", "ROLE", "SCAN", "SCRIPT", "SELECT", "UNSUBSCRIBE"];

/// Those without which waiters can only poll, and the user has to say so.
const OF_WAITERS: [&str; 2] = ["HELLO", "SUBSCRIBE"];

/// The commands that the page on Redis allows to a user with the least rights; and CLIENT, which is used where it is allowed.
fn commands() -> BTreeSet<String> {
    let page = include_str!("../../../../docs/backends/redis.md");
    let rule = page.lines().find(|line| line.starts_with("ACL SETUSER worker")).expect("the rule");
    let allowed = rule.split(' ').filter_map(|word| word.strip_prefix('+'));
    let named = allowed.map(|command| command.split('|').next().unwrap_or_default().to_ascii_uppercase());
    named.chain(["CLIENT".to_owned()]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_command_is_either_spared_or_named_when_the_server_does_not_have_it() {
    let commands = commands();
    assert!(commands.len() >= 50 && SPARED.iter().chain(&OF_WAITERS).all(|command| commands.contains(*command)), "{commands:?}");
    for command in commands {
        let Some(server) = without(&command) else { return };
        let url = server.url(0);
        if SPARED.contains(&command.as_str()) {
            works(&command, &url).await;
            continue;
        }
        let error = Client::connect(&url).await.expect_err(&command);
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{command}: {error:?}");
        assert!(error.to_string().contains(&command), "{command}: {error}");
    }
}

/// Those that a managed service may refuse at its door while scripts still call them: whatever a client sends, each in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_command_on_the_wire_is_either_spared_or_named_when_a_service_refuses_it() {
    let Some(site) = Site::sound("a service that refuses a command").await else { return };
    site.proxy.commands().record();
    works("nothing", &site.url()).await;
    let mut sent = site.proxy.commands().seen();
    eprintln!("a client sends {sent:?}");
    // Sent where another one is missing.
    sent.insert("EVAL".to_owned());
    let usual = ["CLIENT", "EVALSHA", "HELLO", "INFO", "SCRIPT", "SUBSCRIBE", "TIME"];
    assert!(usual.iter().all(|command| sent.contains(*command)), "{sent:?}");
    let (mut spared, url) = (Vec::new(), site.url());
    for command in sent {
        site.tell("SCRIPT FLUSH");
        site.proxy.commands().refuse(Some(&command));
        match Client::connect(&url).await {
            Ok(_) => {
                works(&command, &url).await;
                spared.push(command);
            }
            Err(error) => {
                eprintln!("without {command}: {error}");
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{command}: {error:?}");
                let of_waiters = OF_WAITERS.contains(&&*command);
                let remedy = if of_waiters { "?push=off" } else { "Redis 6.2" };
                assert!(error.to_string().contains(&command) && error.to_string().contains(remedy), "{command}: {error}");
                if of_waiters {
                    works(&command, &format!("{url}?push=off")).await;
                }
            }
        }
    }
    eprintln!("it does without {spared:?}");
    assert!(["CLIENT", "EVALSHA", "INFO", "SCRIPT"].iter().all(|command| spared.contains(&(*command).to_owned())), "{spared:?}");
}

/// Redis before 7.0 carries out scripts that write also where too few replicas are there to have it. `doctor` says so there, and only there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_says_where_min_replicas_to_write_does_not_hold_for_scripts() {
    for (flavour, is_ignored) in [(Flavour::Redis62, true), (Flavour::Redis, false)] {
        if let Some(why) = Server::missing(flavour) {
            lockkeeper::conformance::skip("min-replicas-to-write", &why);
            continue;
        }
        // It has no replica at all.
        let server = Server::start_with(flavour, &["--min-replicas-to-write", "1"]);
        let found = RedisStore::examine(Config::parse(&server.url(0)).unwrap(), &Runtime::system()).await;
        let said = found.iter().any(|found| found.about == "replicas" && found.says.contains("ignores min-replicas-to-write"));
        assert_eq!(said, is_ignored, "{flavour:?}: {found:?}");
        let is_granted = match Client::connect(server.url(0)).await {
            Ok(client) => client.mutex("m").lock().timeout(ms(500)).await.is_ok(),
            Err(error) => panic!("{flavour:?}: {error:?}"),
        };
        assert_eq!(is_granted, is_ignored, "{flavour:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_from_a_server_without_scan_names_the_command() {
    let Some(server) = without("SCAN") else { return };
    let client = Client::connect(server.url(0)).await.unwrap();
    let held = client.mutex("m").lock().await.unwrap();
    let error = client.list("*").await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("SCAN"), "{error:?}");
    held.release().await.unwrap();
}
