//! Every request on records, written once for all stores that run the model: load what the request needs, take the step, save what
//! changed, say whom to wake.

use std::collections::BTreeMap;

use super::rows::Loaded;
use super::tokens::next_token;
use crate::backend::{
    Acquire, Attempt, AttemptAll, Claim, Count, CountOutcome, Holder, Release, Released, Renew, Renewed, Snapshot,
};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Asked, Now, Record, RequestRef, Step, Wake};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::Instant;

/// Where the engine finds records. All that happens between `load` and `save` happens in one step of the store.
pub(crate) trait Rows {
    /// What tells whether an owner is alive, where the store knows more than its lease.
    type Peer: Copy + Ord;

    /// What lies under the name: all of it, or at least the parts that the request needs.
    fn load(&mut self, name: &Name, request: RequestRef<'_>, at: Instant) -> Result<Entry<Self::Peer>>;

    /// Keeps what was loaded, as it is now. Called after `load`, also when nothing changed, unless the request only looked.
    fn save(&mut self, name: &Name, entry: Entry<Self::Peer>) -> Result<()>;

    /// Takes back what was loaded only to look at it. Writes nothing: the store may be reading only.
    fn put_back(&mut self, _name: &Name, _entry: Entry<Self::Peer>) {}

    /// Wakes waiters once the step is done; returns how many, as far as that is known.
    fn wake(&mut self, name: &Name, waking: Waking<Self::Peer>) -> Result<u32>;

    /// Whether the peer is known to be dead.
    fn is_gone(&mut self, _peer: Self::Peer) -> bool {
        false
    }

    /// Whether another client than this one listens at the name.
    fn has_other_listeners(&mut self, _name: &Name, _client: ClientId) -> Result<bool> {
        Ok(false)
    }

    /// A request was refused because of owners of these peers, which are alive.
    fn blocked_by(&mut self, _name: &Name, _peers: &[Self::Peer]) {}
}

/// What lies under one name, as far as it was loaded.
#[derive(Clone, Debug)]
pub(crate) struct Entry<P> {
    pub(crate) record: Record,
    /// The last token that the name's own row knows of.
    pub(crate) last_token: u64,
    /// The last token of names that have no row.
    pub(crate) floor: u64,
    /// The peers of the owners in the record.
    pub(crate) peers: BTreeMap<WireOwner, P>,
    /// What was read of a table.
    pub(super) loaded: Loaded<P>,
}

impl<P> Default for Entry<P> {
    fn default() -> Self {
        Self::whole(Record::default(), 0)
    }
}

impl<P> Entry<P> {
    /// A whole record, for stores that keep no rows.
    pub(crate) fn whole(record: Record, last_token: u64) -> Self {
        Self { record, last_token, floor: 0, peers: BTreeMap::new(), loaded: Loaded::default() }
    }
}

/// A name before and after a step that may be taken back, and whom the step wakes.
type Tried<P> = (Entry<P>, Entry<P>, Wake);

/// Whom to wake at a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waking<P> {
    pub(crate) wake: Wake,
    /// The peer of the first waiter.
    pub(crate) head: Option<P>,
    /// A mutex was released in good order: one of all waiters gets it, so a store may wake a few of many.
    pub(crate) for_one: bool,
}

/// What the engine has to know of an answer.
trait Answer {
    /// Somebody was in the way: if that one is dead, the step is worth another try.
    fn is_blocked(&self) -> bool {
        false
    }

    /// The largest token that was granted.
    fn token(&self) -> Option<u64> {
        None
    }
}

impl Answer for Attempt {
    fn is_blocked(&self) -> bool {
        matches!(self, Self::Busy(_))
    }

    fn token(&self) -> Option<u64> {
        if let Self::Granted(grant) = self { grant.last_token() } else { None }
    }
}

impl Answer for Released {
    fn token(&self) -> Option<u64> {
        self.next.and_then(|next| next.token())
    }
}

impl Answer for CountOutcome {
    /// A semaphore is not removed while permits are held.
    fn is_blocked(&self) -> bool {
        matches!(self, Self::Counted(counted) if !counted.done)
    }
}

impl Answer for Vec<Holder> {}

/// Carries out requests at one moment of a store's clock.
#[derive(Debug)]
pub(crate) struct RecordEngine<'a, R: Rows> {
    rows: &'a mut R,
    at: Instant,
    /// The server's wall clock in µs, from which tokens come.
    micros: u64,
    /// The peer of owners that come in now.
    peer: Option<R::Peer>,
    /// The last token that this engine granted.
    granted: u64,
}

impl<'a, R: Rows> RecordEngine<'a, R> {
    pub(crate) fn new(rows: &'a mut R, at: Instant, micros: u64, peer: Option<R::Peer>) -> Self {
        Self { rows, at, micros, peer, granted: 0 }
    }

    /// Grants no token below `floor`, which a quorum agreed on.
    pub(crate) fn with_token_floor(mut self, floor: u64) -> Self {
        self.micros = self.micros.max(floor);
        self
    }

    pub(crate) fn acquire(&mut self, request: &Acquire) -> Result<Attempt> {
        let asked = RequestRef::Acquire(request);
        Ok(self.step(&request.name, asked, Some(request.owner), |record, now| record.acquire(request, now))?.0)
    }

    /// All or none. Nothing is saved before all are granted.
    pub(crate) fn acquire_all(&mut self, requests: &[Acquire]) -> Result<AttemptAll> {
        if requests.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "acquire_all needs at least one name"));
        }
        // Each name as it was loaded, as it is now, and whom to wake.
        let mut entries: BTreeMap<Name, Tried<R::Peer>> = BTreeMap::new();
        let mut grants = Vec::with_capacity(requests.len());
        let mut refused = None;
        for (index, request) in requests.iter().enumerate() {
            // A waiter for several names has no place in the queue of one.
            let request = Acquire { place: None, ..request.clone() };
            let asked = RequestRef::Acquire(&request);
            if !entries.contains_key(&request.name) {
                // Whole, because several owners may ask for one name here.
                let entry = self.rows.load(&request.name, RequestRef::Whole, self.at)?;
                entries.insert(request.name.clone(), (entry.clone(), entry, Wake::NOBODY));
            }
            let Some((_, entry, woken)) = entries.get_mut(&request.name) else { continue };
            let taken = self.take(&request.name, entry, asked, Some(request.owner), |record, now| record.acquire(&request, now));
            refused = match taken {
                Ok((Attempt::Granted(grant), wake)) => {
                    *woken = merged(*woken, wake);
                    grants.push(grant);
                    continue;
                }
                Ok((Attempt::Busy(busy), _)) => Some(Ok(AttemptAll::Busy { index, busy })),
                Ok((Attempt::Late, _)) => Some(Ok(AttemptAll::Late)),
                Err(error) => Some(Err(error)),
            };
            break;
        }
        for (name, (before, after, wake)) in entries {
            if refused.is_some() {
                self.rows.save(&name, before)?;
            } else {
                self.finish(&name, after, wake, false)?;
            }
        }
        refused.unwrap_or(Ok(AttemptAll::Granted(grants)))
    }

    pub(crate) fn release(&mut self, request: &Release) -> Result<Released> {
        if self.must_let_go(request)? {
            return self.release(&Release { then: None, if_alone: false, ..request.clone() });
        }
        let then = request.then.as_ref().map(|then| then.owner);
        let asked = RequestRef::Release(request);
        let (released, woke) = self.step(&request.name, asked, then, |record, now| record.release(request, now))?;
        Ok(released.with_woke(woke))
    }

    /// Whether a hold that is to be kept if nobody else waits is released, because another client listens. The model looks at the queue.
    fn must_let_go(&mut self, request: &Release) -> Result<bool> {
        let Some(then) = request.then.as_ref().filter(|_| request.if_alone) else { return Ok(false) };
        if !self.rows.has_other_listeners(&request.name, request.owner.client)? {
            return Ok(false);
        }
        // A repeated request gets the answer that it got before the other client came.
        Ok(!self.renew(&Renew::new(then.name.clone(), Claim::Mutex, then.owner, None))?.is_kept())
    }

    pub(crate) fn renew(&mut self, request: &Renew) -> Result<Renewed> {
        let end = self.renew_as(request, &Asked::plain(request.lease))?;
        Ok(if end.is_some() { Renewed::kept(request.lease) } else { Renewed::Gone })
    }

    /// The same where the clock can be set back. When the hold ends now; `None`: it is gone.
    pub(crate) fn renew_as(&mut self, request: &Renew, asked: &Asked) -> Result<Option<Instant>> {
        let mut entry = self.rows.load(&request.name, RequestRef::Renew(request), self.at)?;
        let gone = entry.peers.get(&request.owner).is_some_and(|peer| self.rows.is_gone(*peer));
        // A renewal grants no token.
        let now = Now { at: self.at, token: 0 };
        let end = if gone { None } else { entry.record.renew_as(request, asked, now) };
        self.rows.save(&request.name, entry)?;
        Ok(end)
    }

    pub(crate) fn count(&mut self, request: &Count) -> Result<CountOutcome> {
        Ok(self.step(&request.name, RequestRef::Count(request), None, |record, now| record.count(request, now))?.0)
    }

    pub(crate) fn force_release(&mut self, name: &Name) -> Result<Vec<Holder>> {
        // Dead owners hold nothing that could be taken from them.
        self.forget_gone(name)?;
        Ok(self.step(name, RequestRef::Whole, None, |record, now| Ok(record.force_release(now)))?.0)
    }

    /// What can be seen of the name. Dead owners are left out, and stay for the next step that they block.
    pub(crate) fn snapshot(&mut self, name: &Name) -> Result<Option<Snapshot>> {
        let entry = self.rows.load(name, RequestRef::Whole, self.at)?;
        let gone = self.gone(&entry, entry.record.owners());
        let seen = if gone.is_empty() {
            entry.record.snapshot(name, self.at)
        } else {
            let mut living = entry.record.clone();
            living.forget(&|owner| entry.peers.get(&owner).is_some_and(|peer| gone.contains(peer)));
            living.snapshot(name, self.at)
        };
        self.rows.put_back(name, entry);
        Ok(seen)
    }

    /// Removes what dead owners have at the name, and wakes those whom that concerns.
    pub(crate) fn forget_gone(&mut self, name: &Name) -> Result<()> {
        let mut entry = self.rows.load(name, RequestRef::Whole, self.at)?;
        let gone = self.gone(&entry, entry.record.owners());
        let wake = forget(&mut entry, &gone);
        self.finish(name, entry, wake, false).map(drop)
    }

    /// One step on one name: its answer, and how many it woke. `newcomer` may come into the record by it.
    fn step<T: Answer>(
        &mut self,
        name: &Name,
        request: RequestRef<'_>,
        newcomer: Option<WireOwner>,
        step: impl FnMut(&mut Record, Now) -> Result<Step<T>>,
    ) -> Result<(T, u32)> {
        let mut entry = self.rows.load(name, request, self.at)?;
        match self.take(name, &mut entry, request, newcomer, step) {
            Ok((answer, wake)) => {
                let for_one = matches!(request, RequestRef::Release(Release { claim: Claim::Mutex | Claim::Fair, .. }));
                Ok((answer, self.finish(name, entry, wake, for_one)?))
            }
            Err(error) => {
                self.rows.save(name, entry)?;
                Err(error)
            }
        }
    }

    fn take<T: Answer>(
        &mut self,
        name: &Name,
        entry: &mut Entry<R::Peer>,
        request: RequestRef<'_>,
        newcomer: Option<WireOwner>,
        mut step: impl FnMut(&mut Record, Now) -> Result<Step<T>>,
    ) -> Result<(T, Wake)> {
        let last = entry.last_token.max(entry.floor).max(self.granted);
        let now = Now { at: self.at, token: next_token(last, self.micros) };
        let mut answer = step(&mut entry.record, now);
        let mut woken = Wake::NOBODY;
        while is_blocked(&answer) && !entry.peers.is_empty() {
            let blockers = entry.record.blockers(request);
            let gone = self.gone(entry, blockers.iter().copied());
            if gone.is_empty() {
                let mut peers: Vec<R::Peer> = Vec::new();
                for peer in blockers.iter().filter_map(|owner| entry.peers.get(owner)) {
                    if !peers.contains(peer) {
                        peers.push(*peer);
                    }
                }
                self.rows.blocked_by(name, &peers);
                break;
            }
            woken = merged(woken, forget(entry, &gone));
            answer = step(&mut entry.record, now);
        }
        let Step { answer, wake } = answer?;
        if let Some(token) = answer.token() {
            entry.last_token = entry.last_token.max(token);
            self.granted = self.granted.max(token);
        }
        if let (Some(newcomer), Some(peer)) = (newcomer, self.peer) {
            entry.peers.insert(newcomer, peer);
        }
        let mut wake = merged(wake, woken);
        // It knows already.
        wake.head = wake.head.filter(|head| Some(*head) != newcomer);
        Ok((answer, wake))
    }

    /// The peers of these owners that are dead.
    fn gone(&mut self, entry: &Entry<R::Peer>, owners: impl IntoIterator<Item = WireOwner>) -> Vec<R::Peer> {
        let (mut asked, mut gone) = (Vec::new(), Vec::new());
        for peer in owners.into_iter().filter_map(|owner| entry.peers.get(&owner)) {
            if !asked.contains(peer) {
                asked.push(*peer);
                if self.rows.is_gone(*peer) {
                    gone.push(*peer);
                }
            }
        }
        gone
    }

    fn finish(&mut self, name: &Name, entry: Entry<R::Peer>, wake: Wake, for_one: bool) -> Result<u32> {
        let head = wake.head.and_then(|head| entry.peers.get(&head).copied());
        self.rows.save(name, entry)?;
        if wake == Wake::NOBODY { Ok(0) } else { self.rows.wake(name, Waking { wake, head, for_one }) }
    }
}

fn forget<P: Copy + Ord>(entry: &mut Entry<P>, gone: &[P]) -> Wake {
    if gone.is_empty() {
        return Wake::NOBODY;
    }
    let Entry { record, peers, .. } = entry;
    record.forget(&|owner| peers.get(&owner).is_some_and(|peer| gone.contains(peer)))
}

fn is_blocked<T: Answer>(answer: &Result<Step<T>>) -> bool {
    match answer {
        Ok(step) => step.answer.is_blocked(),
        Err(error) => error.kind() == ErrorKind::WrongKind,
    }
}

fn merged(one: Wake, other: Wake) -> Wake {
    Wake { all: one.all || other.all, head: one.head.or(other.head) }
}
