//! Whether a port expects TLS, found by connecting once more: drivers do not tell why they could not connect.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The first message of TLS 1.2 with two cipher suites and nothing else. A server with TLS answers it, be it with an alert.
fn hello() -> Vec<u8> {
    let start = [0x16, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3];
    // Nothing is encrypted with it, so it need not be random.
    let random = [0x5a; 32];
    let (no_session, suites, no_compression) = ([0], [0, 4, 0xc0, 0x2f, 0xc0, 0x30], [1, 0]);
    [&start[..], &random, &no_session, &suites, &no_compression].concat()
}

/// Whether a server answers the first message of TLS with one of TLS. The caller bounds the time.
pub(crate) async fn expects_tls(host: &str) -> bool {
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
