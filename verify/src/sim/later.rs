//! The faults that seeds from [`WIDEST`](super::WIDEST) on draw as well, and what must be left in no table at the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockkeeper::referee::What;

use super::plan::{Machine, Plan};
use super::wire::DISTURBANCE;
use super::world::Node;
use super::{Flaw, Setting};

impl Plan {
    /// A fault that older seeds do not have; `false` if it is to be one of theirs.
    pub(super) async fn disturb_more(&mut self, director: &Node, chance: &mut fastrand::Rng) -> bool {
        // What is on the disk of a single store from now on.
        if self.setting == Setting::OneStore && chance.bool() {
            self.stores[0].saved = self.stores[0].store.save();
        }
        match (chance.u8(0..12), self.setting) {
            (0, _) => self.close_client(chance),
            (1, _) => self.lose_requests(director, chance).await,
            (2, Setting::OneStore) => self.stall_store(director, chance).await,
            (3, Setting::OneStore) => self.restart_store(director, chance).await,
            (4, Setting::OneStore) => {
                let (step, away) = (chance.i64(-50_000..50_000), Duration::from_micros(chance.u64(0..500_000)));
                let saved = self.stores[0].saved.clone();
                self.note("the store starts again with older data".to_owned());
                self.take_over(director, &saved, (step, away)).await;
            }
            _ => return false,
        }
        true
    }

    /// A client closes while its tasks hold and wait. What it says is judged: after `Ok` the store holds nothing for it.
    fn close_client(&mut self, chance: &mut fastrand::Rng) {
        let which = chance.usize(0..self.machines.len());
        let (client, flaw) = (u32::try_from(which).unwrap_or(u32::MAX), self.flaw);
        let machine = &mut self.machines[which];
        if !machine.serves() {
            return;
        }
        machine.closed = true;
        let (handle, busy, trace) = (machine.handle.clone(), Arc::clone(&machine.busy), self.air.trace.clone());
        self.air.trace.add(0, What::Note { text: format!("client {client} closes") });
        busy.fetch_add(1, Ordering::Relaxed);
        machine.node.start(async move {
            if flaw == Flaw::CloseLeavesHolds || handle.close().await.is_ok() {
                trace.add(client, What::Closed);
            }
            busy.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Requests of one client are lost for a while. Answers to earlier ones, and notifications, arrive.
    async fn lose_requests(&self, director: &Node, chance: &mut fastrand::Rng) {
        let which = chance.usize(0..self.machines.len());
        let (client, machine) = (u32::try_from(which).unwrap_or(u32::MAX), &self.machines[which]);
        let time = Duration::from_micros(chance.u64(1_000..6_000_000));
        self.air.trace.add(client, What::Cut);
        machine.lines.iter().for_each(|line| line.cut(true, false));
        director.sleep(time).await;
        machine.lines.iter().for_each(|line| line.cut(false, false));
        self.air.trace.add(client, What::Healed);
        self.air.trace.add(client, What::Disturbed { lasts: DISTURBANCE });
    }

    /// The store stands still, and then carries out what came meanwhile. Its clock goes on.
    async fn stall_store(&self, director: &Node, chance: &mut fastrand::Rng) {
        let time = Duration::from_micros(chance.u64(1_000..4_000_000));
        self.note(format!("the store stands still for {time:?}"));
        self.tell_all(&What::Cut);
        self.stores[0].node.stall(time);
        director.sleep(time).await;
        self.tell_all(&What::Healed);
        self.tell_all(&What::Disturbed { lasts: DISTURBANCE });
    }

    /// The store is down for a while, and starts again with all its data.
    async fn restart_store(&self, director: &Node, chance: &mut fastrand::Rng) {
        let time = Duration::from_micros(chance.u64(1_000..2_000_000));
        self.note(format!("the store is down for {time:?}, and starts again with its data"));
        self.tell_all(&What::Cut);
        self.cut_off(&[0], true);
        director.sleep(time).await;
        self.stores[0].store.restart();
        self.cut_off(&[0], false);
        self.tell_all(&What::Healed);
        self.tell_all(&What::Disturbed { lasts: DISTURBANCE });
    }

    /// What is left in the tables of clients and stores, now that nobody holds or waits. The tables of a store are not looked at if a client crashed:
    /// nobody told the store.
    pub(super) fn entries_left(&self) -> Option<String> {
        let living = self.machines.iter().zip(0..).filter(|(machine, _)| machine.serves());
        let clients =
            living.filter_map(|(machine, client)| Some(format!("client {client} still has {}", machine.handle.remains()?)));
        let crashed = !self.machines.iter().all(|machine| machine.node.exists());
        let stores = self.stores.iter().filter(|_| !crashed).filter(|server| server.store.listening() > 0);
        let stores = stores.map(|server| format!("{} names are still listened to at a store", server.store.listening()));
        clients.chain(stores).next()
    }

    /// The negative control of the tables: a guard that nobody gives up, of a name that is not looked at otherwise.
    #[expect(clippy::mem_forget, reason = "the control is a guard that is never dropped")]
    pub(super) async fn keep_a_hold(&self) {
        if let Some(Machine { handle, .. }) = self.machines.iter().find(|machine| machine.serves())
            && let Ok(Some(guard)) = handle.mutex("kept").try_lock().await
        {
            std::mem::forget(guard);
        }
    }
}
