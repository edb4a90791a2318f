//! Acquire and renew: each is one transaction where nobody is in the way. `release` has the third one.
//!
//! etcd has no `not_after`: a delayed request could still make its key. So each compares the version of a gate, and a release that must settle an
//! unknown outcome raises the gate in the same transaction in which it deletes the key. What arrives later does nothing.

use super::Inner;
use super::error::Failed;
use super::keys::{self, Value};
use super::places::Place;
use super::proto::{Compare, KeyValue, RequestOp};
use super::request::{
    MOST, created_at, delete, found, get, is_absent, is_present, none_below, none_since, oldest, put, range, txn, version_is,
};
use super::session::Lease;
use super::view::{Numbers, Stands, View, token};
use crate::backend::{Acquire, Attempt, Busy, Claim, Count, CountOp, Grant, Kind, Renew, Renewed, SemaphoreOp};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Now;
use crate::runtime::Instant;
use crate::store::queue::Want;

/// How often a request is sent again because it learned a gate, or because keys of other names were in the way.
const TRIES: usize = 8;

impl Inner {
    pub(super) async fn acquire(&self, request: Acquire) -> Result<Attempt> {
        keys::check(&request.name, self.transport.config.slashes)?;
        let sent = self.transport.runtime.now();
        let lease = self.session.fresh(&self.transport).await.map_err(Failed::into_error)?;
        let Acquire { name, claim, owner, .. } = &request;
        let key = keys::node_key(name, *claim, lease.id, *owner, self.session.client(owner.client));
        let known = self.session.places.get(name, *owner, *claim).filter(|place| place.session == lease.number);
        let place = self.session.places.enter(name, *owner, *claim, &lease, key);
        if place.revision > 0 {
            match self.session.hub.stands(name, &place.key, sent) {
                Some(Stands::Holds(node)) => return Ok(self.granted(&request, &lease, node.revision, token(&node), sent)),
                Some(Stands::Waits(busy)) => return Ok(Attempt::Busy(busy)),
                Some(Stands::Absent) | None => {}
            }
        }
        let mut answer = self.ask(&request, &lease, &place, sent).await;
        if let Err(error) = &answer
            && known.is_none()
            && !error.may_have_taken()
            && self.session.places.get(name, *owner, *claim).is_some_and(|place| place.revision > 0)
        {
            // The key was made before the request failed, and the caller takes this error to mean that nothing was done. An owner that was known
            // keeps its place in the queue: its caller releases it.
            answer = self.withdraw(&request, &place).await.and(answer);
        }
        let nothing_left = match &answer {
            Ok(Attempt::Busy(busy)) => !busy.placed,
            Ok(_) => false,
            Err(error) => !error.may_have_taken(),
        };
        if nothing_left && known.is_none() {
            self.session.places.remove(name, *owner, *claim);
        }
        answer
    }

    async fn ask(&self, request: &Acquire, lease: &Lease, place: &Place, sent: Instant) -> Result<Attempt> {
        let Acquire { name, claim, .. } = request;
        // One who will not wait makes a key only where none is in the way.
        let mut only_if_free = request.place.is_none() && request.beside.is_none() && claim.kind() != Kind::Semaphore;
        // The semaphore is made where nothing of another kind was seen, if no key came since then.
        let mut nothing_since = None;
        for _ in 0..TRIES {
            let gate = self.session.gate(name);
            let mut compare = vec![version_is(keys::gate_key(name, lease.id), gate), is_absent(place.key.clone())];
            let writer = self.own_writer(request, lease);
            // Where the writer was deleted by somebody else, its number is before those who were granted since.
            compare.extend(writer.as_ref().map(|writer| created_at(writer.key.clone(), writer.revision)));
            let mut make = Vec::new();
            if only_if_free {
                compare.push(free(request));
            }
            if claim.kind() == Kind::Semaphore {
                let record = keys::record_key(name);
                if let Some(seen) = nothing_since {
                    compare.extend([is_absent(record.clone()), none_since(keys::prefix(name), seen)]);
                    make.push(put(record, self.new_semaphore(request)?, 0));
                } else {
                    compare.push(is_present(record));
                }
            }
            make.push(put(place.key.clone(), self.value(request, lease)?, lease.id));
            make.extend(reads(request));
            let mut otherwise = vec![get(keys::gate_key(name, lease.id)), get(place.key.clone())];
            otherwise.extend(reads(request));
            let answer = self.transport.txn(txn(compare, make, otherwise)).await;
            let answer = answer.map_err(|failed| self.session.failed(lease.id, failed))?;
            // A key that is made has the revision of the transaction that makes it.
            let made = answer.succeeded.then(|| answer.header.map_or(0, |header| header.revision));
            let mut views = found(answer.responses);
            if made.is_none() {
                let version = views.next().and_then(|gate| gate.first().map(|gate| gate.version)).unwrap_or(0);
                self.session.learn_gate(lease.id, name, version);
                if version > gate {
                    continue;
                }
            }
            let own = match made {
                Some(revision) => Some(revision),
                None => views.next().and_then(|own| own.first().map(|own| own.create_revision)),
            };
            let views: Vec<_> = views.collect();
            if let Some(revision) = own {
                self.session.places.update(name, request.owner, *claim, lease.number, |place| place.revision = revision);
                return self.judge(request, lease, place, revision, views, sent).await;
            }
            if writer.is_some() {
                return Err(Error::new(ErrorKind::Lost, format!("the write hold on {name:?} was lost")));
            }
            // Not made, and not there: others are in the way, or the semaphore is missing.
            let view = self.view(request, views).await?;
            view.check_kind(name, claim.kind(), &place.key)?;
            if claim.kind() == Kind::Semaphore {
                nothing_since = view.numbers.is_none().then_some(view.newest);
                self.check_size(request, &view)?;
            } else if view.nodes().is_empty() || !is_in_the_way(request, &view) {
                // Keys of longer names, which are not in the way of this one.
                only_if_free = false;
            } else {
                return Ok(Attempt::Busy(Busy::new(None)));
            }
        }
        let message = format!("others changed {name:?} at etcd {TRIES} times while it was asked for; nothing was done");
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// The owner's key is there: does it hold the name?
    async fn judge(
        &self,
        request: &Acquire,
        lease: &Lease,
        place: &Place,
        revision: i64,
        views: Vec<Vec<KeyValue>>,
        sent: Instant,
    ) -> Result<Attempt> {
        let Acquire { name, claim, owner, .. } = request;
        if request.beside.is_none() && is_clearly_first(*claim, &place.key, revision, &views) {
            let token = (claim.kind() != Kind::Semaphore).then(|| u64::try_from(revision).unwrap_or(0));
            return Ok(self.granted(request, lease, revision, token, sent));
        }
        if let Some(oldest) = views.first().and_then(|kvs| kvs.first()) {
            self.session.hub.compare(name, oldest.create_revision);
        }
        let stands = if request.place.is_some() && is_clearly_behind(*claim, &place.key, &views) {
            Stands::Waits(Busy::new(None).with_placed(true))
        } else {
            let view = self.view(request, views).await?;
            view.check_kind(name, claim.kind(), &place.key)?;
            self.check_size(request, &view)?;
            view.stands(name, &place.key)
        };
        match stands {
            Stands::Holds(node) => Ok(self.granted(request, lease, revision, token(&node), sent)),
            Stands::Waits(_) if request.place.is_none() => {
                self.withdraw(request, place).await?;
                Ok(Attempt::Busy(Busy::new(None)))
            }
            Stands::Waits(busy) => Ok(Attempt::Busy(busy)),
            Stands::Absent => {
                self.session.places.remove(name, *owner, *claim);
                Err(Error::new(ErrorKind::Unavailable, format!("the key of a waiter for {name:?} was deleted; asking again")))
            }
        }
    }

    /// Everything under the name: what was read already, or read now.
    async fn view(&self, request: &Acquire, views: Vec<Vec<KeyValue>>) -> Result<View> {
        let Acquire { name, claim, .. } = request;
        if claim.kind() == Kind::Semaphore
            && let Some(all) = views.into_iter().next()
        {
            return View::of(name, all);
        }
        self.read(name).await
    }

    pub(super) async fn read(&self, name: &crate::name::Name) -> Result<View> {
        let asked = self.transport.range(oldest(keys::prefix(name), 0));
        View::of(name, asked.await.map_err(Failed::into_error)?.kvs)
    }

    fn granted(&self, request: &Acquire, lease: &Lease, revision: i64, token: Option<u64>, sent: Instant) -> Attempt {
        let Acquire { name, claim, owner, .. } = request;
        self.session.places.update(name, *owner, *claim, lease.number, |place| {
            (place.granted, place.revision) = (true, revision);
        });
        Attempt::Granted(Grant::new(token, lease.good_for(sent)).in_session(lease.number))
    }

    /// Deletes a key that must not stay.
    async fn withdraw(&self, request: &Acquire, place: &Place) -> Result<()> {
        let gone = self.transport.txn(txn(Vec::new(), vec![delete(place.key.clone())], Vec::new())).await;
        // The key may be there, whatever the reason: the caller undoes it.
        gone.map_err(|failed| {
            let error = self.session.failed(place.lease, failed);
            Error::new(ErrorKind::Indeterminate, format!("the key of {:?} was not withdrawn: {error}", request.name))
        })?;
        Ok(())
    }

    /// The writer beside which the request wants to read, if it was granted in this session.
    fn own_writer(&self, request: &Acquire, lease: &Lease) -> Option<Place> {
        let writer = self.session.places.get(&request.name, request.beside?, Claim::Write)?;
        Some(writer).filter(|writer| writer.granted && writer.session == lease.number)
    }

    fn value(&self, request: &Acquire, lease: &Lease) -> Result<Vec<u8>> {
        let take = if let Claim::Permits { take, .. } = request.claim { Some(take) } else { None };
        let order = self.own_writer(request, lease).map(|writer| writer.revision);
        if let (Some(writer), Some(_)) = (request.beside, order) {
            self.session.places.update(&request.name, writer, Claim::Write, lease.number, |writer| writer.has_reader = true);
        }
        let value = Value { owner: request.owner.to_string(), take, order };
        serde_json::to_vec(&value)
            .map_err(|cause| Error::new(ErrorKind::Protocol, "an owner cannot be written").with_source(cause))
    }

    /// The record of a semaphore of the size that was asked for.
    fn new_semaphore(&self, request: &Acquire) -> Result<Vec<u8>> {
        let Claim::Permits { take, of } = request.claim else { return Ok(Vec::new()) };
        if take == 0 || take > of {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("cannot take {take} of {of} permits of {:?}", request.name),
            ));
        }
        let mut numbers = Numbers::default();
        let init = CountOp::Semaphore(SemaphoreOp::Init(of));
        let count = Count::new(request.name.clone(), request.owner, init, std::time::Duration::ZERO);
        numbers.record.count(&count, Now { at: super::view::NO_TIME, token: 0 })?;
        super::numbers::written(&mut numbers)
    }

    fn check_size(&self, request: &Acquire, view: &View) -> Result<()> {
        let (Claim::Permits { take, of }, Some(numbers)) = (request.claim, &view.numbers) else { return Ok(()) };
        let total = numbers.snapshot(&request.name).and_then(|seen| seen.total).unwrap_or(of);
        let place = self.session.places.get(&request.name, request.owner, request.claim);
        let known = place.is_some_and(|place| place.granted);
        if (total != of && !request.any_size) || take == 0 || (take > total && !known) {
            let message = format!("cannot take {take} of {of} permits of {:?}, which has {total}", request.name);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(())
    }

    pub(super) async fn renew(&self, requests: Vec<Renew>) -> Result<Vec<Result<Renewed>>> {
        let sent = self.transport.runtime.now();
        let lengthen = requests.iter().any(|request| request.lease.is_some());
        let lease = match self.session.lease() {
            Some(_) if lengthen => Some(self.session.keep_alive(&self.transport).await.map_err(Failed::into_error)?),
            lease => lease,
        };
        let place_of = |request: &Renew| {
            let place = self.session.places.get(&request.name, request.owner, request.claim);
            place.filter(|place| place.granted && lease.is_some_and(|lease| place.session == lease.number))
        };
        let places: Vec<Option<Place>> = requests.iter().map(place_of).collect();
        let mut there = std::collections::HashSet::new();
        let held: Vec<&Place> = places.iter().flatten().collect();
        for some in held.chunks(MOST) {
            let ops: Vec<RequestOp> = some.iter().map(|place| get(place.key.clone())).collect();
            let answer = self.transport.txn(txn(Vec::new(), ops, Vec::new())).await.map_err(Failed::into_error)?;
            there.extend(found(answer.responses).flatten().map(|kv| kv.key));
        }
        let mut answers = Vec::with_capacity(requests.len());
        for (request, place) in requests.iter().zip(&places) {
            answers.push(Ok(match place {
                Some(place) if there.contains(&place.key) => {
                    Renewed::kept(request.lease.and(lease).map(|lease| lease.good_for(sent)))
                }
                Some(_) => {
                    self.session.places.remove(&request.name, request.owner, request.claim);
                    Renewed::Gone
                }
                // It may live in a session that is not ours: then it is seen, and not lengthened.
                None if request.lease.is_none() && self.is_held(request).await? => Renewed::kept(None),
                None => Renewed::Gone,
            }));
        }
        Ok(answers)
    }

    async fn is_held(&self, request: &Renew) -> Result<bool> {
        let view = self.read(&request.name).await?;
        Ok(view.find(&request.name, request.owner, request.claim).is_some_and(|(_, held)| held))
    }
}

/// That nobody is in the way.
fn free(request: &Acquire) -> Compare {
    match request.claim {
        Claim::Read => none_below(keys::prefix_of(&request.name, Want::Write)),
        _ => none_below(keys::prefix(&request.name)),
    }
}

/// Whether a request that does not wait has to give up.
fn is_in_the_way(request: &Acquire, view: &View) -> bool {
    view.nodes().iter().any(|node| request.claim != Claim::Read || node.want == Want::Write)
}

/// What a claim has to see: the oldest key of all, and for readers the oldest writer, for writers whether there are readers. For permits, all.
fn reads(request: &Acquire) -> Vec<RequestOp> {
    let name = &request.name;
    let first = || range(oldest(keys::prefix(name), 1));
    match request.claim {
        Claim::Mutex | Claim::Fair => vec![first()],
        Claim::Write => vec![first(), range(oldest(keys::prefix_of(name, Want::Read), 1))],
        Claim::Read => vec![first(), range(oldest(keys::prefix_of(name, Want::Write), 1))],
        Claim::Permits { .. } => vec![range(oldest(keys::prefix(name), 0))],
    }
}

/// Whether what was read shows that this key holds the name. If not, everything has to be looked at.
fn is_clearly_first(claim: Claim, key: &[u8], revision: i64, views: &[Vec<KeyValue>]) -> bool {
    let first = |view: usize| views.get(view).and_then(|kvs| kvs.first());
    match claim {
        Claim::Mutex | Claim::Fair => first(0).is_some_and(|kv| kv.key == key),
        // A reader beside a writer that has gone is younger than this writer, and comes before it.
        Claim::Write => first(0).is_some_and(|kv| kv.key == key) && first(1).is_none(),
        Claim::Read => {
            let folder = key.iter().rposition(|byte| *byte == b'/').map(|end| &key[..=end]);
            let is_reader = |kv: &KeyValue| folder.is_some_and(|folder| kv.key.starts_with(folder));
            first(0).is_some_and(is_reader) && first(1).is_none_or(|writer| writer.create_revision > revision)
        }
        Claim::Permits { .. } => false,
    }
}

/// Whether what was read shows that this key waits: a mutex behind another one.
fn is_clearly_behind(claim: Claim, key: &[u8], views: &[Vec<KeyValue>]) -> bool {
    let Some(first) = views.first().and_then(|kvs| kvs.first()) else { return false };
    let prefix = key.iter().rposition(|byte| *byte == b'/').map(|end| &key[..=end]);
    let is_neighbour =
        |prefix: &[u8]| first.key.strip_prefix(prefix).is_some_and(|rest| !rest.contains(&b'/') && !rest.starts_with(b"."));
    matches!(claim, Claim::Mutex | Claim::Fair) && first.key != key && prefix.is_some_and(is_neighbour)
}
