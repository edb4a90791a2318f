//! Letters to other processes: what stands in them, and the way to where they go.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::{Mutex, PoisonError};

use super::life::Instance;
use super::place::Place;
use crate::name::Name;
use crate::owner::WireOwner;

/// To how many mailboxes the way is kept.
const PENS: usize = 16;

/// For whom a letter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    All,
    Head(WireOwner),
}

/// The way to those whom we wrote to, last ones last: finding a mailbox costs more than writing to it.
#[derive(Debug, Default)]
pub(super) struct Pens(Mutex<Vec<(Instance, UnixDatagram)>>);

impl Pens {
    pub(super) fn write(&self, place: &Place, to: Instance, letter: &str) -> io::Result<()> {
        let mut pens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pens.iter().position(|(instance, _)| *instance == to).map(|at| pens.remove(at).1);
        let pen = match known {
            Some(pen) => pen,
            None => {
                let pen = UnixDatagram::unbound()?;
                pen.set_nonblocking(true)?;
                pen.connect(place.socket(&to.to_string()))?;
                pen
            }
        };
        let sent = pen.send(letter.as_bytes()).map(drop);
        // Full is not gone.
        if sent.as_ref().map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |()| true) {
            if pens.len() >= PENS {
                pens.remove(0);
            }
            pens.push((to, pen));
        }
        sent
    }
}

impl Call {
    pub(super) fn letter(self, name: &Name) -> String {
        match self {
            Self::All => format!("*\n{name}"),
            Self::Head(owner) => format!("{owner}\n{name}"),
        }
    }

    pub(super) fn read(letter: &str) -> Option<(Self, Name)> {
        let (whom, name) = letter.split_once('\n')?;
        let call = if whom == "*" { Self::All } else { Self::Head(whom.parse().ok()?) };
        Some((call, Name::new(name).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::ClientId;

    #[test]
    fn a_letter_reads_as_it_was_written() {
        let owner = WireOwner { client: ClientId::from_bits(7), number: 3 };
        let name = Name::new("a\nb").unwrap();
        for call in [Call::All, Call::Head(owner)] {
            assert_eq!(Call::read(&call.letter(&name)), Some((call, name.clone())));
        }
        assert_eq!(Call::read("anything"), None);
        assert_eq!(Call::read("*\n"), None);
    }
}
