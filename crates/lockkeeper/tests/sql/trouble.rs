//! Bad input and servers in trouble: a typed error in words, nothing lost, and it recovers.

use std::time::{Duration, Instant};

use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::poll::async_until_within;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::bench::{self, Bench, is_granted, release};

const LONG: Duration = Duration::from_secs(20);

async fn client(url: &str) -> Client {
    Client::builder().lease(LONG).connect(url).await.expect("a running server")
}

/// The bench's URL for another user.
fn as_user(bench: &Bench, login: &str) -> String {
    bench.url.replace(&format!("{}@", bench::ADMIN), &format!("{login}@"))
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_the_right_one_works() {
    let Some(bench) = Bench::open("a wrong password").await else { return };
    bench.create_user("knows", "right", 9).await;
    for login in ["knows:wr0ng", "knows"] {
        let error = Client::connect(&as_user(&bench, login)).await.expect_err(login);
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert!(error.to_string().contains("password") && !format!("{error:?}").contains("wr0ng"), "{error:?}");
    }
    let knows = client(&as_user(&bench, "knows:right")).await;
    knows.mutex("m").lock().await.unwrap().release().await.unwrap();
}

/// Accepts connections for as long as the test runs; says something at once, or after it was spoken to.
async fn foreign(greeting: &'static str, answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut caller, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = caller.write_all(greeting.as_bytes()).await;
                let mut heard = [0; 512];
                while matches!(caller.read(&mut heard).await, Ok(1..)) && !answer.is_empty() {
                    let _ = caller.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_server_of_a_foreign_kind_is_refused_in_words() {
    let Some(bench) = Bench::open("a foreign server").await else { return };
    let mut ports = vec![
        ("ssh", foreign("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", "").await),
        ("http", foreign("", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await),
        ("redis", foreign("", "-ERR unknown command\r\n").await),
        ("ftp", foreign("220 (vsFTPd 3.0.3)\r\n", "530 Please login with USER and PASS.\r\n").await),
    ];
    let other = bench::other_kind();
    ports.extend(other.as_ref().map(|(_, port)| ("the other SQL server", *port)));
    for (kind, port) in ports {
        let plain = bench.url.replace(&format!(":{}/", bench.server.port), &format!(":{port}/"));
        for url in [bench::with_tls(&plain), plain] {
            let began = Instant::now();
            let error = Client::connect(&format!("{url}{}", bench::SHORT)).await.expect_err(kind);
            println!("{kind}: {error}");
            assert!(matches!(error.kind(), ErrorKind::Config | ErrorKind::Unavailable), "{kind}: {error:?}");
            assert!(error.to_string().contains(bench::KIND) && error.to_string().contains(&port.to_string()), "{kind}: {error}");
            assert!(began.elapsed() < Duration::from_secs(10), "{kind}: told after {:?}", began.elapsed());
        }
    }
    client(&bench.url).await.mutex("m").lock().await.unwrap().release().await.unwrap();
}

/// A column is dropped under a client that runs: it is told so, and so is one that comes. Both work once the column is there again.
#[tokio::test]
async fn a_table_of_another_shape_is_told_and_can_be_mended() {
    let Some(bench) = Bench::open("another shape").await else { return };
    assert!(is_granted(bench.store.acquire(bench.ask("m", 1)).await.unwrap()));
    bench.run("ALTER TABLE lockkeeper_head DROP COLUMN watcher").await;
    for error in [
        bench.store.release(release("m", 1)).await.map(drop).unwrap_err(),
        Client::connect(&bench.url).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
        assert!(error.to_string().contains("has another shape") && error.to_string().contains("watcher"), "{error}");
    }
    bench.run("ALTER TABLE lockkeeper_head ADD COLUMN watcher bigint NOT NULL DEFAULT 0").await;
    drop(client(&bench.url).await);
    assert!(bench.store.release(release("m", 1)).await.unwrap().held, "the hold was not lost");
}

/// A user whose connections are all in use: a second client is refused, the first one loses nothing, and the next one gets in.
#[tokio::test]
async fn too_many_connections_are_told_and_cost_no_lock() {
    let Some(bench) = Bench::open("too many connections").await else { return };
    bench.create_user("few", "right", 2).await;
    let url = as_user(&bench, "few:right");
    let first = Client::builder().lease(Duration::from_secs(3)).connect(&url).await.unwrap();
    let guard = first.mutex("m").lock().await.unwrap();
    // The first client has two connections when it has renewed: one for requests, and the keeper's.
    let all_in_use = async || bench.connections_of("few").await == 2;
    async_until_within(LONG, "both connections are in use", all_in_use).await;
    let error = Client::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("accepts no connection now"), "{error}");
    tokio::time::timeout(Duration::from_secs(4), guard.lost()).await.expect_err("renewed beyond its lease");
    guard.release().await.expect("never lost");
    drop(first);
    async_until_within(LONG, "there is room again", async || Client::connect(&url).await.is_ok()).await;
}

/// A statement that the server ends because it took too long: nothing was done, and the next one is carried out.
#[tokio::test]
async fn a_statement_that_is_ended_did_nothing_and_the_next_one_works() {
    let Some(bench) = Bench::open("a statement timeout").await else { return };
    let Some(url) = bench.with_statement_limit().await else { return };
    let store = bench::connect(&url, &bench.runtime).await;
    // Somebody is about to create the same row, so ours has to wait for longer than the limit.
    let other = bench.plain().await;
    bench::begin_with_new_row(&other, "m").await;
    // The control has no such limit: it is granted when the row is free.
    let (control, asked) = (bench.another().await, bench.ask("m", 2));
    let waiting = tokio::spawn({
        let control = std::sync::Arc::clone(&control);
        async move { control.acquire(asked).await }
    });
    let error = store.acquire(bench.ask("m", 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("cannot do it now"), "{error}");
    bench::roll_back(&other).await;
    assert!(is_granted(waiting.await.unwrap().unwrap()), "without a limit it waits");
    assert!(control.release(release("m", 2)).await.unwrap().held);
    // A machine with little time may take longer than the limit for any statement.
    let granted = async || store.acquire(bench.ask("m", 1)).await.is_ok_and(is_granted);
    async_until_within(LONG, "granted by the same client", granted).await;
    let released = async || store.release(release("m", 1)).await.is_ok();
    async_until_within(LONG, "released by the same client", released).await;
}
