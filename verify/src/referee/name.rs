//! The rules that concern one name.

use std::collections::{BTreeMap, VecDeque};

use super::{Promise, Scene};
use crate::history::Side;

/// A hold as its client sees it.
#[derive(Debug)]
pub(super) struct Belief {
    client: u32,
    owner: String,
    side: Side,
    token: Option<u64>,
    sent: u64,
    answered: u64,
    /// P3: it must not look valid later than this.
    until: u64,
    lease: u64,
    /// P4: the loss must be told by then.
    told_by: u64,
    /// When the store ended it behind the client's back.
    gone: Option<u64>,
    reported: bool,
}

impl Belief {
    pub(super) fn new(client: u32, owner: &str, side: Side, token: Option<u64>, times: (u64, u64, u64), lease: u64) -> Self {
        let (sent, answered, until) = times;
        let owner = owner.to_owned();
        Self { client, owner, side, token, sent, answered, until, lease, told_by: until, gone: None, reported: false }
    }
}

/// A hold as the store sees it.
#[derive(Debug)]
struct Stored {
    client: u32,
    side: Side,
    until: u64,
    lease: u64,
    /// Since when no guard and no call of its client can be the reason for it.
    orphan_since: Option<u64>,
    reported: bool,
}

/// A grant of the past, for the order of tokens.
#[derive(Debug)]
struct Past {
    sent: u64,
    answered: u64,
    token: u64,
    owner: String,
    side: Side,
}

#[derive(Debug, Default)]
pub(super) struct NameState {
    believed: Vec<Belief>,
    stored: BTreeMap<String, Stored>,
    /// Calls under way, and since when.
    calls: BTreeMap<(u32, u64), u64>,
    past: VecDeque<Past>,
    /// Of what was dropped from `past`: the latest answer and the largest token.
    before: (u64, u64),
    /// The store reports on this name.
    store_seen: bool,
    /// Since when no hold was removed before its end.
    free_since: u64,
    /// P6 counts from here on.
    waited_from: u64,
}

const REMEMBERED: usize = 256;

/// Whether two holds cannot be at the same time. Permits are added up elsewhere.
const fn exclude(one: Side, other: Side) -> bool {
    matches!((one, other), (Side::Exclusive, _) | (_, Side::Exclusive))
}

impl NameState {
    pub(super) fn call(&mut self, client: u32, call: u64, at: u64) {
        self.calls.insert((client, call), at);
    }

    pub(super) fn end_call(&mut self, client: u32, call: u64, at: u64) {
        if self.calls.remove(&(client, call)).is_some() {
            self.mark_orphans(at);
        }
    }

    pub(super) fn crash(&mut self, client: u32, at: u64) {
        self.believed.retain(|belief| belief.client != client);
        let waited = self.calls.len();
        self.calls.retain(|(caller, _), _| *caller != client);
        if self.calls.len() < waited {
            // Its place in a fair queue stands until it ends.
            self.waited_from = self.waited_from.max(at);
        }
        self.mark_orphans(at);
    }

    /// P1 and P2, when a client has its guard.
    pub(super) fn grant(&mut self, name: &str, belief: Belief, scene: &mut Scene<'_>) {
        scene.verdict.checked(Promise::P1);
        let (at, unhealthy) = (scene.at, scene.unhealthy.map_or(0, |(when, _)| when));
        let sound = |sent: u64| sent >= unhealthy;
        let others = || self.believed.iter().filter(|other| other.owner != belief.owner && other.until > at && sound(other.sent));
        if sound(belief.sent) {
            if let Some(other) = others().find(|other| exclude(other.side, belief.side)) {
                scene
                    .verdict
                    .add(Promise::P1, at, || format!("{name:?}: {} was granted while {} held it", belief.owner, other.owner));
            }
            if let Side::Permits { take, of } = belief.side {
                let taken: u64 =
                    others().map(|other| if let Side::Permits { take, .. } = other.side { take.into() } else { 0 }).sum();
                if taken + u64::from(take) > u64::from(of) {
                    scene.verdict.add(Promise::P1, at, || format!("{name:?}: {taken} and {take} permits of {of} are held"));
                }
            }
        }
        if let Some(token) = belief.token {
            self.order(name, &belief, token, scene);
        }
        if let Some(stored) = self.stored.get_mut(&belief.owner) {
            stored.orphan_since = None;
        }
        self.believed.retain(|other| other.owner != belief.owner);
        self.believed.push(belief);
    }

    /// P2: larger than the tokens of all grants that were answered before this one was asked for.
    fn order(&mut self, name: &str, belief: &Belief, token: u64, scene: &mut Scene<'_>) {
        scene.verdict.checked(Promise::P2);
        let at = scene.at;
        // With another server, or a clock that was set back, grants that lie closer together than the clocks are not in order.
        let (fault, lag) = scene.unhealthy.unwrap_or((0, 0));
        let earlier = |past: &Past| {
            let apart = if past.sent <= fault && fault <= at { lag } else { 0 };
            past.owner != belief.owner && past.answered.saturating_add(apart) < belief.sent
        };
        let shared = |past: &Past| past.side == Side::Shared && belief.side == Side::Shared;
        let wrong =
            self.past.iter().find(|past| earlier(past) && if shared(past) { past.token > token } else { past.token >= token });
        if let Some(past) = wrong {
            scene.verdict.add(Promise::P2, at, || {
                format!("{name:?}: {} got token {token} after {} had got {}", belief.owner, past.owner, past.token)
            });
        } else if self.before.0.saturating_add(lag) < belief.sent && self.before.1 > token {
            scene
                .verdict
                .add(Promise::P2, at, || format!("{name:?}: {} got token {token} after {}", belief.owner, self.before.1));
        }
        let twin = |past: &&Past| past.token == token && past.owner != belief.owner && !shared(past) && past.sent > fault;
        if wrong.is_none()
            && let Some(past) = self.past.iter().find(twin)
        {
            scene.verdict.add(Promise::P2, at, || format!("{name:?}: {} and {} have token {token}", belief.owner, past.owner));
        }
        let Belief { sent, answered, side, .. } = *belief;
        self.past.push_back(Past { sent, answered, token, owner: belief.owner.clone(), side });
        if self.past.len() > REMEMBERED
            && let Some(oldest) = self.past.pop_front()
        {
            self.before = (self.before.0.max(oldest.answered), self.before.1.max(oldest.token));
        }
    }

    /// The store's answer lengthens a hold that is still valid; what comes later revives nothing.
    pub(super) fn keep(&mut self, owner: &str, until: u64, at: u64) {
        for belief in self.believed.iter_mut().filter(|belief| belief.owner == owner && belief.until >= at) {
            belief.until = belief.until.max(until);
            belief.told_by = if belief.gone.is_some() { belief.told_by } else { belief.until };
        }
    }

    /// P3, and that a hold that was reported lost is never valid again.
    pub(super) fn probe(&mut self, name: &str, owner: &str, valid: bool, scene: &mut Scene<'_>) {
        scene.verdict.checked(Promise::P3);
        if !valid {
            return;
        }
        let at = scene.at;
        match self.believed.iter().find(|belief| belief.owner == owner) {
            Some(belief) if at > belief.until => {
                let late = (at - belief.until) as f64 / 1e6;
                scene.verdict.add(Promise::P3, at, || format!("{name:?}: {owner} looks valid {late:.3} ms after its deadline"));
            }
            Some(_) => {}
            None => scene.verdict.add(Promise::P3, at, || format!("{name:?}: {owner} looks valid, but it is lost or released")),
        }
    }

    /// P4, kept: the loss was told, in time or it would have been noticed before.
    pub(super) fn lost(&mut self, owner: &str, scene: &mut Scene<'_>) {
        scene.verdict.checked(Promise::P4);
        self.believed.retain(|belief| belief.owner != owner);
        self.mark_orphans(scene.at);
    }

    pub(super) fn release(&mut self, owner: &str, at: u64) {
        self.believed.retain(|belief| belief.owner != owner);
        self.mark_orphans(at);
    }

    /// P1 in the store's own book, and the rule of tokens and clock.
    pub(super) fn held(
        &mut self,
        name: &str,
        (client, owner): (u32, &str),
        side: Side,
        (token, clock): (Option<u64>, Option<u64>),
        lease: u64,
        scene: &mut Scene<'_>,
    ) {
        self.store_seen = true;
        let at = scene.at;
        if let (Some(token), Some(clock)) = (token, clock) {
            scene.verdict.checked(Promise::TokenClock);
            if token >= clock.saturating_add(scene.limits.token_ahead) {
                let ahead = token - clock;
                scene
                    .verdict
                    .add(Promise::TokenClock, at, || format!("{name:?}: token {token} is {ahead} µs ahead of the store"));
            }
        }
        scene.verdict.checked(Promise::P1);
        let mut others = self.stored.iter().filter(|(other, hold)| *other != owner && hold.until > at);
        if let Some((other, _)) = others.find(|(_, hold)| exclude(hold.side, side)) {
            scene.verdict.add(Promise::P1, at, || format!("{name:?}: the store holds it for {other} and for {owner}"));
        }
        let until = at.saturating_add(lease);
        let hold = self.stored.entry(owner.to_owned());
        let hold = hold.or_insert(Stored { client, side, until, lease, orphan_since: None, reported: false });
        (hold.until, hold.lease) = (hold.until.max(until), hold.lease.max(lease));
        self.mark_orphans(at);
    }

    pub(super) fn freed(&mut self, owner: &str, at: u64) {
        self.store_seen = true;
        self.stored.remove(owner);
        self.free_since = at;
        self.believed.iter_mut().filter(|belief| belief.owner == owner).for_each(|belief| belief.gone = Some(at));
    }

    pub(super) fn forget(&mut self, at: u64) {
        self.stored.clear();
        self.free_since = at;
        self.believed.iter_mut().for_each(|belief| belief.gone = Some(at));
    }

    /// The client may not hear from the store: it is told at its deadline, not before.
    pub(super) fn out_of_reach(&mut self, client: u32) {
        for belief in self.believed.iter_mut().filter(|belief| belief.client == client) {
            belief.gone = None;
        }
    }

    pub(super) fn resumed(&mut self, client: u32, told_by: u64) {
        for belief in self.believed.iter_mut().filter(|belief| belief.client == client) {
            belief.told_by = belief.told_by.max(told_by);
        }
    }

    /// Finds the holds in the store that nobody stands behind any more.
    fn mark_orphans(&mut self, at: u64) {
        for (owner, hold) in &mut self.stored {
            let guarded = self.believed.iter().any(|belief| belief.owner == *owner);
            let called = self.calls.range((hold.client, 0)..=(hold.client, u64::MAX)).next().is_some();
            hold.orphan_since = if guarded || called { None } else { hold.orphan_since.or(Some(at)) };
        }
    }

    /// P4, P5 and P6: what should have happened before `scene.at`.
    pub(super) fn advance(&mut self, name: &str, scene: &mut Scene<'_>) {
        self.losses(name, scene);
        if self.store_seen {
            self.orphans(name, scene);
            self.waits(name, scene);
        }
        let at = scene.at;
        let ended = self.stored.values().map(|hold| hold.until).filter(|until| *until <= at).max();
        if let Some(ended) = ended {
            self.free_since = self.free_since.max(ended);
            self.stored.retain(|_, hold| hold.until > at);
        }
    }

    fn losses(&mut self, name: &str, scene: &mut Scene<'_>) {
        let at = scene.at;
        for belief in self.believed.iter_mut().filter(|belief| !belief.reported) {
            let Some(client) = scene.client(belief.client).filter(|client| client.runs()) else { continue };
            let well = client.well_since(at).is_some_and(|since| belief.gone.is_some_and(|gone| since <= gone));
            let by_renewal = belief.gone.filter(|_| well).map(|gone| gone.saturating_add(scene.limits.told_within(belief.lease)));
            let deadline = belief.told_by.saturating_add(scene.limits.slack);
            let deadline = by_renewal.map_or(deadline, |renewal| renewal.min(deadline));
            if at > deadline {
                belief.reported = true;
                scene.verdict.checked(Promise::P4);
                scene.verdict.add(Promise::P4, at, || {
                    format!("{name:?}: {} was not told of its loss by {:.3} s", belief.owner, deadline as f64 / 1e9)
                });
            }
        }
    }

    fn orphans(&mut self, name: &str, scene: &mut Scene<'_>) {
        let at = scene.at;
        for (owner, hold) in self.stored.iter_mut().filter(|(_, hold)| !hold.reported) {
            let Some(since) = hold.orphan_since else { continue };
            let limit = since.saturating_add(hold.lease).saturating_add(scene.limits.longest_delay + scene.limits.slack);
            if at > limit && hold.until > limit {
                hold.reported = true;
                scene.verdict.add(Promise::P5, at, || {
                    format!("{name:?}: the store still holds it for {owner}, which nobody uses since {:.3} s", since as f64 / 1e9)
                });
            } else if at >= hold.until {
                hold.reported = true;
            } else {
                continue;
            }
            scene.verdict.checked(Promise::P5);
        }
    }

    fn waits(&mut self, name: &str, scene: &mut Scene<'_>) {
        let at = scene.at;
        let ready = |(&(client, _), &since): (&(u32, u64), &u64)| {
            let well = scene.client(client)?.well_since(at)?;
            Some(since.max(well))
        };
        let Some(waiting) = self.calls.iter().filter_map(ready).min() else { return };
        let ends = self.stored.values().map(|hold| hold.until).max().unwrap_or(0);
        let limits = scene.limits;
        // Who died waiting may stand first in a fair queue until its place ends.
        let dead = if self.waited_from > 0 { self.waited_from.saturating_add(limits.dead_waiter) } else { 0 };
        let since = waiting.max(ends).max(self.free_since).max(dead);
        let limit = since.saturating_add(limits.free_while_waited_for + 2 * limits.round_trip + limits.slack);
        scene.verdict.checked(Promise::P6);
        if at > limit {
            scene.verdict.add(Promise::P6, at, || {
                format!("{name:?}: free since {:.3} s, waited for, and granted to nobody", since as f64 / 1e9)
            });
            // Once for this wait.
            self.free_since = at;
        }
    }
}
