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

/// The most turns of others that one message can count. A process is owed no more, and a wrong number must not overflow what is counted.
const MOST_TURNS: u64 = 64;

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
    /// Called with the channels that nobody listens to any more, all at once: they are left together.
    idle: Idle,
}

type Idle = Box<dyn Fn(&[String]) + Send + Sync>;

impl Channels {
    pub(super) fn listen(self: &Arc<Self>, wanted: Wanted, notifier: &Notifier, idle: Idle) -> Listening {
        let (table, channels) = match wanted {
            Wanted::All(channels) => (&self.all, channels),
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
        match postponed.channels.get(channel).copied() {
            // Nobody waited for its time: the task that did has ended with its executor.
            Some(due) if due.at <= now => {
                postponed.channels.remove(channel);
                drop(postponed);
                self.in_turn.notify_key_for(channel, due.turns);
                return Heard::Notified;
            }
            Some(due) if due.at <= at => return Heard::Notified,
            _ => {}
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
    (after.min(LONGEST_MS), turns.clamp(1, MOST_TURNS))
}

impl Listening {
    /// The channels that it listens to.
    pub(super) fn channels(&self) -> impl Iterator<Item = &str> {
        self.registrations.iter().map(|(channel, _)| channel.as_str())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut left: Vec<String> = self.registrations.drain(..).map(|(channel, _)| channel).collect();
        // A listener that comes now asks for the channel itself.
        left.retain(|channel| !self.channels.is_wanted(channel));
        // One that listens to a part of them would be counted as Redisson.
        if !left.is_empty() {
            (self.idle)(&left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Kind, Subscription};
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

    /// The executor that waited for its time may have ended.
    #[test]
    fn a_message_for_later_that_nobody_waited_for_silences_no_other() {
        let channels = Arc::<Channels>::default();
        let turn = TurnChannels::new(&Name::new("m").unwrap(), ClientId::from_bits(7));
        let own = turn.own.clone();
        let (waits, _waits) = listens(&channels, Wanted::Turn(turn));
        let heard = |after: u64| channels.message(&own, b"50 2", NOW.plus(ms(after)));
        assert!(matches!(heard(0), Heard::Postponed(..)));
        assert!(matches!(heard(49), Heard::Notified) && waits.count() == 0, "it is still waited for");
        assert!(matches!(heard(50), Heard::Notified) && waits.count() == 2, "its time is over");
        assert!(matches!(heard(51), Heard::Postponed(..)), "as if nothing had been");
    }

    /// A client that had left one of its channels would be taken for Redisson as long as it listens to the others.
    #[test]
    fn all_channels_are_left_together_and_none_that_another_listens_to() {
        let channels = Arc::<Channels>::default();
        let left = Arc::new(Mutex::new(Vec::new()));
        let listens = |wanted| {
            let left = Arc::clone(&left);
            let idle = Box::new(move |channels: &[String]| left.lock().unwrap().push(channels.len()));
            channels.listen(wanted, &Notifier::default(), idle)
        };
        let turn = || Wanted::Turn(TurnChannels::new(&Name::new("m").unwrap(), ClientId::from_bits(7)));
        let (first, second) = (listens(turn()), listens(turn()));
        drop(first);
        assert!(left.lock().unwrap().is_empty(), "the second listens to them");
        let shared = listens(Wanted::All(vec![names::channel(&Name::new("m").unwrap(), Kind::Mutex, None)]));
        drop(second);
        assert_eq!(*left.lock().unwrap(), [2], "the shared one is listened to");
        drop(shared);
        drop(listens(turn()));
        assert_eq!(*left.lock().unwrap(), [2, 1, 3]);
    }

    #[test]
    fn a_message_of_any_shape_postpones_for_a_second_at_most_and_counts_few_turns() {
        let cases: [(&[u8], (u64, u64)); 8] = [
            (b"0 3", (0, 3)),
            (b"50", (50, 1)),
            (b"", (0, 1)),
            (b"x \xff", (0, 1)),
            (b"99999999999999999999 2", (0, 2)),
            (b"18446744073709551615 0", (1_000, 1)),
            (b"0 65", (0, 64)),
            (b"0 18446744073709551615", (0, 64)),
        ];
        for (message, expected) in cases {
            assert_eq!(numbers(message), expected, "{message:?}");
        }
    }
}
