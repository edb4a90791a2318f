//! Signals that are meant for the command: this process receives them and passes them on.

use std::future::poll_fn;
use std::io;
use std::sync::OnceLock;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// The signals that are passed on.
const PASSED: [Signal; 8] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::CONT, Signal::TSTP];

/// Receives the signals as long as it exists.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Receives all of them, except those that were ignored when this process started (`nohup`, `&` in a script): the command inherits that.
    pub(crate) fn take() -> io::Result<Self> {
        let listened = PASSED.into_iter().filter(|signal| !is_ignored(*signal));
        let streams = listened.map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)));
        streams.collect::<io::Result<_>>().map(Self)
    }

    /// The next signal. Nothing is missed when the future is dropped.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that asks to end, while there is no command to pass it to. On TSTP, runs `before` and stops this process.
    pub(crate) async fn end(&mut self, mut before: impl FnMut()) -> Signal {
        loop {
            match self.next().await {
                Signal::TSTP => {
                    before();
                    crate::child::stop_this_process();
                }
                Signal::CONT => {}
                signal => return signal,
            }
        }
    }

    /// Waits for a signal that this process sent to itself, so that it is not handled again later.
    pub(crate) async fn came(&mut self, sent: Signal) {
        if let Some((_, stream)) = self.0.iter_mut().find(|(signal, _)| *signal == sent) {
            stream.recv().await;
        }
    }
}

/// Whether this process ignores a signal. Read from `/proc`, because the system call needs unsafe code.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    ignored() & (1 << (signal.as_raw() - 1)) != 0
}

/// The ignored signals when this process started, one bit each.
fn ignored() -> u64 {
    static IGNORED: OnceLock<u64> = OnceLock::new();
    *IGNORED.get_or_init(read_ignored)
}

fn read_ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
