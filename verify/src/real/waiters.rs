//! Grants that come without a request: where waiters stand in a queue at the store.

use std::collections::BTreeMap;

use lockkeeper::referee::{Event, What};

/// Where a waiter has a node in a queue, the store grants when those before it are gone, and the client may see that later. So a grant was asked for when the
/// call began, and what the client asked last keeps it.
pub(super) fn asked_when_called(events: Vec<Event>) -> Vec<Event> {
    let (mut calls, mut all) = (BTreeMap::new(), Vec::with_capacity(events.len()));
    for mut event in events {
        let (at, client, mut kept) = (event.at, event.client, None);
        match &mut event.what {
            What::Call { call, .. } => {
                calls.entry((client, *call)).or_insert(at);
            }
            What::Granted { call, name, owner, sent, lease, .. } => {
                if let Some(called) = calls.get(&(client, *call)).copied().filter(|called| *called < *sent) {
                    kept = Some(What::Kept { name: name.clone(), owner: owner.clone(), sent: *sent, lease: *lease });
                    (*lease, *sent) = (*lease + (*sent - called), called);
                }
            }
            _ => {}
        }
        all.push(event);
        all.extend(kept.map(|what| Event { at, client, what }));
    }
    all
}

#[cfg(test)]
mod tests {
    use lockkeeper::referee::Side;

    use super::*;

    fn call(at: u64, client: u32, call: u64) -> Event {
        Event { at, client, what: What::Call { call, name: "x".to_owned() } }
    }

    fn granted(at: u64, client: u32, call: u64, sent: u64) -> Event {
        let (name, owner, side) = ("x".to_owned(), format!("{client}:{call}"), Side::Exclusive);
        Event { at, client, what: What::Granted { call, name, owner, side, token: Some(call), sent, lease: 1_000 } }
    }

    /// The request and the lease of each grant, and those of what keeps it.
    fn grants(events: Vec<Event>) -> Vec<(u64, u64, bool)> {
        let times = |event: &Event| match event.what {
            What::Granted { sent, lease, .. } => Some((sent, lease, false)),
            What::Kept { sent, lease, .. } => Some((sent, lease, true)),
            _ => None,
        };
        asked_when_called(events).iter().filter_map(times).collect()
    }

    #[test]
    fn a_grant_was_asked_for_when_the_call_began_and_lasts_as_long_as_before() {
        // The hold ends at 1,100 as it did, and what was sent last keeps it as long.
        assert_eq!(grants(vec![call(10, 1, 7), granted(130, 1, 7, 100)]), [(10, 1_090, false), (100, 1_000, true)]);
    }

    #[test]
    fn the_calls_of_clients_are_told_apart_and_only_the_first_of_a_number_counts() {
        let events = vec![call(10, 1, 7), call(20, 2, 7), call(50, 1, 7), granted(130, 2, 7, 100), granted(140, 1, 7, 100)];
        assert_eq!(grants(events), [(20, 1_080, false), (100, 1_000, true), (10, 1_090, false), (100, 1_000, true)]);
    }

    #[test]
    fn what_was_asked_for_before_the_call_stays_as_it_is() {
        // A hold that passes inside the process, and a grant whose call nobody saw.
        assert_eq!(grants(vec![call(120, 1, 7), granted(130, 1, 7, 100)]), [(100, 1_000, false)]);
        assert_eq!(grants(vec![granted(130, 1, 7, 100)]), [(100, 1_000, false)]);
    }

    /// A waiter notices its grant after the next one: by the time that was recorded, tokens would go back.
    #[test]
    fn a_waiter_that_notices_late_breaks_nothing() {
        let second = Event { at: 300, client: 2, what: What::Release { name: "x".to_owned(), owner: "2:9".to_owned() } };
        let first_over = Event { at: 200, client: 1, what: What::Release { name: "x".to_owned(), owner: "1:8".to_owned() } };
        let late = granted(400, 3, 5, 350);
        let events = vec![
            call(1, 3, 5),
            call(2, 1, 8),
            granted(150, 1, 8, 100),
            first_over,
            call(210, 2, 9),
            granted(250, 2, 9, 240),
            second,
            late,
        ];
        let broken = |events: &[Event]| super::super::judge(events).violations.len();
        assert_eq!(broken(&events), 1, "the control: a token that goes back");
        assert_eq!(broken(&asked_when_called(events)), 0);
    }
}
