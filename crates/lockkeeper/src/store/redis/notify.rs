//! The listeners of each channel, whatever connection its messages come by.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::names::{self, TurnChannels};
use crate::backend::Notifier;
use crate::runtime::Instant;
use crate::store::kit::listeners::{Listeners, Registration};

/// The message of a release that woke one client of ours: it concerns Redisson, and calls of ours that want every message.
const WOKE_ONE: &[u8] = b"00";

/// The longest that a message can put off: then a waiter polls anyway.
const LONGEST_MS: u64 = 1_000;

/// The listeners, over the lives of many connections.
#[derive(Debug, Default)]
pub(super) struct Channels {
    /// Those that want every message.
    all: Arc<Listeners<String>>,
    /// Those that are woken in turn.
    in_turn: Arc<Listeners<String>>,
    postponed: Mutex<Postponed>,
}

/// Channels whose listeners are to be notified later.
#[derive(Debug, Default)]
struct Postponed {
    channels: HashMap<String, Due>,
    /// The number of the last of them. No number comes twice: the time of a message that was overtaken must not be taken for that of a later one.
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    number: u64,
    turns: u64,
}

/// What to listen to.
pub(super) enum Wanted {
    /// Every message of these channels.
    All(Vec<String>),
    /// What tells that it is this client's turn.
    Turn(TurnChannels),
}

impl Wanted {
    /// One of the channels.
    #[cfg(feature = "redis-cluster")]
    pub(super) fn any(&self) -> &str {
        match self {
            Self::All(channels) => channels.first().map_or("", String::as_str),
            Self::Turn(TurnChannels { shared, .. }) => shared,
        }
    }
}

/// What a message asks for.
#[derive(Debug)]
pub(super) enum Heard {
    /// It is done.
    Notified,
    /// To notify then, unless another message comes before: call [`Channels::due`] with this number.
    Postponed(Instant, u64),
}

/// Ends the listening when dropped; the connection's task then leaves the channels.
pub(super) struct Listening {
    channels: Arc<Channels>,
    registrations: Vec<(String, Registration<String>)>,
    /// Called with a channel that nobody listens to any more.
    idle: Box<dyn Fn(&str) + Send + Sync>,
}

impl Channels {
    pub(super) fn listen(
        self: &Arc<Self>,
        wanted: Wanted,
        notifier: &Notifier,
        idle: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Listening {
        let (table, channels) = match wanted {
            Wanted::All(channels) => (&self.all, channels),
            // In the order in which they are left. Without the channel that counts it we look like Redisson, which does no harm; without the shared
            // one nobody would be told who is Redisson.
            Wanted::Turn(TurnChannels { shared, own, counted }) => (&self.in_turn, vec![counted, own, shared]),
        };
        let registrations =
            channels.into_iter().map(|channel| (channel.clone(), table.listen(channel, notifier.clone()))).collect();
        Listening { channels: Arc::clone(self), registrations, idle }
    }

    /// A message came at `now`.
    pub(super) fn message(&self, channel: &str, message: &[u8], now: Instant) -> Heard {
        if message == WOKE_ONE {
            self.all.notify_key(channel);
            return Heard::Notified;
        }
        if names::turn_of(channel).is_none() {
            self.all.notify_key(channel);
            self.in_turn.notify_key(channel);
            return Heard::Notified;
        }
        let (after, turns) = numbers(message);
        let mut postponed = self.postponed();
        if after == 0 {
            postponed.channels.remove(channel);
            drop(postponed);
            self.in_turn.notify_key_for(channel, turns);
            return Heard::Notified;
        }
        let at = now.plus(Duration::from_millis(after));
        if postponed.channels.get(channel).is_some_and(|due| due.at <= at) {
            return Heard::Notified;
        }
        postponed.last += 1;
        let number = postponed.last;
        postponed.channels.insert(channel.to_owned(), Due { at, number, turns });
        Heard::Postponed(at, number)
    }

    /// The time of a message is over.
    pub(super) fn due(&self, channel: &str, number: u64) {
        let mut postponed = self.postponed();
        if let Some(due) = postponed.channels.get(channel).copied().filter(|due| due.number == number) {
            postponed.channels.remove(channel);
            drop(postponed);
            self.in_turn.notify_key_for(channel, due.turns);
        }
    }

    fn postponed(&self) -> MutexGuard<'_, Postponed> {
        self.postponed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies all listeners: messages may have been missed.
    pub(super) fn notify_all(&self) {
        self.all.notify_all();
        self.in_turn.notify_all();
    }

    /// The channels that somebody listens to.
    pub(super) fn wanted(&self) -> Vec<String> {
        let mut wanted = self.all.keys();
        wanted.extend(self.in_turn.keys().into_iter().filter(|channel| !self.all.has_any(channel.as_str())));
        wanted
    }

    pub(super) fn is_wanted(&self, channel: &str) -> bool {
        self.all.has_any(channel) || self.in_turn.has_any(channel)
    }
}

/// What a message to one client says: after how many ms to ask, and how many clients had their turns since.
fn numbers(message: &[u8]) -> (u64, u64) {
    let text = String::from_utf8_lossy(message);
    let mut numbers = text.split(' ').map(|number| number.parse::<u64>().unwrap_or(0));
    let (after, turns) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (after.min(LONGEST_MS), turns.max(1))
}

impl Listening {
    /// The channels that it listens to.
    pub(super) fn channels(&self) -> impl Iterator<Item = &str> {
        self.registrations.iter().map(|(channel, _)| channel.as_str())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        for (channel, registration) in self.registrations.drain(..) {
            drop(registration);
            // A listener that comes now asks for the channel itself.
            if !self.channels.is_wanted(&channel) {
                (self.idle)(&channel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Subscription;
    use crate::name::Name;
    use crate::owner::ClientId;

    const NOW: Instant = Instant::from_nanos(3_600_000_000_000);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn listens(channels: &Arc<Channels>, wanted: Wanted) -> (Subscription, Listening) {
        let notifier = Notifier::default();
        let listening = channels.listen(wanted, &notifier, Box::new(|_| ()));
        (Subscription::new(&notifier, ()), listening)
    }

    #[test]
    fn a_message_that_woke_one_client_concerns_only_those_that_want_all() {
        let channels = Arc::<Channels>::default();
        let turn = TurnChannels::new(&Name::new("m").unwrap(), ClientId::from_bits(7));
        let (shared, own) = (turn.shared.clone(), turn.own.clone());
        let (waits, _waits) = listens(&channels, Wanted::Turn(turn));
        let (wants_all, _wants_all) = listens(&channels, Wanted::All(vec![shared.clone()]));
        channels.message(&shared, b"00", NOW);
        assert_eq!((waits.count(), wants_all.count()), (0, 1));
        channels.message(&shared, b"0", NOW);
        assert_eq!((waits.count(), wants_all.count()), (1, 2), "Redisson has released it");
        channels.message(&own, b"0 7", NOW);
        assert_eq!((waits.count(), wants_all.count()), (8, 2), "seven had their turns");
    }

    #[test]
    fn a_message_for_later_counts_unless_another_one_comes_before() {
        let channels = Arc::<Channels>::default();
        let turn = TurnChannels::new(&Name::new("m").unwrap(), ClientId::from_bits(7));
        let own = turn.own.clone();
        let (waits, _waits) = listens(&channels, Wanted::Turn(turn));
        let heard = |message: &str, after: u64| match channels.message(&own, message.as_bytes(), NOW.plus(ms(after))) {
            Heard::Postponed(at, number) => Some((at.since(NOW), number)),
            Heard::Notified => None,
        };
        let (at, first) = heard("50 1", 0).unwrap();
        assert_eq!((at, waits.count()), (ms(50), 0));
        assert!(heard("50 1", 10).is_none(), "it asks sooner");
        let (at, second) = heard("20 4", 10).unwrap();
        assert_eq!(at, ms(30));
        channels.due(&own, first);
        assert_eq!(waits.count(), 0, "the earlier time counts");
        channels.due(&own, second);
        assert_eq!(waits.count(), 4);
        let (_, third) = heard("50 1", 40).unwrap();
        assert!(heard("0 1", 50).is_none() && waits.count() == 5);
        let (_, fourth) = heard("50 1", 60).unwrap();
        channels.due(&own, third);
        assert_eq!(waits.count(), 5, "it asked already");
        channels.due(&own, fourth);
        assert_eq!(waits.count(), 6);
    }

    #[test]
    fn a_message_of_any_shape_postpones_for_a_second_at_most() {
        let cases: [(&[u8], (u64, u64)); 6] = [
            (b"0 3", (0, 3)),
            (b"50", (50, 1)),
            (b"", (0, 1)),
            (b"x \xff", (0, 1)),
            (b"99999999999999999999 2", (0, 2)),
            (b"18446744073709551615 0", (1_000, 1)),
        ];
        for (message, expected) in cases {
            assert_eq!(numbers(message), expected, "{message:?}");
        }
    }
}
