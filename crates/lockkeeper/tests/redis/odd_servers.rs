//! Servers that are not quite Redis: one command is missing. What locks need is named with a remedy, and all else goes on without it.

use std::time::Instant;

use lockkeeper::{Client, ErrorKind};

use crate::server::{Flavour, Server};
use crate::site::{ms, plain_connection};

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
        let guard = other.mutex("m").lock().wait(ms(5_000)).await?;
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
async fn a_server_without_a_command_that_has_a_substitute_serves() {
    for command in ["EVALSHA", "EVAL", "SCRIPT", "INFO", "ROLE", "CLIENT", "PUBLISH"] {
        let Some(server) = without(command) else { return };
        works(command, &server.url(0)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_push_is_refused_with_the_remedy_and_serves_with_it() {
    for command in ["HELLO", "SUBSCRIBE"] {
        let Some(server) = without(command) else { return };
        let error = Client::connect(server.url(0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{command}: {error:?}");
        assert!(error.to_string().contains(command) && error.to_string().contains("?push=off"), "{command}: {error}");
        works(command, &format!("{}?push=off", server.url(0))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_command_that_locks_need_is_refused_by_its_name() {
    for command in ["TIME", "HSET", "PEXPIRE"] {
        let Some(server) = without(command) else { return };
        let error = Client::connect(server.url(0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{command}: {error:?}");
        assert!(error.to_string().contains(command), "{command}: {error}");
    }
}
