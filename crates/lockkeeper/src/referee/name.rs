//! The rules that concern one name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::number::Number;
use super::writers::Writers;
use super::{Promise, Scene, Side};

/// A hold as its client sees it.
#[derive(Debug)]
pub(super) struct Belief {
    pub(super) client: u32,
    pub(super) owner: String,
    pub(super) side: Side,
    pub(super) token: Option<u64>,
    pub(super) sent: u64,
    pub(super) answered: u64,
    /// P3: it must not look valid later than this.
    pub(super) until: u64,
    pub(super) lease: u64,
    /// P4: the loss must be told by then.
    pub(super) told_by: u64,
    /// When the store ended it behind the client's back.
    pub(super) gone: Option<u64>,
    /// An operator took it away: it is no grant any more, although the client may not know yet.
    pub(super) forced: bool,
    pub(super) reported: bool,
    /// How many guards share it.
    pub(super) guards: u32,
}

impl Belief {
    pub(super) fn new(client: u32, owner: &str, side: Side, token: Option<u64>, times: (u64, u64, u64), lease: u64) -> Self {
        let (sent, answered, until) = times;
        let owner = owner.to_owned();
        Self {
            client,
            owner,
            side,
            token,
            sent,
            answered,
            until,
            lease,
            // Nobody can be told before there is a guard: one part of a multi-lock may end while the others are acquired.
            told_by: until.max(answered),
            gone: None,
            forced: false,
            guards: 1,
            reported: false,
        }
    }
}

/// A hold as the store sees it.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) client: u32,
    pub(super) side: Side,
    pub(super) since: u64,
    pub(super) until: u64,
    pub(super) lease: u64,
    /// Since when no guard and no call of its client can be the reason for it.
    pub(super) orphan_since: Option<u64>,
    /// `release()` said `Ok`, and nobody has got it since.
    pub(super) released: bool,
    /// A guard was made of it.
    pub(super) noticed: bool,
    pub(super) reported: bool,
}

/// A grant of the past, for the order of tokens.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) client: u32,
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) token: u64,
    pub(super) owner: String,
    pub(super) side: Side,
}

#[derive(Debug, Default)]
pub(super) struct NameState {
    pub(super) believed: Vec<Belief>,
    pub(super) stored: BTreeMap<String, Stored>,
    /// Calls under way, and since when.
    pub(super) calls: BTreeMap<(u32, u64), u64>,
    /// When a call of each client last ended.
    given_up: BTreeMap<u32, u64>,
    pub(super) past: VecDeque<Past>,
    /// Of what was dropped from `past`: the latest answer and the largest token.
    pub(super) before: (u64, u64),
    /// The store reports on this name.
    pub(super) store_seen: bool,
    /// Since when no hold was removed before its end.
    pub(super) free_since: u64,
    /// P6 counts from here on.
    pub(super) waited_from: Option<u64>,
    /// With which tokens the store granted to an owner that has no guard yet, and when first.
    pub(super) granted: BTreeMap<String, BTreeMap<u64, u64>>,
    /// Owners whose holds an operator took away.
    pub(super) forced: BTreeSet<String>,
    pub(super) writers: Writers,
    /// Of a latch or a counting semaphore.
    pub(super) number: Number,
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

    /// The call is over; whether it was one for this name.
    pub(super) fn end_call(&mut self, client: u32, call: u64, at: u64) -> bool {
        let waited = self.calls.remove(&(client, call)).is_some();
        if waited {
            self.given_up.insert(client, at);
            self.mark_orphans(at);
        }
        waited
    }

    pub(super) fn crash(&mut self, client: u32, at: u64) {
        self.believed.retain(|belief| belief.client != client);
        let waited = self.calls.len();
        self.calls.retain(|(caller, _), _| *caller != client);
        if self.calls.len() < waited {
            // Its place in a fair queue stands until it ends.
            self.waited_from = self.waited_from.max(Some(at));
        }
        self.mark_orphans(at);
    }

    /// A client that is or was out of reach gave up. Its place in a fair queue stands until it ends, or until the undo arrives.
    pub(super) fn place_left(&mut self, reachable: bool, at: u64) {
        if reachable {
            self.free_since = self.free_since.max(at);
        } else {
            self.waited_from = self.waited_from.max(Some(at));
        }
    }

    /// A client stops, or is out of reach. If it gave a call up since `recently`, the undo may not have arrived.
    pub(super) fn stopped(&mut self, client: u32, recently: u64, at: u64) {
        if self.given_up.get(&client).is_some_and(|when| *when >= recently) {
            self.place_left(false, at);
        }
    }

    /// P1 and P2, when a client has its guard. A hand-over inside a process counts as of the grant of the store that it passes on: it has the
    /// same owner and another token, after the guard before it was released. What an operator took away meanwhile is no grant any more.
    pub(super) fn grant(&mut self, name: &str, mut belief: Belief, scene: &mut Scene<'_>) {
        scene.verdict.checked(Promise::P1);
        // It may have been taken away while the answer was on its way.
        belief.forced = self.forced.contains(&belief.owner);
        if belief.forced {
            belief.gone = Some(scene.at);
        }
        // Readers of one process share a hold, and an owner that enters again has the guard's token again.
        let same = |other: &Belief| other.owner == belief.owner && other.side == belief.side && other.token == belief.token;
        let joins = |other: &&mut Belief| same(other) && (other.side == Side::Shared || other.token.is_some());
        if let Some(other) = self.believed.iter_mut().find(joins) {
            other.guards += 1;
            return;
        }
        let (at, unhealthy) = (scene.at, scene.unhealthy.map_or(0, |(when, _)| when));
        let sound = |sent: u64| sent >= unhealthy;
        let unexpired = |other: &&Belief| other.until > at && !other.forced && sound(other.sent);
        let twice = |other: &&Belief| other.owner == belief.owner && other.token != belief.token;
        if self.believed.iter().filter(unexpired).any(|other| twice(&other)) {
            scene.verdict.add(Promise::P1, at, || format!("{name:?}: {} passed on while its guard was in use", belief.owner));
        }
        let others = || self.believed.iter().filter(|other| other.owner != belief.owner).filter(unexpired);
        // A guard that its process got to see after the lease, because it was paused meanwhile, is no unexpired grant.
        if sound(belief.sent) && !belief.forced && belief.until > at {
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
            (stored.orphan_since, stored.released, stored.noticed) = (None, false, true);
        }
        self.believed.retain(|other| other.owner != belief.owner);
        self.believed.push(belief);
    }

    /// P2: larger than the tokens of all grants that were answered before this one was asked for.
    fn order(&mut self, name: &str, belief: &Belief, token: u64, scene: &mut Scene<'_>) {
        scene.verdict.checked(Promise::P2);
        let at = scene.at;
        // A repeated request is answered with the token of the first grant. The store knows when that was.
        let granted = self.granted.remove(&belief.owner).and_then(|tokens| tokens.get(&token).copied());
        let asked = granted.map_or(belief.sent, |granted| granted.min(belief.sent));
        // With another server, or a clock that was set back, grants that lie closer together than the clocks are not in order.
        let (fault, lag) = scene.unhealthy.unwrap_or((0, 0));
        let earlier = |past: &Past| {
            let apart = if past.sent <= fault && fault <= at { lag } else { 0 };
            past.owner != belief.owner && past.answered.saturating_add(apart) < asked
        };
        // Readers may have one token, and a writer that becomes a reader may keep its own.
        let may_be_equal =
            |past: &Past| belief.side == Side::Shared && (past.side == Side::Shared || past.client == belief.client);
        let goes_back = |past: &Past| if may_be_equal(past) { past.token > token } else { past.token >= token };
        let wrong = self.past.iter().find(|past| earlier(past) && goes_back(past));
        if let Some(past) = wrong {
            scene.verdict.add(Promise::P2, at, || {
                format!("{name:?}: {} got token {token} after {} had got {}", belief.owner, past.owner, past.token)
            });
        } else if self.before.0.saturating_add(lag) < asked && self.before.1 > token {
            scene
                .verdict
                .add(Promise::P2, at, || format!("{name:?}: {} got token {token} after {}", belief.owner, self.before.1));
        }
        let twin = |past: &&Past| past.token == token && past.owner != belief.owner && !may_be_equal(past) && past.sent > fault;
        if wrong.is_none()
            && let Some(past) = self.past.iter().find(twin)
        {
            scene.verdict.add(Promise::P2, at, || format!("{name:?}: {} and {} have token {token}", belief.owner, past.owner));
        }
        let Belief { client, sent, answered, side, .. } = *belief;
        self.past.push_back(Past { client, sent, answered, token, owner: belief.owner.clone(), side });
        if self.past.len() > REMEMBERED
            && let Some(oldest) = self.past.pop_front()
        {
            self.before = (self.before.0.max(oldest.answered), self.before.1.max(oldest.token));
        }
    }

    /// The store's answer lengthens a hold that is still valid; what comes later revives nothing.
    pub(super) fn keep(&mut self, owner: &str, (sent, until): (u64, u64), lease: u64, at: u64) {
        for belief in self.believed.iter_mut().filter(|belief| belief.owner == owner && belief.until >= at) {
            belief.lease = belief.lease.max(lease);
            belief.until = belief.until.max(until);
            // The store may have kept it right before it ended it; an answer to what was asked later says nothing.
            let ended_before = belief.gone.is_some_and(|gone| gone <= sent);
            belief.told_by = if ended_before { belief.told_by } else { belief.until };
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
        self.release(owner, scene.at);
    }

    pub(super) fn release(&mut self, owner: &str, at: u64) {
        for belief in self.believed.iter_mut().filter(|belief| belief.owner == owner) {
            belief.guards -= 1;
        }
        self.believed.retain(|belief| belief.guards > 0);
        self.mark_orphans(at);
    }

    /// P5: when `release()` of the last guard says `Ok`, the store holds nothing for that owner, unless the hold passes to the next guard of the
    /// process.
    pub(super) fn released(&mut self, owner: &str) {
        let in_use = self.believed.iter().any(|belief| belief.owner == owner);
        if let Some(hold) = self.stored.get_mut(owner).filter(|_| !in_use) {
            hold.released = true;
        }
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
            scene.verdict.token(scene.limits, at, name, (token, clock));
        }
        scene.verdict.checked(Promise::P1);
        // The store's clock may be fast.
        let holds = |hold: &Stored| hold.until > at.saturating_add(scene.limits.fast_by(hold.lease));
        let apart = |other: &str| other != owner && !self.writers.are_one(owner, other);
        let mut others = self.stored.iter().filter(|(other, hold)| apart(other) && holds(hold));
        if let Some((other, _)) = others.find(|(_, hold)| exclude(hold.side, side)) {
            scene.verdict.add(Promise::P1, at, || format!("{name:?}: the store holds it for {other} and for {owner}"));
        }
        let (until, lease) = scene.limits.kept_until(at, lease);
        if !self.stored.contains_key(owner) {
            self.writers.granted(owner, side, at);
        }
        let fresh = Stored {
            client,
            side,
            since: at,
            until,
            lease,
            orphan_since: None,
            released: false,
            noticed: false,
            reported: false,
        };
        let hold = self.stored.entry(owner.to_owned()).or_insert(fresh);
        if let Some(token) = token {
            self.forced.remove(owner);
            self.granted.entry(owner.to_owned()).or_default().entry(token).or_insert(at);
        }
        // What another store holds when it takes over may end sooner: it has not got the last renewals.
        let took_over = scene.unhealthy.is_some_and(|(when, _)| when == at);
        hold.until = if took_over { until } else { hold.until.max(until) };
        hold.lease = hold.lease.max(lease);
        self.mark_orphans(at);
    }

    /// Tells whether nobody stood behind the hold any more.
    pub(super) fn freed(&mut self, owner: &str, forced: bool, at: u64) -> bool {
        self.store_seen = true;
        let orphan = self.stored.remove(owner).is_some_and(|hold| hold.orphan_since.is_some());
        self.free_since = at;
        if forced {
            self.forced.insert(owner.to_owned());
        }
        for belief in self.believed.iter_mut().filter(|belief| belief.owner == owner) {
            (belief.gone, belief.forced) = (Some(at), belief.forced || forced);
        }
        orphan
    }

    pub(super) fn forget(&mut self, at: u64) {
        self.number.forgotten(at);
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
}
