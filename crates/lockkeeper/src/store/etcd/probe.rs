//! Why a client could not connect, found by connecting once more without gRPC: TLS on one side only, or a server that is no etcd.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Config;
use crate::error::{Error, ErrorKind};
use crate::runtime::within;
use crate::store::kit::tls_probe::expects_tls;

/// How long the questions to one member may take.
const LIMIT: Duration = Duration::from_secs(2);

/// How long a server may take to answer without TLS. One that expects TLS waits for more.
const PLAIN_ANSWER: Duration = Duration::from_millis(500);

/// So much of a strange answer is shown.
const SHOWN: usize = 60;

/// The error of connecting in better words, where a member shows what is wrong; else as it was.
pub(super) async fn explained(config: &Config, error: Error) -> Error {
    for host in &config.members {
        if let Some((kind, why)) = within(LIMIT, Box::pin(trouble(config, host))).await.flatten() {
            return Error::new(kind.unwrap_or(error.kind()), format!("cannot use {config}: {why}")).with_source(error);
        }
    }
    error
}

/// What is wrong, and the kind of the error; `None`: as before.
async fn trouble(config: &Config, host: &str) -> Option<(Option<ErrorKind>, String)> {
    let said = version(host).await?;
    let is_etcd = said.contains("etcdserver");
    let wrong = |why: String| Some((Some(ErrorKind::Config), why));
    if is_etcd && config.tls.is_some() {
        let remedy = "write etcd:// instead of etcds://, or the port of a --listen-client-urls with https://";
        return wrong(format!("{host} does not speak TLS on this port; {remedy}"));
    }
    if is_etcd {
        return None;
    }
    if expects_tls(host).await {
        let remedy = "write etcds:// and ?ca=FILE, or the port of a --listen-client-urls with http://";
        return if config.tls.is_none() { wrong(format!("{host} expects TLS on this port; {remedy}")) } else { None };
    }
    let line: String = said.lines().next()?.chars().take(SHOWN).collect();
    let why = format!("{host} is no etcd server: it says {line:?}; correct the host and the port (etcd's is 2379)");
    // What speaks HTTP may be a proxy before etcd. It may be right later.
    Some(((!said.starts_with("HTTP/")).then_some(ErrorKind::Config), why))
}

/// What a server answers without TLS when it is asked for its version; `None` if it cannot be reached.
async fn version(host: &str) -> Option<String> {
    let mut stream = TcpStream::connect(host).await.ok()?;
    // One that talks first may have closed the connection already, and is heard all the same.
    let _ = stream.write_all(b"GET /version HTTP/1.0\r\n\r\n").await;
    let mut said = Vec::new();
    let reading = async { while stream.read_buf(&mut said).await.is_ok_and(|more| more > 0) && said.len() < 64 * 1024 {} };
    within(PLAIN_ANSWER, Box::pin(reading)).await;
    Some(String::from_utf8_lossy(&said).into_owned())
}
