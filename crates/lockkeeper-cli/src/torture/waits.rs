//! How long somebody waited for a lock that was certainly free. Clients alone cannot tell it of every wait, so it is measured where it is sure,
//! and not judged.
//!
//! A lock is free for sure between the confirmed release of its only holder and the next grant, unless in between a call for it was given up, or a
//! process that asked for it was paused or killed: the store may then have granted it to somebody who never saw it.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper::referee::{Event, Side, What};

#[derive(Debug, Default)]
struct Name {
    /// Since when nobody holds it, if that is sure.
    free_since: Option<u64>,
    /// The holder and its number of guards: an owner can enter twice, and a hold passes from guard to guard inside a process.
    holder: Option<(String, u32)>,
    calls: BTreeMap<(u32, u64), u64>,
}

#[derive(Debug, Default)]
pub(super) struct Waits {
    names: BTreeMap<String, Name>,
    /// Names that were held by several at a time: of these it is not sure when they are free.
    shared: BTreeSet<String>,
    pub(super) measured: u64,
    /// In nanoseconds.
    pub(super) longest: u64,
}

impl Waits {
    pub(super) fn observe(&mut self, event: &Event) {
        let client = event.client;
        match &event.what {
            What::Call { call, name } => {
                self.names.entry(name.clone()).or_default().calls.insert((client, *call), event.at);
            }
            What::Granted { call, name, owner, side, .. } => {
                if *side != Side::Exclusive {
                    self.shared.insert(name.clone());
                }
                let state = self.names.entry(name.clone()).or_default();
                let called = state.calls.remove(&(client, *call));
                let free = state.free_since.take();
                let guards = state.holder.take().filter(|(holder, _)| holder == owner).map_or(0, |(_, guards)| guards);
                state.holder = Some((owner.clone(), guards + 1));
                if let (Some(free), Some(called)) = (free, called)
                    && !self.shared.contains(name)
                {
                    self.measured += 1;
                    self.longest = self.longest.max(event.at.saturating_sub(free.max(called)));
                }
            }
            What::Release { name, owner } | What::Lost { name, owner } => {
                if let Some((holder, guards)) = &mut self.names.entry(name.clone()).or_default().holder
                    && holder == owner
                {
                    *guards = guards.saturating_sub(1);
                }
            }
            What::Released { name, owner } => {
                let state = self.names.entry(name.clone()).or_default();
                if state.holder.as_ref().is_some_and(|(holder, guards)| holder == owner && *guards == 0) {
                    state.free_since = Some(event.at);
                }
            }
            What::Ended { call } => {
                for state in self.names.values_mut() {
                    if state.calls.remove(&(client, *call)).is_some() {
                        (state.free_since, state.holder) = (None, None);
                    }
                }
            }
            What::Paused | What::Resumed | What::Crashed => {
                for state in self.names.values_mut() {
                    if state.calls.keys().any(|(caller, _)| *caller == client) {
                        (state.free_since, state.holder) = (None, None);
                    }
                    if event.what == What::Crashed {
                        state.calls.retain(|(caller, _), _| *caller != client);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(events: &[(u64, u32, What)]) -> (u64, u64) {
        let mut waits = Waits::default();
        for (at, client, what) in events {
            waits.observe(&Event { at: *at, client: *client, what: what.clone() });
        }
        (waits.measured, waits.longest)
    }

    fn call(client: u64) -> What {
        What::Call { call: client, name: "x".into() }
    }

    fn granted(client: u64) -> What {
        let (name, owner) = ("x".into(), client.to_string());
        What::Granted { call: client, name, owner, side: Side::Exclusive, token: None, sent: 0, lease: 9 }
    }

    fn release(client: u64) -> What {
        What::Release { name: "x".into(), owner: client.to_string() }
    }

    fn released(client: u64) -> What {
        What::Released { name: "x".into(), owner: client.to_string() }
    }

    #[test]
    fn a_lock_that_is_entered_twice_is_free_after_the_second_release() {
        let twice = [(1, 1, call(1)), (2, 1, granted(1)), (3, 1, granted(1)), (4, 1, release(1)), (5, 1, released(1))];
        assert_eq!(measure(&[&twice[..], &[(5, 2, call(2)), (9, 2, granted(2))]].concat()), (0, 0));
        let rest = [(5, 2, call(2)), (6, 1, release(1)), (7, 1, released(1)), (9, 2, granted(2))];
        assert_eq!(measure(&[&twice[..], &rest].concat()), (1, 2));
    }

    #[test]
    fn a_wait_for_a_free_lock_is_measured_where_it_is_sure() {
        let begin = [(1, 1, call(1)), (2, 1, granted(1)), (3, 2, call(2)), (8, 1, release(1)), (9, 1, released(1))];
        let and = |more: &[(u64, u32, What)]| measure(&[&begin, more].concat());
        assert_eq!(and(&[(12, 2, granted(2))]), (1, 3));
        assert_eq!(and(&[(10, 2, What::Paused), (11, 2, What::Resumed), (12, 2, granted(2))]), (0, 0));
        let given_up = [(10, 3, call(3)), (11, 3, What::Ended { call: 3 }), (12, 2, granted(2))];
        assert_eq!(and(&given_up), (0, 0), "the store may have granted it to the call that was given up");
        assert_eq!(and(&[(10, 3, call(3)), (11, 3, What::Crashed), (12, 2, granted(2))]), (0, 0));
        assert_eq!(and(&[(20, 3, call(3)), (21, 3, granted(3))]), (1, 1), "who came later waited less");
    }
}
