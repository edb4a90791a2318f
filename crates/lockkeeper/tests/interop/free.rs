//! When locks were free although somebody waited in their fair queues, as the server sees it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::world::World;

/// Per name of KEYS whether it is free and somebody is queued, after the server's time in ms.
const LOOK: &str = "
local time = redis.call('TIME')
local found = {time[1] * 1000 + math.floor(time[2] / 1000)}
for i, key in ipairs(KEYS) do
  found[i + 1] = redis.call('EXISTS', key) == 0 and redis.call('LLEN', 'redisson_lock_queue:{' .. key .. '}') > 0 and 1 or 0
end
return found";

/// From the first look that found it so to the last one, in ms since the epoch.
pub(crate) type Span = (u64, u64);

#[derive(Debug, Default)]
struct Seen {
    names: Vec<String>,
    open: HashMap<String, Span>,
    closed: Vec<(String, Span)>,
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
                    let names = seen.lock().unwrap().names.clone();
                    if !names.is_empty() {
                        let mut call = script.prepare_invoke();
                        for name in &names {
                            call.key(name);
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
        for (name, is_free) in names.iter().zip(&found[1..]) {
            if *is_free == 1 {
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
