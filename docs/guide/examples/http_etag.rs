//! An HTTP service refuses a holder that was paused, by its `ETag`.
//!
//! Run with `cargo run -p lockkeeper-guide --example http_etag`. It serves on a free port of this machine.
#![allow(clippy::disallowed_methods, reason = "the service is a task of the program's own")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use lockkeeper::Client;
use lockkeeper_guide::Outcome;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The version of an account and its balance.
type Account = Arc<Mutex<(u64, i64)>>;

async fn read(State(account): State<Account>) -> impl IntoResponse {
    let (version, balance) = *account.lock().expect("no handler panics");
    ([(header::ETAG, format!("\"v{version}\""))], balance.to_string())
}

/// Compares the version and writes, in one step.
async fn write(State(account): State<Account>, headers: HeaderMap, body: String) -> StatusCode {
    let Ok(balance) = body.parse() else { return StatusCode::BAD_REQUEST };
    let mut account = account.lock().expect("no handler panics");
    let current = format!("\"v{}\"", account.0);
    if headers.get(header::IF_MATCH).is_some_and(|wanted| *wanted != current) {
        return StatusCode::PRECONDITION_FAILED;
    }
    *account = (account.0 + 1, balance);
    StatusCode::NO_CONTENT
}

/// The client's side of HTTP, as small as can be.
struct Http(std::net::SocketAddr);

impl Http {
    /// Sends a request; gives the status, the `ETag` and the body.
    async fn send(&self, method: &str, if_match: Option<&str>, body: &str) -> Outcome<(u16, String, String)> {
        let condition = if_match.map_or_else(String::new, |tag| format!("If-Match: {tag}\r\n"));
        let length = body.len();
        let request = format!(
            "{method} /accounts/7 HTTP/1.1\r\nHost: bank\r\nConnection: close\r\n{condition}Content-Length: {length}\r\n\r\n{body}"
        );
        let mut stream = TcpStream::connect(self.0).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no end of the head")?;
        let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_default();
        Ok((status, tag.to_owned(), body.to_owned()))
    }

    /// Balance and `ETag`.
    async fn read(&self) -> Outcome<(i64, String)> {
        let (_, tag, balance) = self.send("GET", None, "").await?;
        Ok((balance.parse()?, tag))
    }

    async fn write(&self, balance: i64, if_match: Option<&str>) -> Outcome<u16> {
        Ok(self.send("PUT", if_match, &balance.to_string()).await?.0)
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let bank = Http(listener.local_addr()?);
    let service = Router::new().route("/accounts/7", get(read).put(write)).with_state(Account::default());
    tokio::spawn(async move { axum::serve(listener, service).await });
    let mutex = Client::connect("memory:").await?.mutex("account:7");

    for conditional in [false, true] {
        bank.write(100, None).await?;
        let first = mutex.lock().lease(Duration::from_millis(500)).await?;
        let (seen, early) = bank.read().await?;
        first.lost().await; // The first holder is paused here, until its lease is over.
        let second = mutex.lock().await?;
        let (balance, tag) = bank.read().await?;
        bank.write(balance + 10, Some(&tag)).await?;
        second.release().await?;
        // It wakes up and goes on.
        let status = bank.write(seen + 5, conditional.then_some(early.as_str())).await?;
        let (balance, _) = bank.read().await?;
        match conditional {
            false => println!("naive:    PUT by the late holder: {status}; 100 + 10 + 5 = {balance}"),
            true => println!("repaired: PUT with If-Match by the late holder: {status}; 100 + 10 = {balance}"),
        }
    }
    Ok(())
}
