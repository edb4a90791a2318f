//! The memory store as one of a quorum: for tests and examples.

use std::sync::Arc;
use std::time::Duration;

use super::MemoryStore;
use crate::backend::{Acquire, Renew, Renewed, Reply, Standing, Vote, Voter};
use crate::error::Result;

impl Voter for MemoryStore {
    fn vote(&self, request: Acquire, max_lease: Duration) -> Reply<'_, Vote> {
        Box::pin(async move { self.state().vote(&request, self.runtime.now(), max_lease) })
    }

    fn keep_votes(&self, requests: Vec<Renew>, max_lease: Duration) -> Reply<'_, Vec<Result<Renewed>>> {
        Box::pin(async move {
            let (mut state, now) = (self.state(), self.runtime.now());
            Ok(requests.iter().map(|request| state.keep_vote(request, now, max_lease)).collect())
        })
    }

    fn standing(&self, max_lease: Duration) -> Reply<'_, Standing> {
        Box::pin(async move { Ok(self.state().standing(self.runtime.now(), max_lease)) })
    }

    fn admit(&self, max_lease: Duration) -> Reply<'_, ()> {
        Box::pin(async move {
            self.state().admit(max_lease);
            Ok(())
        })
    }

    fn second(self: Arc<Self>) -> Arc<dyn Voter> {
        self
    }
}
