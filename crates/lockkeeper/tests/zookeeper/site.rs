//! What the tests share: folders of their own, and a driver to look and to interfere with.

use lockkeeper_testkit::zookeeper::ZooKeeper;
use zookeeper_client::{Acls, Client, CreateMode};

/// A client of the driver, which sees the whole tree.
pub(crate) async fn raw(server: &ZooKeeper) -> Client {
    Client::connect(&server.hosts()).await.expect("a running server")
}

/// A folder that no other test uses, made.
pub(crate) async fn fresh_folder(server: &ZooKeeper) -> String {
    let folder = server.fresh_folder();
    let raw = raw(server).await;
    raw.create(&format!("/{folder}"), &[], &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.expect("created");
    folder
}

/// The URL of a folder that no other test uses.
pub(crate) async fn fresh_url(server: &ZooKeeper, session: &str) -> String {
    format!("zookeeper://{}/{}?session={session}", server.hosts(), fresh_folder(server).await)
}

/// A client of ours on a folder, with its URL.
pub(crate) async fn client(url: &str) -> lockkeeper::Client {
    lockkeeper::Client::connect(url).await.expect("a running server")
}

/// The server that the tests share, unless there is none.
pub(crate) fn server(test: &str) -> Option<std::sync::Arc<ZooKeeper>> {
    if let Some(why) = ZooKeeper::missing() {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    Some(ZooKeeper::shared())
}

/// The nodes in the folder of a lock.
pub(crate) async fn nodes(raw: &Client, path: &str) -> Vec<String> {
    raw.list_children(path).await.unwrap_or_default()
}

/// Closes a session from outside, as an operator's tool does: by a second connection with its id and password. Returns when the server has confirmed it.
pub(crate) fn close_session(port: u16, session: i64) {
    let began = std::time::Instant::now();
    while !try_close(port, session).unwrap_or(false) {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "session {session:#x} could not be closed within a minute");
        // The owner connects again in peace. Interrupted again and again it would wait twice as long each time, up to minutes.
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
}

/// The first message of a connection that continues a session.
fn opening(session: i64) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(0_i32.to_be_bytes());
    message.extend(0_i64.to_be_bytes());
    message.extend(10_000_i32.to_be_bytes());
    message.extend(session.to_be_bytes());
    message.extend(16_i32.to_be_bytes());
    message.extend(password(session));
    message.push(0);
    framed(&message)
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&u32::try_from(message.len()).expect("short").to_be_bytes()[..], message].concat()
}

fn frame(server: &mut std::net::TcpStream) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut length = [0; 4];
    server.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    server.read_exact(&mut body).map(|()| body)
}

/// Whether the server knows the session that a connection wants to continue, by its answer.
fn is_known(opened: &[u8]) -> bool {
    i32::from_be_bytes(opened[4..8].try_into().expect("four bytes")) > 0
}

fn connected(port: u16, messages: &[u8]) -> std::io::Result<std::net::TcpStream> {
    use std::io::Write as _;
    let mut server = std::net::TcpStream::connect(("127.0.0.1", port))?;
    server.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
    server.write_all(messages)?;
    Ok(server)
}

/// Continues a session on a second connection, and leaves it open. On another server than the owner's, the owner keeps its connection, and what it sends
/// there is refused: the session has moved.
pub(crate) fn take_over(port: u16, session: i64) -> std::net::TcpStream {
    let mut server = connected(port, &opening(session)).expect("a running server");
    assert!(is_known(&frame(&mut server).expect("an answer")), "the server does not know session {session:#x}");
    server
}

/// One attempt; `false` if the session is still open. A session has one connection: the server drops the owner's when ours opens. The owner connects
/// again at once, and if that is faster than our second request, the server drops ours before it has read the request.
fn try_close(port: u16, session: i64) -> std::io::Result<bool> {
    let close = [1_i32.to_be_bytes(), (-11_i32).to_be_bytes()].concat();
    let mut server = connected(port, &[opening(session), framed(&close)].concat())?;
    let opened = frame(&mut server)?;
    // Not known: it has ended already. Otherwise the second answer is that of the closing.
    Ok(!is_known(&opened) || frame(&mut server).is_ok())
}

/// The password that a server gives a session: bytes of Java's `Random`, seeded with the session's id.
fn password(session: i64) -> [u8; 16] {
    let mask = (1_u64 << 48) - 1;
    let mut seed = ((session ^ 0xB341_5C00).cast_unsigned() ^ 0x5_DEEC_E66D) & mask;
    let mut bytes = [0; 16];
    for word in bytes.chunks_mut(4) {
        seed = seed.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & mask;
        word.copy_from_slice(&u32::try_from(seed >> 16).expect("32 bits").to_le_bytes());
    }
    bytes
}

/// Polls until it is so.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let began = std::time::Instant::now();
    while !condition().await {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "not within a minute: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
