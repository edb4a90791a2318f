//! The memory store as one of a quorum: for tests and examples.

use std::sync::Arc;
use std::time::Duration;

use super::MemoryStore;
use crate::backend::{Backend, KeepVotes, Renewed, Reply, Standing, Vote, VoteRequest, Voter};
use crate::error::Result;

impl Voter for MemoryStore {
    fn vote(&self, request: VoteRequest) -> Reply<'_, Vote> {
        Box::pin(async move { self.state().vote(&request, self.runtime.now()) })
    }

    fn keep_votes(&self, request: KeepVotes) -> Reply<'_, Vec<Result<Renewed>>> {
        Box::pin(async move {
            let (mut state, now) = (self.state(), self.runtime.now());
            let KeepVotes { renewals, not_after, max_lease } = request;
            Ok(renewals.iter().map(|renewal| state.keep_vote(renewal, now, not_after, max_lease)).collect())
        })
    }

    fn server_id(&self) -> Reply<'_, String> {
        self.identity()
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
