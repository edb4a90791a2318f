//! Connections of our own, beside the driver's: admin commands (`ruok`, `srvr`), and why no session could be opened.
//!
//! The driver does not tell why it could not connect. A wrong port or certificate is found by connecting once more.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::config::Config;
use crate::error::{Error, ErrorKind};
use crate::runtime;
use crate::store::kit::tls_probe::expects_tls;

/// How long a server may take to tell its state.
pub(super) const ANSWER: Duration = Duration::from_secs(2);

/// How long a server may take to answer without TLS. One that expects TLS waits for more.
const PLAIN_ANSWER: Duration = Duration::from_millis(500);

/// What a server answers to an admin command.
pub(super) async fn ask(config: &Config, host: &str, command: &str) -> io::Result<String> {
    let stream = TcpStream::connect(host).await?;
    #[cfg(feature = "zookeeper-tls")]
    if let Some(tls) = &config.tls {
        return exchange(super::tls::connect(tls, host, stream).await?, command).await;
    }
    let _ = config;
    exchange(stream, command).await
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, command: &str) -> io::Result<String> {
    stream.write_all(command.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    match stream.take(64 * 1024).read_to_end(&mut answer).await {
        // Some servers end TLS without saying so.
        Err(cause) if answer.is_empty() || cause.kind() != io::ErrorKind::UnexpectedEof => Err(cause),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Why no session could be opened, if it is because of TLS: its lack, its presence or its certificates.
pub(super) async fn tls_trouble(config: Config) -> Option<Error> {
    for host in &config.hosts {
        let found = runtime::within(ANSWER, Box::pin(tls_trouble_at(&config, host))).await.flatten();
        if let Some((kind, why)) = found {
            return Some(Error::new(kind, format!("cannot open a session at {config}: {why}")));
        }
    }
    None
}

async fn tls_trouble_at(config: &Config, host: &str) -> Option<(ErrorKind, String)> {
    if config.tls.is_none() {
        let mismatch = expects_tls(host).await && !is_plain(host).await;
        let remedy = "write zookeepers:// and ?ca=FILE, or the port for connections without TLS (clientPort)";
        return mismatch.then(|| (ErrorKind::Config, format!("{host} expects TLS on this port; {remedy}")));
    }
    failed_handshake(config, host).await
}

#[cfg(feature = "zookeeper-tls")]
async fn failed_handshake(config: &Config, host: &str) -> Option<(ErrorKind, String)> {
    // A server that is not there has nothing to do with TLS.
    drop(TcpStream::connect(host).await.ok()?);
    let cause = ask(config, host, "srvr").await.err()?;
    if is_plain(host).await {
        let remedy = "write the port for TLS (secureClientPort), or zookeeper:// instead of zookeepers://";
        return Some((ErrorKind::Config, format!("{host} does not speak TLS on this port; {remedy}")));
    }
    let (kind, why) = super::tls::why(&cause);
    Some((kind, format!("no TLS connection to {host}: {why}")))
}

#[cfg(not(feature = "zookeeper-tls"))]
async fn failed_handshake(_config: &Config, _host: &str) -> Option<(ErrorKind, String)> {
    None
}

/// Whether a ZooKeeper server answers without TLS. One whose list of commands lacks `srvr` says so.
async fn is_plain(host: &str) -> bool {
    let asking = Box::pin(async { exchange(TcpStream::connect(host).await?, "srvr").await });
    let answer = runtime::within(PLAIN_ANSWER, asking).await.and_then(io::Result::ok).unwrap_or_default();
    answer.contains("Zookeeper version") || answer.contains("srvr is not executed") || answer.contains("ZooKeeper instance")
}
