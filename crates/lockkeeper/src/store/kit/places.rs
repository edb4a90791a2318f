//! The rules of stores that keep an ordered list of places under each name, as ZooKeeper and etcd do: the first places hold it. Pure; what
//! a place is made of, and when it ends, is the store's.

use crate::backend::{Busy, Claim, Holder, Kind, Waiter};
use crate::owner::WireOwner;

/// The places under one name, in the order of the queue.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<Place>);

#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Given out by the store in the order of creation.
    pub(crate) number: u64,
    /// Its place in the queue: its number, or that of the writer beside which it reads.
    order: u64,
    pub(crate) owner: WireOwner,
    /// The session that it lives in.
    pub(crate) session: u64,
    pub(crate) claim: Claim,
    /// Its owner was told that it holds. Permits are held from then on; other holds follow from the order.
    pub(crate) granted: bool,
}

impl Place {
    pub(crate) fn new(number: u64, owner: WireOwner, session: u64, claim: Claim) -> Self {
        Self { number, order: number, owner, session, claim, granted: false }
    }

    fn permits(&self) -> u32 {
        if let Claim::Permits { take, .. } = self.claim { take } else { 0 }
    }

    pub(crate) fn token(&self) -> Option<u64> {
        (self.claim.kind() != Kind::Semaphore).then_some(self.order)
    }
}

impl Places {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn kind(&self) -> Option<Kind> {
        self.0.first().map(|place| place.claim.kind())
    }

    /// The permits that are given out.
    pub(crate) fn used(&self) -> u32 {
        self.0.iter().filter(|place| place.granted).map(Place::permits).sum()
    }

    fn index(&self, owner: WireOwner, claim: Claim) -> Option<usize> {
        // A writer may read beside its own hold, so these two are different places.
        let same = |place: &Place| place.claim.kind() == claim.kind() && (place.claim == Claim::Read) == (claim == Claim::Read);
        self.0.iter().position(|place| place.owner == owner && same(place))
    }

    /// The place of an owner, and whether it holds the name.
    pub(crate) fn find(&self, owner: WireOwner, claim: Claim) -> Option<(&Place, bool)> {
        self.index(owner, claim).map(|index| (&self.0[index], self.holds(index)))
    }

    /// Whether the place at this index holds the name.
    fn holds(&self, index: usize) -> bool {
        let (place, before) = (&self.0[index], &self.0[..index]);
        match place.claim {
            Claim::Mutex | Claim::Fair | Claim::Write => before.is_empty(),
            Claim::Read => !before.iter().any(|other| other.claim == Claim::Write && other.order < place.order),
            Claim::Permits { .. } => place.granted,
        }
    }

    /// The number of the one place that the owner has to wait for; `None`: any of them.
    pub(crate) fn blocker(&self, owner: WireOwner, claim: Claim) -> Option<u64> {
        let mut before = self.0[..self.index(owner, claim)?].iter().rev();
        let blocker = match claim {
            Claim::Permits { .. } => None,
            Claim::Read => before.find(|other| other.claim == Claim::Write),
            Claim::Mutex | Claim::Fair | Claim::Write => before.next(),
        };
        blocker.map(|place| place.number)
    }

    /// Asks for the name: with the place that the owner has, or with this new one. `beside` writes and lets this reader in; `free` permits are
    /// left. The place stays only if it holds, was there before, or may `wait`.
    pub(crate) fn ask(&mut self, mut new: Place, beside: Option<WireOwner>, free: u32, wait: bool) -> Result<&Place, Busy> {
        if let Some((writer, true)) = beside.and_then(|writer| self.find(writer, Claim::Write)) {
            new.order = writer.order;
        }
        let known = self.index(new.owner, new.claim);
        let index = known.unwrap_or_else(|| {
            let index = self.0.partition_point(|other| (other.order, other.number) < (new.order, new.number));
            self.0.insert(index, new);
            index
        });
        let waits_before = self.0[..index].iter().any(|place| !place.granted);
        let place = &mut self.0[index];
        place.granted |= place.claim.kind() == Kind::Semaphore && !waits_before && place.permits() <= free;
        if self.holds(index) {
            self.0[index].granted = true;
            return Ok(&self.0[index]);
        }
        let ahead = (0..index).filter(|before| !self.holds(*before)).count();
        let placed = wait || known.is_some();
        if !placed {
            self.0.remove(index);
        }
        Err(Busy::new(None).with_ahead(u32::try_from(ahead).unwrap_or(u32::MAX)).with_placed(placed))
    }

    /// Removes places; gives those, with whether they held the name.
    pub(crate) fn remove(&mut self, which: impl Fn(bool, &Place) -> bool) -> Vec<(bool, Place)> {
        let seen = self.0.iter().enumerate().map(|(index, place)| (self.holds(index), place.clone()));
        let gone: Vec<_> = seen.filter(|(holds, place)| which(*holds, place)).collect();
        self.0.retain(|place| gone.iter().all(|(_, removed)| removed.number != place.number));
        gone
    }

    /// Who holds the name, and who waits for it.
    pub(crate) fn describe(&self) -> (Vec<Holder>, Vec<Waiter>) {
        let (mut holders, mut queue) = (Vec::new(), Vec::new());
        for (index, place) in self.0.iter().enumerate() {
            let owner = place.owner.to_string();
            if !self.holds(index) {
                queue.push(Waiter::new(owner, place.claim));
                continue;
            }
            let claim = if place.claim == Claim::Fair { Claim::Mutex } else { place.claim };
            let mut holder = Holder::new(owner, claim);
            holder.token = place.token();
            holders.push(holder);
        }
        (holders, queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::ClientId;

    fn owner(number: u64) -> WireOwner {
        WireOwner { client: ClientId::from_bits(1), number }
    }

    /// Owner `number` asks with a place of this number.
    fn ask(places: &mut Places, number: u64, claim: Claim) -> bool {
        places.ask(Place::new(number, owner(number), 1, claim), None, 0, true).is_ok()
    }

    #[test]
    fn the_first_place_holds_a_mutex_and_each_waits_for_the_one_before() {
        let mut places = Places::default();
        let granted = [1, 2, 3].map(|number| ask(&mut places, number, Claim::Mutex));
        assert_eq!(granted, [true, false, false]);
        assert_eq!([2, 3].map(|number| places.blocker(owner(number), Claim::Mutex)), [Some(1), Some(2)]);
        assert!(places.remove(|_, place| place.number == 2).iter().all(|(held, _)| !held));
        assert_eq!(places.blocker(owner(3), Claim::Mutex), Some(1));
        assert_eq!(places.remove(|holds, _| holds).len(), 1);
        assert!(ask(&mut places, 3, Claim::Mutex), "asking again keeps the place");
    }

    #[test]
    fn readers_wait_for_writers_before_them_and_may_read_beside_their_own() {
        let mut places = Places::default();
        assert!(ask(&mut places, 1, Claim::Read) && !ask(&mut places, 2, Claim::Write));
        assert!(!ask(&mut places, 3, Claim::Read), "a writer came first");
        assert_eq!(places.blocker(owner(3), Claim::Read), Some(2));
        places.remove(|_, place| place.number == 1);
        let beside = Place::new(4, owner(4), 1, Claim::Read);
        assert!(places.ask(beside, Some(owner(2)), 0, true).is_ok_and(|place| place.token() == Some(2)));
    }

    #[test]
    fn permits_are_given_in_order_and_a_try_leaves_no_place() {
        let mut places = Places::default();
        let take = |number, take| Place::new(number, owner(number), 1, Claim::Permits { take, of: 3 });
        assert!(places.ask(take(1, 2), None, 3, true).is_ok() && places.used() == 2);
        assert!(places.ask(take(2, 2), None, 1, true).is_err_and(|busy| busy.placed));
        assert!(places.ask(take(3, 1), None, 1, false).is_err_and(|busy| !busy.placed && busy.ahead == Some(1)));
        let (holders, queue) = places.describe();
        assert_eq!((holders.len(), queue.len()), (1, 1));
    }
}
