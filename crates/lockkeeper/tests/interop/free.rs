//! When locks were free although somebody waited in their fair queues, as the server sees it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::world::World;

/// Per name of KEYS whether it is free and somebody is queued, after the server's time in ms: 0 no, 1 yes, 2 yes, but the first one is the
/// dead waiter of ARGV.
const LOOK: &str = "
local time = redis.call('TIME')
local found = {time[1] * 1000 + math.floor(time[2] / 1000)}
for i, key in ipairs(KEYS) do
  local head = redis.call('EXISTS', key) == 0 and redis.call('LINDEX', 'redisson_lock_queue:{' .. key .. '}', 0)
  found[i + 1] = head and (head == ARGV[i] and 2 or 1) or 0
end
return found";

/// From the first look that found it so to the last one, in ms since the epoch.
pub(crate) type Span = (u64, u64);

#[derive(Debug, Default)]
struct Seen {
    names: Vec<String>,
    /// By name a waiter that died, and when its place ends at the latest, in ms since the epoch.
    dead: HashMap<String, (String, u64)>,
    open: HashMap<String, Span>,
    closed: Vec<(String, Span)>,
    /// By name when a dead waiter was the first in the queue of a free lock.
    blocked: HashMap<String, Span>,
}

/// Looks at the names about fifty times a second, until it is dropped.
pub(crate) struct FreeTimes {
    seen: Arc<Mutex<Seen>>,
    over: Arc<AtomicBool>,
}

impl FreeTimes {
    pub(crate) fn watch(world: &World) -> Self {
        let (seen, over) = (Arc::<Mutex<Seen>>::default(), Arc::new(AtomicBool::new(false)));
        let mut eyes = world.eyes();
        std::thread::spawn({
            let (seen, over) = (Arc::clone(&seen), Arc::clone(&over));
            move || {
                let script = redis::Script::new(LOOK);
                while !over.load(Ordering::Relaxed) {
                    let (names, dead) = {
                        let seen = seen.lock().unwrap();
                        (seen.names.clone(), seen.dead.clone())
                    };
                    if !names.is_empty() {
                        let mut call = script.prepare_invoke();
                        for name in &names {
                            call.key(name).arg(dead.get(name).map_or("", |(owner, _)| owner));
                        }
                        let found: Vec<u64> = call.invoke(&mut eyes).expect("a server");
                        seen.lock().unwrap().note(&names, &found);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        Self { seen, over }
    }

    /// Looks at this name as well, which has no brace.
    pub(crate) fn add(&self, name: &str) {
        self.seen.lock().unwrap().names.push(name.to_owned());
    }

    /// Does not count the time in which this dead waiter is the first in the queue of the name, until its place ends.
    pub(crate) fn excuse(&self, name: &str, owner: &str, until: u64) {
        self.seen.lock().unwrap().dead.insert(name.to_owned(), (owner.to_owned(), until));
    }

    /// For how long a dead waiter was the first in the queue of this name while it was free, before its place had to end.
    pub(crate) fn blocked(&self, name: &str) -> Duration {
        let span = self.seen.lock().unwrap().blocked.get(name).copied();
        span.map_or(Duration::ZERO, |(from, to)| Duration::from_millis(to - from))
    }

    /// Looks at this name no more; when it was free.
    pub(crate) fn remove(&self, name: &str) -> Vec<Span> {
        let mut seen = self.seen.lock().unwrap();
        seen.names.retain(|other| other != name);
        let open = seen.open.remove(name);
        let closed = seen.closed.iter().filter(|(other, _)| other == name).map(|(_, span)| *span);
        closed.chain(open).collect()
    }
}

impl Seen {
    fn note(&mut self, names: &[String], found: &[u64]) {
        let now = found[0];
        for (name, state) in names.iter().zip(&found[1..]) {
            let is_excused = *state == 2 && self.dead.get(name).is_some_and(|(_, until)| now < *until);
            if is_excused {
                self.blocked.entry(name.clone()).or_insert((now, now)).1 = now;
            }
            if *state > 0 && !is_excused {
                self.open.entry(name.clone()).or_insert((now, now)).1 = now;
            } else if let Some(span) = self.open.remove(name) {
                self.closed.push((name.clone(), span));
            }
        }
    }
}

impl Drop for FreeTimes {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
