//! A proxy on loopback that does to a connection what networks do: swallow an answer, fall silent, be slow, die without a word.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// What the proxy does to what passes.
#[derive(Debug, Default)]
struct Faults {
    /// The next request that holds this text is carried out, its answer swallowed, and the connection cut.
    lose_reply_to: Mutex<Option<&'static str>>,
    /// Nothing passes, and nothing is said.
    silent: AtomicBool,
    /// How many connections there were so far; each has the number of those before it.
    accepted: AtomicU64,
    /// Connections with a smaller number are dead, and nobody was told.
    dead_below: AtomicU64,
    /// On connections with a smaller number every answer takes so many milliseconds.
    slow: Mutex<(u64, u64)>,
    /// The answer to `TIME` takes so many milliseconds more.
    slow_time: AtomicU64,
}

/// One connection through the proxy.
#[derive(Clone, Debug)]
struct Wire {
    faults: Arc<Faults>,
    number: u64,
    /// The next answer is swallowed, and the connection cut.
    swallow: Arc<AtomicBool>,
    /// The next answer is that to `TIME`.
    time_asked: Arc<AtomicBool>,
}

impl Wire {
    /// Nothing passes here.
    fn is_silent(&self) -> bool {
        self.faults.silent.load(Ordering::SeqCst) || self.number < self.faults.dead_below.load(Ordering::SeqCst)
    }

    /// How long an answer that comes now takes.
    fn delay(&self) -> Duration {
        let (below, mut millis) = *self.faults.slow.lock().unwrap();
        if self.number >= below {
            millis = 0;
        }
        if self.time_asked.swap(false, Ordering::SeqCst) {
            millis += self.faults.slow_time.load(Ordering::SeqCst);
        }
        Duration::from_millis(millis)
    }
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
                for end in [&client, &server] {
                    end.set_nodelay(true).expect("a socket");
                }
                let wire = Wire {
                    faults: Arc::clone(&shared),
                    number: shared.accepted.fetch_add(1, Ordering::SeqCst),
                    swallow: Arc::default(),
                    time_asked: Arc::default(),
                };
                let (client_in, client_out) = client.into_split();
                let (server_in, server_out) = server.into_split();
                tokio::spawn(requests(client_in, server_out, wire.clone()));
                tokio::spawn(replies(server_in, client_out, wire));
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

    /// Every answer takes this long from now on, on all connections.
    pub(crate) fn delay_answers(&self, delay: Duration) {
        *self.faults.slow.lock().unwrap() = (u64::MAX, delay.as_millis() as u64);
    }

    /// Every answer takes this long from now on, on the connections there are; new ones are fast.
    pub(crate) fn delay_answers_of_present_connections(&self, delay: Duration) {
        *self.faults.slow.lock().unwrap() = (self.connections(), delay.as_millis() as u64);
    }

    /// The answer to `TIME` takes this much longer from now on.
    pub(crate) fn delay_answers_to_time(&self, delay: Duration) {
        self.faults.slow_time.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    /// The connections there are stay open, and nothing passes on them any more; new ones are sound.
    pub(crate) fn kill_present_connections_silently(&self) {
        self.faults.dead_below.store(self.connections(), Ordering::SeqCst);
    }

    /// How many connections there were so far.
    pub(crate) fn connections(&self) -> u64 {
        self.faults.accepted.load(Ordering::SeqCst)
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, wire: Wire) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..count];
        if wire.is_silent() {
            continue;
        }
        {
            let mut wanted = wire.faults.lose_reply_to.lock().unwrap();
            if wanted.is_some_and(|text| contains(bytes, text)) {
                *wanted = None;
                wire.swallow.store(true, Ordering::SeqCst);
            }
        }
        // The command, not a script that speaks of it.
        if contains(bytes, "*1\r\n$4\r\nTIME\r\n") {
            wire.time_asked.store(true, Ordering::SeqCst);
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}

async fn replies(mut from: OwnedReadHalf, to: OwnedWriteHalf, wire: Wire) {
    // Answers on their way: a slow network carries many at once.
    let (underway, arriving) = mpsc::unbounded_channel();
    tokio::spawn(arrivals(arriving, to, wire.clone()));
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if wire.swallow.load(Ordering::SeqCst) {
            // Dropping our ends cuts the connection.
            return;
        }
        if wire.is_silent() {
            continue;
        }
        if underway.send((Instant::now() + wire.delay(), buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

async fn arrivals(mut arriving: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>, mut to: OwnedWriteHalf, wire: Wire) {
    while let Some((when, bytes)) = arriving.recv().await {
        tokio::time::sleep_until(when).await;
        // It may have died meanwhile.
        if !wire.is_silent() && to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
