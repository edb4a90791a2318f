//! Wake-ups between processes: datagrams, what they say, and the sockets that they are sent by.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::{Mutex, PoisonError};

use super::files::Files;
use super::liveness::Instance;
use crate::model::Wake;
use crate::name::Name;

/// How many connected sockets are kept.
const KEPT: usize = 16;

/// Connected sockets, the last used one last: to connect by path costs more than to send.
#[derive(Debug, Default)]
pub(super) struct Senders(Mutex<Vec<(Instance, UnixDatagram)>>);

impl Senders {
    pub(super) fn send(&self, files: &Files, to: Instance, message: &str) -> io::Result<()> {
        let mut sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sockets.iter().position(|(instance, _)| *instance == to).map(|at| sockets.remove(at).1);
        let socket = match known {
            Some(socket) => socket,
            None => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                socket.connect(files.socket(&to.to_string()))?;
                socket
            }
        };
        let sent = socket.send(message.as_bytes()).map(drop);
        // `WouldBlock`: its buffer is full, but the receiver exists.
        if sent.as_ref().map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |()| true) {
            if sockets.len() >= KEPT {
                sockets.remove(0);
            }
            sockets.push((to, socket));
        }
        sent
    }
}

/// The message for all subscribers of a name, or for the first waiter in its queue.
pub(super) fn encode(name: &Name, wake: Wake) -> String {
    wake.head.map_or_else(|| format!("*\n{name}"), |owner| format!("{owner}\n{name}"))
}

pub(super) fn decode(message: &str) -> Option<(Name, Wake)> {
    let (to, name) = message.split_once('\n')?;
    let wake = if to == "*" { Wake::ALL } else { Wake { all: false, head: Some(to.parse().ok()?) } };
    Some((Name::new(name).ok()?, wake))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::{ClientId, WireOwner};

    #[test]
    fn a_message_reads_as_it_was_written() {
        let owner = WireOwner { client: ClientId::from_bits(7), number: 3 };
        let name = Name::new("a\nb").unwrap();
        for wake in [Wake::ALL, Wake { all: false, head: Some(owner) }] {
            assert_eq!(decode(&encode(&name, wake)), Some((name.clone(), wake)));
        }
        assert_eq!(decode("anything"), None);
        assert_eq!(decode("*\n"), None);
    }
}
