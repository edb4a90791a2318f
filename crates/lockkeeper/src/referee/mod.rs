//! The referee: whether a history keeps the promises P1–P7, in the words of `docs/guarantees.md`.
//!
//! It is pure and streams: it keeps the calls and holds that are under way, and no more of the past than it needs. It judges what it is told.
//! A history without events of the store is judged by P1–P4 and P7 as the clients saw them.
//!
//! It is here, and hidden, so that programs that record histories of real servers judge by the same rules as the simulations of `verify/`.

mod due;
mod grants;
mod history;
mod limits;
mod name;
mod number;
mod verdict;
mod writers;

use std::collections::BTreeMap;

pub use grants::Grants;
pub use history::{Event, LatchAsk, Side, What, read};
pub use limits::Limits;
pub use verdict::{Promise, Verdict, Violation};

use name::{Belief, NameState};

/// What is known of a client.
#[derive(Debug, Default)]
struct ClientState {
    paused: bool,
    cut: bool,
    crashed: bool,
    /// Until then messages of the client may be missing.
    disturbed_until: u64,
    /// Since when it runs and reaches the store.
    well_since: u64,
    /// Since when it does not, if it does not.
    unwell_since: Option<u64>,
}

impl ClientState {
    /// When the client was last able to act and to reach the store; `None` if it is not.
    fn well_since(&self, at: u64) -> Option<u64> {
        let unwell = self.paused || self.cut || self.crashed || self.disturbed_until > at;
        (!unwell).then_some(self.well_since.max(self.disturbed_until))
    }

    /// Until when a place of the client in a queue may stand before others, because it was paused or out of reach.
    fn away_until(&self, place: u64) -> u64 {
        self.unwell_since.map_or(self.well_since, |since| since.saturating_add(place))
    }

    const fn runs(&self) -> bool {
        !self.paused && !self.crashed
    }
}

/// Judges a history event by event.
///
/// ```
/// use lockkeeper::referee::{Event, Limits, Promise, Referee, Side, What};
///
/// let granted = |at, client, owner: &str, token| Event {
///     at,
///     client,
///     what: What::Granted {
///         call: 1, name: "x".into(), owner: owner.into(), side: Side::Exclusive, token: Some(token), sent: at - 1, lease: 30_000_000_000,
///     },
/// };
/// let mut referee = Referee::new(Limits::default());
/// referee.observe(&granted(10, 1, "1:1", 7));
/// referee.observe(&granted(20, 2, "2:1", 8));
/// let verdict = referee.finish(30);
/// assert_eq!(verdict.violations[0].promise, Promise::P1);
/// ```
#[derive(Debug)]
pub struct Referee {
    limits: Limits,
    now: u64,
    names: BTreeMap<String, NameState>,
    clients: BTreeMap<u32, ClientState>,
    resources: BTreeMap<String, u64>,
    /// When the store was last not itself, and how far its clock fell behind then.
    unhealthy: Option<(u64, u64)>,
    /// The store does not run.
    stopped: bool,
    verdict: Verdict,
}

/// What the rules of a name need beside its own state.
struct Scene<'a> {
    at: u64,
    limits: &'a Limits,
    clients: &'a BTreeMap<u32, ClientState>,
    unhealthy: Option<(u64, u64)>,
    stopped: bool,
    verdict: &'a mut Verdict,
}

impl Scene<'_> {
    fn client(&self, client: u32) -> Option<&ClientState> {
        self.clients.get(&client)
    }
}

impl Referee {
    /// A referee that has seen nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            now: 0,
            names: BTreeMap::new(),
            clients: BTreeMap::new(),
            resources: BTreeMap::new(),
            unhealthy: None,
            stopped: false,
            verdict: Verdict::default(),
        }
    }

    /// Judges the next event.
    pub fn observe(&mut self, event: &Event) {
        self.verdict.events += 1;
        if event.at < self.now {
            let (at, before) = (event.at, self.now);
            self.verdict.add(Promise::History, at, || format!("the event at {at} comes after one at {before}"));
        }
        self.advance(event.at);
        self.clients.entry(event.client).or_default();
        match &event.what {
            What::Call { name, .. }
            | What::Granted { name, .. }
            | What::Kept { name, .. }
            | What::Probed { name, .. }
            | What::Lost { name, .. }
            | What::Release { name, .. }
            | What::Released { name, .. }
            | What::Held { name, .. }
            | What::Beside { name, .. }
            | What::Downgraded { name, .. }
            | What::Asks { name, .. }
            | What::Number { name, .. }
            | What::Took { name, .. }
            | What::Opened { name, .. }
            | What::Freed { name, .. } => self.at_name(name, event),
            What::Ended { call } => {
                let client = self.clients.entry(event.client).or_default();
                let reachable = client.unwell_since.is_none();
                let was_away = !reachable || event.at < client.well_since.saturating_add(self.limits.dead_waiter);
                for name in self.names.values_mut() {
                    if name.end_call(event.client, *call, event.at) && was_away {
                        name.place_left(reachable, event.at);
                    }
                }
            }
            What::Left { call } => {
                for name in self.names.values_mut() {
                    if name.end_call(event.client, *call, event.at) {
                        name.place_left(false, event.at);
                    }
                }
            }
            What::Crashed | What::Paused | What::Resumed | What::Cut | What::Healed | What::Disturbed { .. } => {
                self.client(event);
            }
            What::Closed => self.closed(event.client),
            What::Unhealthy { forgot, lag } => {
                self.unhealthy = Some((event.at, *lag));
                if *forgot {
                    self.names.values_mut().for_each(|name| name.forget(event.at));
                } else {
                    self.names.values_mut().for_each(|name| name.number.replaced());
                }
            }
            What::StoreStopped => self.stopped = true,
            What::StoreResumed => {
                self.stopped = false;
                self.names.values_mut().for_each(|name| name.counts_anew(event.at));
            }
            What::Token { name, token, clock } => self.verdict.token(&self.limits, event.at, name, (*token, *clock)),
            What::Note { .. } | What::LatchAsks { .. } | What::LatchAnswers { .. } => {}
            What::Wrote { resource, token, read, wrote } => self.write(event.at, resource, *token, *read, *wrote),
        }
    }

    /// What was found so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.verdict.violations
    }

    /// Ends the history at `at`, true time, and tells what was found.
    #[must_use]
    pub fn finish(mut self, at: u64) -> Verdict {
        self.advance(at);
        self.verdict
    }

    /// Checks everything that was due before `at`.
    fn advance(&mut self, at: u64) {
        self.now = self.now.max(at);
        let Self { limits, now, names, clients, unhealthy, stopped, verdict, .. } = self;
        let mut scene = Scene { at: *now, limits, clients, unhealthy: *unhealthy, stopped: *stopped, verdict };
        for (name, state) in names {
            state.advance(name, &mut scene);
        }
    }

    fn at_name(&mut self, name: &str, event: &Event) {
        if !self.names.contains_key(name) {
            self.names.insert(name.to_owned(), NameState::default());
        }
        let Self { limits, now, names, clients, unhealthy, stopped, verdict, .. } = self;
        let mut scene = Scene { at: *now, limits, clients, unhealthy: *unhealthy, stopped: *stopped, verdict };
        let Some(state) = names.get_mut(name) else { return };
        match &event.what {
            What::Call { call, .. } => state.call(event.client, *call, event.at),
            What::Granted { call, owner, side, token, sent, lease, .. } => {
                state.end_call(event.client, *call, event.at);
                let until = limits.valid_until(*sent, *lease);
                let belief = Belief::new(event.client, owner, *side, *token, (*sent, event.at, until), *lease);
                state.grant(name, belief, &mut scene);
            }
            What::Kept { owner, sent, lease, .. } => {
                state.keep(owner, (*sent, limits.valid_until(*sent, *lease)), *lease, event.at);
            }
            What::Probed { owner, valid, .. } => state.probe(name, owner, *valid, &mut scene),
            What::Lost { owner, .. } => state.lost(owner, &mut scene),
            What::Release { owner, .. } => state.release(owner, event.at),
            What::Released { owner, .. } => state.released(owner),
            What::Held { owner, side, token, lease, clock, .. } => {
                state.held(name, (event.client, owner), *side, (*token, *clock), *lease, &mut scene);
            }
            What::Freed { owner, forced, .. } => {
                // Without a lease of its own this is how it ends.
                let ended = state.freed(owner, *forced, event.at);
                if ended && scene.limits.session.is_some() {
                    scene.verdict.checked(Promise::P5);
                }
            }
            What::Beside { owner, writer, .. } => state.writers.lets_in(owner, writer),
            What::Downgraded { from, to, .. } => state.downgraded(name, (from, to), &mut scene),
            What::Asks { change, .. } => state.number.asked(*change),
            What::Number { value, .. } => state.number.changes(name, *value, &mut scene),
            What::Took { permits, .. } => state.number.took(name, *permits, &mut scene),
            What::Opened { call, .. } => {
                let began = state.calls.get(&(event.client, *call)).copied();
                state.number.opened(name, began, &mut scene);
                state.end_call(event.client, *call, event.at);
            }
            _ => {}
        }
    }

    /// P5: what a client that closed holds at the store.
    fn closed(&mut self, client: u32) {
        let Self { limits, now, names, clients, unhealthy, stopped, verdict, .. } = self;
        let mut scene = Scene { at: *now, limits, clients, unhealthy: *unhealthy, stopped: *stopped, verdict };
        for (name, state) in names.iter_mut() {
            state.closed(name, client, &mut scene);
        }
    }

    fn client(&mut self, event: &Event) {
        if matches!(event.what, What::Crashed | What::Paused | What::Cut) {
            let recently = event.at.saturating_sub(2 * self.limits.round_trip + self.limits.longest_delay + self.limits.slack);
            self.names.values_mut().for_each(|name| name.stopped(event.client, recently, event.at));
        }
        let state = self.clients.entry(event.client).or_default();
        // It may have been heard of until here. Cut off in one direction that is until its connection breaks; and it goes on from here.
        let heard = state.cut || !matches!(event.what, What::Disturbed { .. });
        if heard && self.limits.session.is_some() {
            self.names.values_mut().for_each(|name| name.last_contact(event.client, event.at));
        }
        match &event.what {
            What::Crashed => {
                state.crashed = true;
                self.names.values_mut().for_each(|name| name.crash(event.client, event.at));
            }
            What::Paused => {
                state.paused = true;
                state.unwell_since.get_or_insert(event.at);
            }
            What::Resumed => {
                state.paused = false;
                state.well_since = event.at;
                state.unwell_since = None;
                let told_by = event.at.saturating_add(self.limits.told_after_pause);
                self.names.values_mut().for_each(|name| name.resumed(event.client, told_by));
            }
            What::Cut => {
                state.cut = true;
                state.unwell_since.get_or_insert(event.at);
                self.names.values_mut().for_each(|name| name.out_of_reach(event.client));
            }
            What::Healed => {
                state.cut = false;
                state.well_since = event.at;
                state.unwell_since = None;
            }
            What::Disturbed { lasts } => {
                state.disturbed_until = state.disturbed_until.max(event.at.saturating_add(*lasts));
                self.names.values_mut().for_each(|name| name.out_of_reach(event.client));
            }
            _ => {}
        }
    }

    /// P7: a write that was computed from anything but the last acknowledged value undoes what was acknowledged since.
    fn write(&mut self, at: u64, resource: &str, token: u64, read: u64, wrote: u64) {
        self.verdict.checked(Promise::P7);
        let before = self.resources.insert(resource.to_owned(), wrote);
        if let Some(before) = before.filter(|before| *before != read) {
            self.verdict.add(Promise::P7, at, || {
                format!("{resource:?}: token {token} wrote {wrote} from {read}, but {before} had been acknowledged")
            });
        }
    }
}
