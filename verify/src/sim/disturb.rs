//! The faults of a history beside those of single messages: of stores, of whole machines and of their connections.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lockkeeper::backend::{Backend as _, Holder, Voter as _};
use lockkeeper::referee::What;
use lockkeeper::store::memory::{MemoryStore, Saved};
use lockkeeper::{Name, WireOwner};

use super::link::{nanos, side};
use super::plan::{MAX_LEASE, Plan};
use super::wire::DISTURBANCE;
use super::work::NAMES;
use super::world::Node;
use super::{Flaw, Setting, WIDER, WIDEST};

impl Plan {
    /// A fault of a store, of a whole client or of its connection.
    pub(super) async fn disturb(&mut self, director: &Node, chance: &mut fastrand::Rng) {
        if self.air.seed >= WIDEST && self.disturb_more(director, chance).await {
            return;
        }
        match self.setting {
            Setting::OneStore => match chance.u8(0..8) {
                0 => self.forget(false),
                1 => self.forget(true),
                2 => self.force_release(chance).await,
                _ => self.disturb_client(director, chance).await,
            },
            Setting::Failover => match chance.u8(0..3) {
                0 => self.disturb_client(director, chance).await,
                _ => self.fail_over(director, chance).await,
            },
            Setting::Sessions => self.disturb_sessions(director, chance).await,
            Setting::RedLock => match chance.u8(0..5) {
                0 => self.disturb_client(director, chance).await,
                1 => self.disturb_servers(director, chance).await,
                _ => self.restart_servers(director, chance).await,
            },
        }
    }

    /// Every client gets this event.
    pub(super) fn tell_all(&self, what: &What) {
        (0..self.air.clients).for_each(|client| self.air.trace.add(client, what.clone()));
    }

    pub(super) fn note(&self, text: String) {
        self.air.trace.add(0, What::Note { text });
    }

    fn forget(&self, tokens: bool) {
        let store = &self.stores[0].store;
        if tokens {
            store.flush();
        } else {
            store.forget();
        }
        self.air.trace.add(0, What::Unhealthy { forgot: true, lag: 0 });
    }

    async fn force_release(&self, chance: &mut fastrand::Rng) {
        let trace = &self.air.trace;
        let name = NAMES[chance.usize(0..NAMES.len())];
        let Ok(name) = Name::try_from(name.to_owned()) else { return };
        let Ok(forced) = self.stores[0].store.force_release(name.clone()).await else { return };
        for owner in forced.from.iter().filter_map(|holder| holder.owner.parse::<WireOwner>().ok()) {
            let (client, owner) = trace.owner(owner);
            trace.add(client, What::Freed { name: name.as_str().to_owned(), owner, forced: true });
        }
    }

    pub(super) async fn disturb_client(&self, director: &Node, chance: &mut fastrand::Rng) {
        let trace = &self.air.trace;
        let which = chance.usize(0..self.machines.len());
        let (client, machine) = (u32::try_from(which).unwrap_or(u32::MAX), &self.machines[which]);
        let time = Duration::from_micros(chance.u64(1_000..6_000_000));
        match chance.u8(0..5) {
            0 => {
                machine.node.crash();
                machine.lines.iter().for_each(|line| line.dead.store(true, Ordering::Relaxed));
                trace.add(client, What::Crashed);
            }
            1 | 2 => {
                trace.add(client, What::Paused);
                machine.node.stall(time);
                director.sleep(time).await;
                if machine.node.exists() {
                    trace.add(client, What::Resumed);
                }
            }
            3 => {
                trace.add(client, What::Cut);
                let requests = chance.bool();
                machine.lines.iter().for_each(|line| line.cut(requests, true));
                director.sleep(time).await;
                machine.lines.iter().for_each(|line| line.cut(false, false));
                trace.add(client, What::Healed);
                // A request without an answer is repeated when its time limit is over.
                trace.add(client, What::Disturbed { lasts: DISTURBANCE });
            }
            _ => machine.node.step_wall(chance.i64(-600_000_000..600_000_000)),
        }
    }

    /// A replica takes over that has not got the last requests, and has a clock of its own.
    async fn fail_over(&mut self, director: &Node, chance: &mut fastrand::Rng) {
        let saved = self.stores[0].store.save();
        director.sleep(Duration::from_micros(chance.u64(0..300_000))).await;
        let away = Duration::from_micros(chance.u64(0..500_000));
        let step = chance.i64(-50_000..50_000);
        self.take_over(director, &saved, (step, away)).await;
    }

    /// A store with older data takes over after a while, with a wall clock that is so many microseconds ahead of the one before.
    pub(super) async fn take_over(&self, director: &Node, saved: &Saved, (step, away): (i64, Duration)) {
        self.tell_all(&What::Cut);
        self.cut_off(&[0], true);
        director.sleep(away).await;
        let server = &self.stores[0];
        let before = holders(&server.store).await;
        server.node.step_wall(step);
        server.store.restore(saved);
        let after = holders(&server.store).await;
        let lag = u64::try_from(-step).map_or(0, |lag| lag * 1_000);
        self.air.trace.add(0, What::Unhealthy { forgot: false, lag });
        let same = |one: &Holder, other: &Holder| one.owner == other.owner && one.claim == other.claim;
        for (name, holder) in &before {
            if !after.iter().any(|(other, still)| name == other && same(holder, still)) {
                self.tell_of(name, holder, false);
            }
        }
        for (name, holder) in &after {
            self.tell_of(name, holder, true);
        }
        if self.air.seed >= WIDER {
            self.tell_numbers().await;
        }
        self.cut_off(&[0], false);
        self.tell_all(&What::Healed);
        self.tell_all(&What::Disturbed { lasts: DISTURBANCE });
    }

    /// What the store that took over holds, or does not.
    fn tell_of(&self, name: &str, holder: &Holder, holds: bool) {
        let Ok(owner) = holder.owner.parse::<WireOwner>() else { return };
        let (client, owner) = self.air.trace.owner(owner);
        let (name, lease) = (name.to_owned(), holder.lease_left.map_or(0, nanos));
        let held = |name, owner| What::Held { name, owner, side: side(holder.claim), token: None, lease, clock: None };
        let what = if holds { held(name, owner) } else { What::Freed { name, owner, forced: false } };
        self.air.trace.add(client, what);
    }

    /// The numbers of the store that took over.
    async fn tell_numbers(&self) {
        for text in ["latch", "jobs"] {
            let Ok(name) = Name::try_from(text.to_owned()) else { continue };
            let found = self.stores[0].store.inspect(name).await.ok().flatten();
            let value = found.and_then(|found| found.value).unwrap_or(0);
            self.air.trace.add(0, What::Number { name: text.to_owned(), value });
        }
    }

    pub(super) fn cut_off(&self, servers: &[usize], cut: bool) {
        for line in self.machines.iter().flat_map(|machine| servers.iter().map(|server| &machine.lines[*server])) {
            line.cut(cut, cut);
        }
    }

    /// Some servers, often a minority.
    fn some_servers(&self, chance: &mut fastrand::Rng) -> Vec<usize> {
        let mut servers: Vec<usize> = (0..self.stores.len()).collect();
        chance.shuffle(&mut servers);
        let most = if chance.bool() { servers.len() / 2 } else { servers.len() };
        servers.truncate(chance.usize(1..=most));
        servers
    }

    /// Servers stand still, or cannot be reached by one client or by all.
    async fn disturb_servers(&self, director: &Node, chance: &mut fastrand::Rng) {
        let servers = self.some_servers(chance);
        let time = Duration::from_micros(chance.u64(1_000..4_000_000));
        let machine = &self.machines[chance.usize(0..self.machines.len())];
        match chance.u8(0..3) {
            0 => {
                self.note(format!("servers {servers:?} stand still for {time:?}"));
                servers.iter().for_each(|server| self.stores[*server].node.stall(time));
                director.sleep(time).await;
            }
            1 => {
                self.note(format!("servers {servers:?} cannot be reached for {time:?}"));
                self.cut_off(&servers, true);
                director.sleep(time).await;
                self.cut_off(&servers, false);
            }
            _ => {
                let requests = chance.bool();
                self.note(format!("one client does not hear of servers {servers:?} for {time:?}"));
                servers.iter().for_each(|server| machine.lines[*server].cut(requests, true));
                director.sleep(time).await;
                servers.iter().for_each(|server| machine.lines[*server].cut(false, false));
            }
        }
    }

    /// Servers go down, and come back with all they knew, with less or with nothing.
    async fn restart_servers(&mut self, director: &Node, chance: &mut fastrand::Rng) {
        let servers = self.some_servers(chance);
        let down = if chance.bool() { Duration::from_micros(chance.u64(0..2_000_000)) } else { Duration::ZERO };
        self.cut_off(&servers, true);
        director.sleep(down).await;
        let kind = chance.u8(0..4);
        let how = ["empty", "empty, without the last token", "with all their data", "with older data"][usize::from(kind)];
        self.note(format!("servers {servers:?} were down for {down:?} and come back {how}"));
        let quarantine = self.flaw != Flaw::NoQuarantine;
        for server in servers.iter().map(|server| &self.stores[*server]) {
            match kind {
                0 => server.store.forget(),
                1 => server.store.flush(),
                2 => {}
                _ => server.store.restore(&server.saved),
            }
            if quarantine {
                server.store.restart();
            } else {
                // It has no memory of a run, or the same one as before.
                drop(server.store.admit(MAX_LEASE).await);
            }
        }
        self.cut_off(&servers, false);
        // What is on the disk from now on.
        for server in self.stores.iter_mut().filter(|_| chance.bool()) {
            server.saved = server.store.save();
        }
    }
}

/// All that the store holds.
async fn holders(store: &MemoryStore) -> Vec<(&'static str, Holder)> {
    let mut all = Vec::new();
    for text in NAMES.into_iter().chain(["permits"]) {
        let Ok(name) = Name::try_from(text.to_owned()) else { continue };
        if let Ok(Some(found)) = store.inspect(name).await {
            all.extend(found.holders.into_iter().map(|holder| (text, holder)));
        }
    }
    all
}
