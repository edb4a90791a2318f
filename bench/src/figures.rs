//! Medians, percentiles, and what a list of turns says about handing over.

/// The value below which this part of the others lies. What is no number does not count, and of none there is none.
pub(crate) fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.retain(|value| !value.is_nan());
    values.sort_by(f64::total_cmp);
    values.get(((values.len() as f64 - 1.0) * part).round() as usize).copied().unwrap_or(f64::NAN)
}

pub(crate) fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// A turn: who, when it asked, when it was granted, when it began to release.
pub(crate) type Turn = [u64; 4];

/// How long after each release one of those who waited at that moment had the lock, in microseconds. A waiter that comes later and goes first
/// makes them wait longer, and so does the one that released and takes it again at once.
pub(crate) fn hand_overs(mut turns: Vec<Turn>) -> Vec<f64> {
    turns.sort_unstable_by_key(|turn| turn[2]);
    let mut times = Vec::new();
    for (index, &[_, _, _, released]) in turns.iter().enumerate() {
        let waited = |next: &&Turn| next[1] < released && next[2] >= released;
        if let Some(next) = turns[index + 1..].iter().find(waited) {
            times.push((next[2] - released) as f64 / 1e3);
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_and_of_none() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(quantile((0..=100).map(f64::from).collect(), 0.99), 99.0);
        assert_eq!(median(vec![f64::NAN, 4.0]), 4.0);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_hand_over_is_to_one_who_waited() {
        // 1 holds until 10 ms while 2 waits; 1 takes it again at once, and 2 has it at 25 ms.
        let ms =
            |who, asked: u64, granted: u64, released: u64| [who, asked * 1_000_000, granted * 1_000_000, released * 1_000_000];
        let turns = vec![ms(1, 0, 1, 10), ms(2, 5, 25, 30), ms(1, 11, 12, 20)];
        assert_eq!(hand_overs(turns), [15_000.0, 5_000.0]);
    }

    #[test]
    fn a_lock_that_nobody_waited_for_is_not_handed_over() {
        assert!(hand_overs(vec![[1, 0, 1, 10], [2, 20, 21, 30]]).is_empty());
    }
}
