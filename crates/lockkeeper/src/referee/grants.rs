//! What owners were told, so that a recorder can say of a guard when its grant was asked for and how long it lasts.

use std::collections::BTreeMap;

/// The last request by which an owner was told that it holds something with this token.
#[derive(Clone, Copy, Debug)]
struct Answer {
    token: Option<u64>,
    sent: u64,
    lease: u64,
}

/// The answers of each owner. Times are nanoseconds.
#[derive(Debug)]
pub struct Grants<K> {
    owners: BTreeMap<K, Vec<Answer>>,
    most: usize,
}

impl<K: Ord> Default for Grants<K> {
    fn default() -> Self {
        Self { owners: BTreeMap::new(), most: usize::MAX }
    }
}

impl<K: Ord> Grants<K> {
    /// Remembers the last `most` owners, in their order.
    #[must_use]
    pub const fn of_the_last(most: usize) -> Self {
        Self { owners: BTreeMap::new(), most }
    }

    /// The store answered that `owner` holds it, as of `sent`; with a token if that was a grant. Answers come in any order: one to an older request takes
    /// nothing back of what a newer one has told.
    pub fn answered(&mut self, owner: K, token: Option<u64>, sent: u64, lease: u64) {
        let answers = self.owners.entry(owner).or_default();
        match answers.last_mut() {
            Some(last) if token.is_none() || last.token == token => {
                if sent.saturating_add(lease) > last.sent.saturating_add(last.lease) {
                    (last.sent, last.lease) = (sent, lease);
                }
            }
            _ => answers.push(Answer { token, sent, lease }),
        }
        if self.owners.len() > self.most {
            self.owners.pop_first();
        }
    }

    /// When the request was sent by which the owner was last told that it has this token, and the lease. Guards to which a hold passes have
    /// larger tokens than the grant.
    #[must_use]
    pub fn of(&self, owner: &K, token: Option<u64>) -> Option<(u64, u64)> {
        let answer = self.owners.get(owner)?.iter().rev().find(|answer| answer.token <= token)?;
        Some((answer.sent, answer.lease))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_has_the_grant_that_its_token_comes_from() {
        let mut grants = Grants::of_the_last(2);
        grants.answered(1, Some(10), 100, 7);
        grants.answered(1, None, 150, 8);
        grants.answered(1, None, 120, 8);
        grants.answered(1, Some(20), 200, 9);
        assert_eq!(
            grants.of(&1, Some(12)),
            Some((150, 8)),
            "passed on inside the process, and renewed; an older answer came later"
        );
        assert_eq!(grants.of(&1, Some(20)), Some((200, 9)));
        assert_eq!(grants.of(&1, Some(9)), None);
        grants.answered(2, None, 1, 1);
        grants.answered(3, None, 1, 1);
        assert_eq!(grants.of(&1, Some(20)), None, "forgotten");
    }
}
