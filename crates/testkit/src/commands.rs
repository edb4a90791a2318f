//! The commands of Redis on the wire: which passed, and one that the server does not seem to have.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

/// What a [`Proxy`](crate::proxy::Proxy) does with commands. It looks at none before it is asked to.
#[derive(Debug, Default)]
pub struct Commands {
    missing: Mutex<Option<Missing>>,
    /// The names of those that passed, if they are recorded.
    seen: Mutex<Option<BTreeSet<String>>>,
}

/// The name of a command, and a word of the same length that no server knows.
#[derive(Clone, Debug)]
struct Missing {
    name: String,
    nonsense: String,
}

impl Commands {
    /// The server seems not to have this command (in upper case) from now on: it gets a senseless word instead, and its complaint names the
    /// command again. What scripts call is not touched, as with a managed service that refuses commands of clients. `None`: it has all.
    pub fn refuse(&self, name: Option<&str>) {
        let missing = |name: &str| Missing { name: name.to_owned(), nonsense: format!("Q{}", "X".repeat(name.len() - 1)) };
        *self.missing.lock().unwrap() = name.map(missing);
    }

    /// Records the names of commands from now on.
    pub fn record(&self) {
        *self.seen.lock().unwrap() = Some(BTreeSet::new());
    }

    /// The names of the commands that passed since, in upper case; records no more.
    pub fn seen(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap().take().unwrap_or_default()
    }

    pub(crate) fn request(&self, bytes: &mut [u8]) {
        let (missing, mut seen) = (self.missing.lock().unwrap(), self.seen.lock().unwrap());
        if missing.is_none() && seen.is_none() {
            return;
        }
        for name in names(bytes) {
            let word = String::from_utf8_lossy(&bytes[name.clone()]).to_ascii_uppercase();
            if let Some(missing) = missing.as_ref().filter(|missing| missing.name == word) {
                bytes[name].copy_from_slice(missing.nonsense.as_bytes());
            }
            if let Some(seen) = &mut *seen {
                seen.insert(word);
            }
        }
    }

    pub(crate) fn reply(&self, bytes: &mut [u8]) {
        if let Some(Missing { name, nonsense }) = &*self.missing.lock().unwrap() {
            for from in 0..bytes.len().saturating_sub(name.len() - 1) {
                if bytes[from..].starts_with(nonsense.as_bytes()) {
                    bytes[from..from + name.len()].copy_from_slice(name.as_bytes());
                }
            }
        }
    }
}

/// Where the names of commands stand in a message: each is the first text of an array, `*3\r\n$7\r\nEVALSHA\r\n`.
fn names(bytes: &[u8]) -> Vec<Range<usize>> {
    let number = |from: usize, sign: u8| {
        let digits = bytes[from..].strip_prefix(&[sign])?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = from + 1 + digits;
        let value: usize = std::str::from_utf8(&bytes[from + 1..end]).ok()?.parse().ok()?;
        bytes[end..].starts_with(b"\r\n").then_some((value, end + 2))
    };
    let name = |from: usize| {
        let (_, after) = number(from, b'*')?;
        let (length, name) = number(after, b'$')?;
        let characters = bytes.get(name..name.checked_add(length)?)?;
        let is_name = !characters.is_empty() && characters.iter().all(u8::is_ascii_alphabetic);
        is_name.then_some(name..name + length)
    };
    (0..bytes.len()).filter_map(name).collect()
}
