//! A proxy on loopback that does to a connection what networks do: lose a request or an answer, cut either at any byte, keep it for
//! later, fall silent, be slow, refuse, reset, die without a word.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::commands::Commands;

/// What happens to one request.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// It never arrives, and the connection stays.
    LoseRequest,
    /// It is carried out, its answer swallowed, and the connection closed.
    LoseReply,
    /// So many bytes of it arrive, then the connection is closed.
    CutRequest(usize),
    /// It is carried out, so many bytes of the answer arrive, then the connection is closed.
    CutReply(usize),
    /// It is carried out, and this is answered.
    Garble(&'static [u8]),
    /// It, and all that follows on its connection, waits until let go, also when its sender is gone.
    Hold,
}

/// How the proxy meets those who come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Open,
    /// Every new connection is reset.
    Resets,
    /// Nobody listens.
    Closed,
}

/// What the proxy does to what passes.
#[derive(Debug)]
struct Faults {
    /// The next request that holds this text meets this.
    plan: Mutex<Option<(String, Fault)>>,
    /// The last request that held this text.
    copy: Mutex<Option<(String, Vec<u8>)>>,
    commands: Commands,
    /// How long the last message was that was cut.
    cut_of: AtomicUsize,
    /// Nothing passes, and nothing is said.
    silent: AtomicBool,
    /// How many connections there were so far; each has the number of those before it.
    accepted: AtomicU64,
    /// How often a client has sent something after an answer.
    round_trips: AtomicU64,
    /// Connections with a smaller number are dead, and nobody was told.
    dead_below: AtomicU64,
    /// Connections with a smaller number are reset.
    reset_below: watch::Sender<u64>,
    /// On connections with a smaller number every answer takes so many milliseconds.
    slow: Mutex<(u64, u64)>,
    /// The answer to `TIME` takes so many milliseconds more.
    slow_time: AtomicU64,
    /// How often was let go what is held.
    let_go: watch::Sender<u64>,
    door: watch::Sender<Door>,
}

/// One connection through the proxy.
#[derive(Clone, Debug)]
struct Wire {
    faults: Arc<Faults>,
    number: u64,
    /// What the next answer meets.
    reply: Arc<Mutex<Option<Fault>>>,
    /// The next answer is that to `TIME`.
    time_asked: Arc<AtomicBool>,
    /// The server was the last to send something, or nobody has.
    answered: Arc<AtomicBool>,
}

impl Wire {
    /// Nothing passes here.
    fn is_silent(&self) -> bool {
        self.faults.silent.load(Ordering::SeqCst) || self.number < self.faults.dead_below.load(Ordering::SeqCst)
    }

    /// What this request meets, if anything.
    fn meets(&self, bytes: &[u8]) -> Option<Fault> {
        let mut plan = self.faults.plan.lock().unwrap();
        plan.take_if(|(text, _)| contains(bytes, text)).map(|(_, fault)| fault)
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
pub struct Proxy {
    pub port: u16,
    faults: Arc<Faults>,
}

impl Proxy {
    /// Stands before the server at `server_port`.
    pub async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let faults = Arc::new(Faults {
            plan: Mutex::default(),
            copy: Mutex::default(),
            commands: Commands::default(),
            cut_of: AtomicUsize::new(0),
            silent: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            round_trips: AtomicU64::new(0),
            dead_below: AtomicU64::new(0),
            reset_below: watch::Sender::new(0),
            slow: Mutex::default(),
            slow_time: AtomicU64::new(0),
            let_go: watch::Sender::new(0),
            door: watch::Sender::new(Door::Open),
        });
        tokio::spawn(receive(listener, port, server_port, Arc::clone(&faults)));
        Self { port, faults }
    }

    /// The next request that holds `text` meets `fault`.
    pub fn next(&self, text: impl Into<String>, fault: Fault) {
        *self.faults.plan.lock().unwrap() = Some((text.into(), fault));
    }

    /// Whether the planned fault has been met.
    pub fn met(&self) -> bool {
        self.faults.plan.lock().unwrap().is_none()
    }

    /// Keeps a copy of the last request that holds `text`, from now on.
    pub fn copy_requests(&self, text: impl Into<String>) {
        *self.faults.copy.lock().unwrap() = Some((text.into(), Vec::new()));
    }

    /// The last request that held the text of [`Proxy::copy_requests`]; copies no more.
    pub fn copy(&self) -> Option<Vec<u8>> {
        self.faults.copy.lock().unwrap().take().map(|(_, copy)| copy).filter(|copy| !copy.is_empty())
    }

    /// The commands that pass, and one that is refused.
    pub fn commands(&self) -> &Commands {
        &self.faults.commands
    }

    /// How many bytes the last message had that was cut.
    pub fn cut_of(&self) -> usize {
        self.faults.cut_of.load(Ordering::SeqCst)
    }

    /// What is held goes on its way.
    pub fn let_go(&self) {
        self.faults.let_go.send_modify(|times| *times += 1);
    }

    pub fn fall_silent(&self, silent: bool) {
        self.faults.silent.store(silent, Ordering::SeqCst);
    }

    pub fn set_door(&self, door: Door) {
        self.faults.door.send_replace(door);
    }

    /// Every answer takes this long from now on, on all connections.
    pub fn delay_answers(&self, delay: Duration) {
        *self.faults.slow.lock().unwrap() = (u64::MAX, delay.as_millis() as u64);
    }

    /// Every answer takes this long from now on, on the connections there are; new ones are fast.
    pub fn delay_answers_of_present_connections(&self, delay: Duration) {
        *self.faults.slow.lock().unwrap() = (self.connections(), delay.as_millis() as u64);
    }

    /// The answer to `TIME` takes this much longer from now on.
    pub fn delay_answers_to_time(&self, delay: Duration) {
        self.faults.slow_time.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    /// The connections there are stay open, and nothing passes on them any more; new ones are sound.
    pub fn kill_present_connections_silently(&self) {
        self.faults.dead_below.store(self.connections(), Ordering::SeqCst);
    }

    /// The connections there are are reset.
    pub fn reset_present_connections(&self) {
        self.faults.reset_below.send_replace(self.connections());
    }

    /// How many connections there were so far, also those that were reset at the door.
    pub fn connections(&self) -> u64 {
        self.faults.accepted.load(Ordering::SeqCst)
    }

    /// How many round trips there were so far on all connections: a request may be sent in parts.
    pub fn round_trips(&self) -> u64 {
        self.faults.round_trips.load(Ordering::SeqCst)
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

async fn receive(listener: TcpListener, port: u16, server_port: u16, faults: Arc<Faults>) {
    let mut door = faults.door.subscribe();
    let mut listener = Some(listener);
    loop {
        let Some(open) = &listener else {
            if door.wait_for(|door| *door != Door::Closed).await.is_err() {
                return;
            }
            listener = Some(TcpListener::bind(("127.0.0.1", port)).await.expect("the port is still ours"));
            continue;
        };
        let client = tokio::select! {
            _ = door.wait_for(|door| *door == Door::Closed) => {
                listener = None;
                continue;
            }
            accepted = open.accept() => match accepted {
                Ok((client, _)) => client,
                Err(_) => return,
            },
        };
        let number = faults.accepted.fetch_add(1, Ordering::SeqCst);
        let server =
            if *faults.door.borrow() == Door::Open { TcpStream::connect(("127.0.0.1", server_port)).await.ok() } else { None };
        // Without a server there is nothing to give.
        let Some(server) = server else {
            let _ = client.set_zero_linger();
            continue;
        };
        for end in [&client, &server] {
            end.set_nodelay(true).expect("a socket");
        }
        let wire = Wire {
            faults: Arc::clone(&faults),
            number,
            reply: Arc::default(),
            time_asked: Arc::default(),
            answered: Arc::new(AtomicBool::new(true)),
        };
        let (client_in, client_out) = client.into_split();
        let (server_in, server_out) = server.into_split();
        tokio::spawn(requests(client_in, server_out, wire.clone()));
        tokio::spawn(replies(server_in, client_out, wire));
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, wire: Wire) {
    let mut reset = wire.faults.reset_below.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = tokio::select! {
            // What is sent after a reset was ordered must not pass.
            biased;
            _ = reset.wait_for(|below| wire.number < *below) => {
                let _ = from.as_ref().set_zero_linger();
                return;
            }
            read = from.read(&mut buffer) => match read {
                Ok(count @ 1..) => count,
                _ => return,
            },
        };
        wire.faults.commands.request(&mut buffer[..count]);
        if wire.answered.swap(false, Ordering::SeqCst) {
            wire.faults.round_trips.fetch_add(1, Ordering::SeqCst);
        }
        let bytes = &buffer[..count];
        if let Some((text, copy)) = &mut *wire.faults.copy.lock().unwrap()
            && contains(bytes, text)
        {
            *copy = bytes.to_vec();
        }
        let met = wire.meets(bytes);
        if met.is_none() && wire.is_silent() {
            continue;
        }
        // The command, not a script that speaks of it.
        if contains(bytes, "*1\r\n$4\r\nTIME\r\n") {
            wire.time_asked.store(true, Ordering::SeqCst);
        }
        let passing = match met {
            Some(Fault::LoseRequest) => continue,
            Some(Fault::CutRequest(length)) => {
                wire.faults.cut_of.store(count, Ordering::SeqCst);
                // Dropping our ends cuts the connection.
                let _ = to.write_all(&bytes[..length.min(count)]).await;
                return;
            }
            Some(Fault::Hold) => {
                let bytes = bytes.to_vec();
                if hold(bytes, &mut from, &mut to, &wire).await {
                    continue;
                }
                return;
            }
            Some(fault) => {
                *wire.reply.lock().unwrap() = Some(fault);
                bytes
            }
            None => bytes,
        };
        if to.write_all(passing).await.is_err() {
            return;
        }
    }
}

/// Keeps what comes until it is let go; whether the sender is still there then.
async fn hold(mut held: Vec<u8>, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, wire: &Wire) -> bool {
    let mut let_go = wire.faults.let_go.subscribe();
    let (mut buffer, mut open) = (vec![0; 64 * 1024], true);
    loop {
        tokio::select! {
            told = let_go.changed() => {
                return told.is_ok() && to.write_all(&held).await.is_ok() && open;
            }
            read = from.read(&mut buffer), if open => match read {
                Ok(count @ 1..) => held.extend_from_slice(&buffer[..count]),
                _ => open = false,
            },
        }
    }
}

async fn replies(mut from: OwnedReadHalf, to: OwnedWriteHalf, wire: Wire) {
    // Answers on their way: a slow network carries many at once.
    let (underway, arriving) = mpsc::unbounded_channel();
    tokio::spawn(arrivals(arriving, to, wire.clone()));
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        wire.faults.commands.reply(&mut buffer[..count]);
        wire.answered.store(true, Ordering::SeqCst);
        let met = wire.reply.lock().unwrap().take();
        if met.is_none() && wire.is_silent() {
            continue;
        }
        let (bytes, last) = match met {
            Some(Fault::CutReply(length)) => {
                wire.faults.cut_of.store(count, Ordering::SeqCst);
                (&buffer[..length.min(count)], true)
            }
            Some(Fault::Garble(other)) => (other, false),
            Some(_) => (&buffer[..0], true),
            None => (&buffer[..count], false),
        };
        if underway.send((Instant::now() + wire.delay(), bytes.to_vec())).is_err() || last {
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
