//! Ends of our holds that a store told and that lie further ahead than any lease of theirs: the store's clock was set back. The next renewal of such
//! a hold may shorten it; `model/renewal.rs` has the rule.
//!
//! Two conditions make the rule safe, and are kept here:
//!
//! * A request may shorten only if the end was known before the request computed what its holder counts on. So every request that is not part of
//!   that computation comes here later, finds the end, and names it too.
//! * One end at a time is named. Another one takes its place when the requests that could shorten the first have had their time to arrive.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::Renew;
use crate::model::{Asked, FarEnd, MARGIN};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// The far ends of the holds of one store, shared by its connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct FarEnds(Arc<Mutex<Table>>);

type Table = BTreeMap<(Name, WireOwner), Known>;

#[derive(Clone, Copy, Debug)]
struct Known {
    end: Instant,
    /// When it became known.
    since: Instant,
    /// When the last request was made that may shorten it.
    named: Option<Instant>,
    /// Such a request was answered: the end is another one now.
    settled: bool,
    /// The hold is counted on until then.
    until: Instant,
}

impl Known {
    /// Whether no request that may shorten it can still arrive.
    fn is_quiet(&self, now: Instant) -> bool {
        self.named.is_none_or(|named| now.since(named) > MARGIN)
    }
}

impl FarEnds {
    fn known(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What these renewals ask, which are about to be sent.
    pub(crate) fn ask<'a>(&self, requests: impl Iterator<Item = &'a Renew>, clock: impl Fn() -> Instant) -> Vec<Asked> {
        let mut known = self.known();
        let now = clock();
        requests.map(|request| asked(&mut known, request, now)).collect()
    }

    /// A renewal was answered: the hold is kept, and ends at `end` if that is told, `left` from then.
    pub(crate) fn answered(
        &self,
        request: &Renew,
        asked: &Asked,
        told: Option<(Instant, Duration)>,
        clock: impl Fn() -> Instant,
    ) {
        let named = asked.far.filter(|far| far.may_shorten);
        // The common case takes no lock.
        if named.is_none() && told.is_none() {
            return;
        }
        let mut known = self.known();
        // Read while the table is locked: who comes here later finds what is noted now.
        let now = clock();
        known.retain(|_, known| now < known.until || !known.is_quiet(now));
        let key = (request.name.clone(), request.owner);
        if let (Some(far), Some(known)) = (named, known.get_mut(&key))
            && known.end == far.end
        {
            known.settled = true;
        }
        let (Some((end, left)), Some(reach)) = (told, request.reach) else { return };
        // By what was counted on when the request was made. The store compares once more.
        let epoch = Instant::default();
        if asked.is_far(epoch.plus(left), epoch) && known.get(&key).is_none_or(|known| known.is_quiet(now)) {
            known.insert(key, Known { end, since: now, named: None, settled: false, until: reach.until });
        }
    }
}

fn asked(known: &mut Table, request: &Renew, now: Instant) -> Asked {
    let Renew { lease, reach, .. } = request;
    let (lease, left) = (*lease, reach.map(|reach| reach.until.since(now)));
    let plain = Asked { lease, reach: left, far: None };
    let (false, Some(reach)) = (known.is_empty(), reach) else { return plain };
    let Some(known) = known.get_mut(&(request.name.clone(), request.owner)) else { return plain };
    let may_shorten = !known.settled && known.since < reach.as_of;
    if may_shorten {
        known.named = Some(now);
    }
    known.until = known.until.max(reach.until);
    Asked { far: Some(FarEnd { end: known.end, may_shorten }), ..plain }
}
