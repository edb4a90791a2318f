//! What the lock of the workload *hot name* protects: one counter on the server that is read and then written.
//! Two holders at a time would sell the same thing twice; the difference is what was lost.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::Order;

/// A process's connection to the counter, and how often it sold.
#[derive(Debug)]
pub struct Till {
    stream: Mutex<BufReader<TcpStream>>,
    key: String,
    sold: AtomicU64,
}

impl Till {
    /// The one that the order asks for, if it does.
    pub(crate) async fn open(order: &Order) -> Option<Self> {
        order.text("sell")?;
        let url = order.urls().swap_remove(0);
        let address = url.strip_prefix("redis://").expect("a Redis server").to_owned();
        let stream = TcpStream::connect(address).await.expect("a server");
        stream.set_nodelay(true).expect("a socket");
        let key = format!("{}:sold", order.text("name").expect("a name"));
        Some(Self { stream: Mutex::new(BufReader::new(stream)), key, sold: AtomicU64::new(0) })
    }

    /// Reads, adds one, writes: nothing but the lock keeps others out in between.
    pub(crate) async fn sell(&self) {
        let sold: u64 = self.ask(&["GET", &self.key]).await.map_or(0, |text| text.parse().expect("a number"));
        self.ask(&["SET", &self.key, &(sold + 1).to_string()]).await;
        self.sold.fetch_add(1, Ordering::Relaxed);
    }

    /// How often this process sold, over all heats.
    pub(crate) fn sold(&self) -> u64 {
        self.sold.load(Ordering::Relaxed)
    }

    async fn ask(&self, words: &[&str]) -> Option<String> {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        let mut stream = self.stream.lock().await;
        stream.write_all(request.as_bytes()).await.expect("a server");
        let mut head = String::new();
        stream.read_line(&mut head).await.expect("an answer");
        let length = head.trim_end().strip_prefix('$').and_then(|length| length.parse::<usize>().ok())?;
        let mut value = vec![0; length + 2];
        stream.read_exact(&mut value).await.expect("an answer");
        value.truncate(length);
        Some(String::from_utf8(value).expect("text"))
    }
}
