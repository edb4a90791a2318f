//! The holders of a name in words, for the error of a call that timed out.

use std::time::Duration;

use super::Core;
use crate::backend::Holder;
use crate::name::Name;
use crate::runtime;
use crate::runtime::sync::atomic::Ordering;

/// The store is asked at most once in this time: where many calls end without a lock, it has other work to do.
const EVERY: Duration = Duration::from_secs(1);

/// The answer is waited for so long at most. The call has ended its wait already.
const WITHIN: Duration = Duration::from_millis(10);

/// A call that waits less is not made longer.
const AFTER: Duration = Duration::from_millis(500);

impl Core {
    /// The holders of a name in words, after a wait of so long; `None` if the store was not asked, did not answer at once, or nobody holds it by now.
    pub(crate) async fn holders(&self, name: &Name, waited: Duration) -> Option<String> {
        if waited < AFTER || !self.is_connected() {
            return None;
        }
        let (now, next) = (self.runtime.now(), self.next_look.load(Ordering::Relaxed));
        let until = now.plus(EVERY).as_nanos();
        if now.as_nanos() < next || self.next_look.compare_exchange(next, until, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return None;
        }
        let found = runtime::within(WITHIN, self.backend.inspect(name.clone())).await?.ok()??;
        let (first, others) = found.holders.split_first()?;
        let first = in_words(first);
        Some(if others.is_empty() { first } else { format!("{first} and {} more", others.len()) })
    }
}

/// What others wrote into the store may be hostile to a terminal or a log.
fn in_words(holder: &Holder) -> String {
    let words = match &holder.client {
        Some(client) => format!("{} pid {} ({})", client.host, client.pid, client.program),
        None => holder.owner.clone(),
    };
    words.replace(char::is_control, "\u{fffd}")
}
