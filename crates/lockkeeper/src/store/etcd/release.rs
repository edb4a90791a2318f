//! Release: the key of an owner is deleted; and where a request of that owner got no answer, the gate is raised in the same step, so that what
//! arrives later makes no key.

use super::Inner;
use super::error::Failed;
use super::keys;
use super::places::Place;
use super::proto::ResponseOp;
use super::request::{created_at, delete, deleted, found, get, put, txn};
use crate::backend::{Claim, Release, Released};
use crate::error::Result;
use crate::name::Name;
use crate::store::queue::Want;

impl Inner {
    pub(super) async fn release(&self, request: Release) -> Result<Released> {
        let Release { name, claim, owner, settle, .. } = &request;
        let Some(place) = self.session.places.get(name, *owner, *claim) else {
            // A request of this owner may still be under way, though it was released.
            if let Some(lease) = self.session.lease().filter(|_| *settle) {
                self.raise_gate(name, lease.id).await?;
            }
            return self.release_of_another(&request).await;
        };
        if self.session.lease().is_none_or(|lease| lease.number != place.session) {
            // What lived in an earlier session ended with it.
            self.session.places.remove(name, *owner, *claim);
            return Ok(Released::new(false));
        }
        if place.has_reader && place.granted && self.keep_for_reader(&request, &place).await? {
            if *settle {
                self.raise_gate(name, place.lease).await?;
            }
            self.session.places.remove(name, *owner, *claim);
            return Ok(Released::new(true));
        }
        let mut ops = vec![delete(place.key.clone())];
        ops.extend(place.keeps.clone().map(delete));
        let only_delete = ops.clone();
        let gate = keys::gate_key(name, place.lease);
        if *settle {
            ops.extend([put(gate.clone(), Vec::new(), place.lease), get(gate)]);
        }
        let only_ours =
            if place.revision > 0 && !settle { vec![created_at(place.key.clone(), place.revision)] } else { Vec::new() };
        let answer = match self.transport.txn(txn(only_ours, ops, Vec::new())).await {
            Ok(answer) => answer,
            Err(failed @ Failed::NoLease) => {
                // Nothing of the session is left.
                drop(self.session.failed(place.lease, failed));
                return Ok(Released::new(false));
            }
            Err(failed) => {
                let error = failed.into_error();
                if *settle && !error.may_have_taken() {
                    // A full database takes no gate, but it deletes: others must not wait until the gate can be raised.
                    drop(self.transport.txn(txn(Vec::new(), only_delete, Vec::new())).await);
                }
                return Err(error);
            }
        };
        let gone = deleted(&answer.responses);
        self.learn_raised(name, place.lease, answer.responses);
        self.session.places.remove(name, *owner, *claim);
        Ok(Released::new(gone > 0 && place.granted))
    }

    /// What was sent in this session before makes no key any more. Where the session has ended, that is so without it.
    async fn raise_gate(&self, name: &Name, lease: i64) -> Result<()> {
        let gate = keys::gate_key(name, lease);
        match self.transport.txn(txn(Vec::new(), vec![put(gate.clone(), Vec::new(), lease), get(gate)], Vec::new())).await {
            Ok(answer) => self.learn_raised(name, lease, answer.responses),
            Err(failed @ Failed::NoLease) => drop(self.session.failed(lease, failed)),
            Err(failed) => return Err(failed.into_error()),
        }
        Ok(())
    }

    fn learn_raised(&self, name: &Name, lease: i64, responses: Vec<ResponseOp>) {
        if let Some(version) = found(responses).next().and_then(|gate| gate.first().map(|gate| gate.version)) {
            self.session.learn_gate(lease, name, version);
        }
    }

    /// Releases what an owner has that asked by another session: found by what its key says.
    async fn release_of_another(&self, request: &Release) -> Result<Released> {
        let view = self.read(&request.name).await?;
        let Some((node, held)) = view.find(&request.name, request.owner, request.claim) else { return Ok(Released::new(false)) };
        let delete = txn(vec![created_at(node.key.clone(), node.revision)], vec![delete(node.key.clone())], Vec::new());
        let answer = self.transport.txn(delete).await.map_err(Failed::into_error)?;
        Ok(Released::new(held && answer.succeeded))
    }

    /// A writer that leaves a reader of its own behind: Go's writers go by the age of keys alone, and the reader's is younger than theirs may be. If
    /// one of them waits, the writer's key stays until the reader is released.
    async fn keep_for_reader(&self, request: &Release, place: &Place) -> Result<bool> {
        let view = self.read(&request.name).await?;
        let beside =
            view.nodes().iter().find(|node| node.want == Want::Read && node.order == place.revision && node.owner.is_some());
        let Some(reader) = beside else { return Ok(false) };
        let between =
            |node: &&super::keys::Node| node.want == Want::Write && node.owner.is_none() && node.revision < reader.revision;
        let (true, Some(owner)) = (view.nodes().iter().any(|node| between(&node)), reader.owner) else { return Ok(false) };
        let key = place.key.clone();
        self.session.places.update(&request.name, owner, Claim::Read, place.session, |reader| reader.keeps = Some(key));
        Ok(true)
    }
}
