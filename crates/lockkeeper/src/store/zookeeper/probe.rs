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

/// How long a server may take to tell its state.
pub(super) const ANSWER: Duration = Duration::from_secs(2);

/// How long a server may take to answer without TLS. One that expects TLS waits for more.
const PLAIN_ANSWER: Duration = Duration::from_millis(500);

/// The first message of TLS 1.2 with two cipher suites and nothing else. A server with TLS answers it, be it with an alert.
fn hello() -> Vec<u8> {
    let start = [0x16, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3];
    // Nothing is encrypted with it, so it need not be random.
    let random = [0x5a; 32];
    let (no_session, suites, no_compression) = ([0], [0, 4, 0xc0, 0x2f, 0xc0, 0x30], [1, 0]);
    [&start[..], &random, &no_session, &suites, &no_compression].concat()
}

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

/// Whether a server answers the first message of TLS with one of TLS.
async fn expects_tls(host: &str) -> bool {
    let answer = async {
        let mut stream = TcpStream::connect(host).await?;
        stream.write_all(&hello()).await?;
        let mut head = [0; 3];
        stream.read_exact(&mut head).await?;
        Ok::<_, io::Error>(head)
    };
    // An alert, or the server's first message.
    matches!(answer.await, Ok([0x15 | 0x16, 3, _]))
}

/// Whether a ZooKeeper server answers without TLS. One whose list of commands lacks `srvr` says so.
async fn is_plain(host: &str) -> bool {
    let asking = Box::pin(async { exchange(TcpStream::connect(host).await?, "srvr").await });
    let answer = runtime::within(PLAIN_ANSWER, asking).await.and_then(io::Result::ok).unwrap_or_default();
    answer.contains("Zookeeper version") || answer.contains("srvr is not executed") || answer.contains("ZooKeeper instance")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lengths_in_the_hello_are_right() {
        let hello = hello();
        assert_eq!(usize::from(hello[4]), hello.len() - 5, "of the record");
        assert_eq!(usize::from(hello[8]), hello.len() - 9, "of the message");
    }
}
