//! A proxy on loopback that does to a connection what networks do: swallow an answer, fall silent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What the proxy does to what passes.
#[derive(Debug, Default)]
struct Faults {
    /// The next request that holds this text is carried out, its answer swallowed, and the connection cut.
    lose_reply_to: Mutex<Option<&'static str>>,
    /// Nothing passes, and nothing is said.
    silent: AtomicBool,
}

/// A running proxy; its connections end with the executor of the test.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    faults: Arc<Faults>,
}

impl Proxy {
    /// Stands before the server at `server_port`.
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let faults = Arc::new(Faults::default());
        let shared = Arc::clone(&faults);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server_port)).await.expect("the server");
                let (client_in, client_out) = client.into_split();
                let (server_in, server_out) = server.into_split();
                let swallow = Arc::new(AtomicBool::new(false));
                tokio::spawn(requests(client_in, server_out, Arc::clone(&shared), Arc::clone(&swallow)));
                tokio::spawn(replies(server_in, client_out, Arc::clone(&shared), swallow));
            }
        });
        Self { port, faults }
    }

    pub(crate) fn lose_reply_to(&self, text: &'static str) {
        *self.faults.lose_reply_to.lock().unwrap() = Some(text);
    }

    /// Whether the answer that was to be lost has been met.
    pub(crate) fn has_lost_it(&self) -> bool {
        self.faults.lose_reply_to.lock().unwrap().is_none()
    }

    pub(crate) fn fall_silent(&self, silent: bool) {
        self.faults.silent.store(silent, Ordering::SeqCst);
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Arc<Faults>, swallow: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if faults.silent.load(Ordering::SeqCst) {
            continue;
        }
        {
            let mut wanted = faults.lose_reply_to.lock().unwrap();
            if wanted.is_some_and(|text| buffer[..count].windows(text.len()).any(|part| part == text.as_bytes())) {
                *wanted = None;
                swallow.store(true, Ordering::SeqCst);
            }
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Arc<Faults>, swallow: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if swallow.load(Ordering::SeqCst) {
            // Dropping our ends cuts the connection.
            return;
        }
        if faults.silent.load(Ordering::SeqCst) {
            continue;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
