//! What should have happened by now: losses that are told (P4), holds that end (P5), waiters that are served (P6).

use super::name::NameState;
use super::{Promise, Scene};

impl NameState {
    /// P4, P5 and P6: what should have happened before `scene.at`.
    pub(super) fn advance(&mut self, name: &str, scene: &mut Scene<'_>) {
        self.losses(name, scene);
        if self.store_seen && !scene.stopped {
            self.orphans(name, scene);
            self.waits(name, scene);
            self.unnoticed(name, scene);
        }
        self.number.waits(name, &self.calls, scene);
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
            let limits = scene.limits;
            // One that passes on inside a process is picked up or released soon.
            let well = scene.clients.get(&hold.client).and_then(|client| client.well_since(at)).is_some_and(|well| well <= since);
            let lasts =
                if hold.released && well && !limits.copies { limits.picked_up + 2 * limits.round_trip } else { hold.lease };
            let limit = since.saturating_add(lasts).saturating_add(limits.longest_delay + limits.slack);
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

    /// P5: `close()` said that the store holds nothing for the client. A copy of a request may come later, and a store with older data knows holds that
    /// their client has released.
    pub(super) fn closed(&mut self, name: &str, client: u32, scene: &mut Scene<'_>) {
        if scene.limits.copies || !self.store_seen {
            return;
        }
        scene.verdict.checked(Promise::P5);
        let (at, fault) = (scene.at, scene.unhealthy.map(|(when, _)| when));
        let since = |since: u64| fault.is_none_or(|when| since > when);
        let left = self.stored.iter_mut().find(|(_, hold)| hold.client == client && hold.until > at && since(hold.since));
        if let Some((owner, hold)) = left.filter(|(_, hold)| !hold.reported) {
            hold.reported = true;
            scene
                .verdict
                .add(Promise::P5, at, || format!("{name:?}: client {client} is closed, and the store holds it for {owner}"));
        }
    }

    /// Where holds live in sessions a waiter holds the name as soon as those before it are gone. It has to notice that.
    fn unnoticed(&mut self, name: &str, scene: &mut Scene<'_>) {
        if scene.limits.session.is_none() {
            return;
        }
        let (at, limits) = (scene.at, scene.limits);
        let left = self.waited_from.map_or(0, |since| since.saturating_add(limits.dead_waiter));
        for (owner, hold) in &mut self.stored {
            let waits = self.calls.range((hold.client, 0)..=(hold.client, u64::MAX)).next().is_some();
            if hold.reported || hold.noticed || !waits {
                continue;
            }
            let Some(well) = scene.clients.get(&hold.client).and_then(|client| client.well_since(at)) else { continue };
            scene.verdict.checked(Promise::P6);
            // One whose caller left it alone is taken back later.
            let since = hold.since.max(well).max(left);
            if at > since.saturating_add(limits.free_while_waited_for + 2 * limits.round_trip + limits.slack) {
                hold.reported = true;
                scene.verdict.add(Promise::P6, at, || {
                    format!("{name:?}: {owner} holds it since {:.3} s, and its client does not know", since as f64 / 1e9)
                });
            }
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
        let dead = self.waited_from.map_or(0, |since| since.saturating_add(limits.dead_waiter));
        // And who is out of reach, or stands still.
        let away = |&(client, _): &(u32, u64)| Some(scene.client(client)?.away_until(limits.dead_waiter));
        let absent = self.calls.keys().filter_map(away).max().unwrap_or(0);
        let since = waiting.max(ends).max(self.free_since).max(dead).max(absent);
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

    /// The sessions of the store's clients count from now on.
    pub(super) fn counts_anew(&mut self, at: u64) {
        for hold in self.stored.values_mut() {
            hold.orphan_since = hold.orphan_since.map(|_| at);
        }
    }

    /// The client stops here, or goes on: its session lasts from now on.
    pub(super) fn last_contact(&mut self, client: u32, at: u64) {
        for hold in self.stored.values_mut().filter(|hold| hold.client == client) {
            hold.orphan_since = hold.orphan_since.map(|_| at);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::referee::{Event, Limits, Promise, Referee, Side, What};

    /// What is found if a client whose hold the store keeps, or has given up, says that it is closed.
    fn found(limits: Limits, between: Option<What>) -> Vec<Promise> {
        let (name, owner, side) = ("x".to_owned(), "1:1".to_owned(), Side::Exclusive);
        let held = What::Held { name, owner, side, token: Some(5), lease: 3_000, clock: None };
        let mut referee = Referee::new(limits);
        let events = [Some(held), between, Some(What::Closed)];
        for (at, what) in [10, 20, 30].into_iter().zip(events).filter_map(|(at, what)| Some((at, what?))) {
            referee.observe(&Event { at, client: 1, what });
        }
        referee.finish(40).violations.iter().map(|violation| violation.promise).collect()
    }

    #[test]
    fn p5_a_client_that_is_closed_holds_nothing() {
        let freed = What::Freed { name: "x".to_owned(), owner: "1:1".to_owned(), forced: false };
        assert_eq!(found(Limits::default(), Some(freed)), []);
        assert_eq!(found(Limits::default(), None), [Promise::P5]);
    }

    #[test]
    fn p5_what_comes_back_after_it_was_released_is_no_fault_of_the_client() {
        assert_eq!(found(Limits { copies: true, ..Limits::default() }, None), []);
        assert_eq!(found(Limits::default(), Some(What::Unhealthy { forgot: false, lag: 0 })), []);
    }
}
