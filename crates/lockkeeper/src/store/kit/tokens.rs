//! The rule for fencing tokens: larger than the last one, and not smaller than the server's wall clock.
//!
//! The clock keeps tokens growing when a store lost its counter; the counter keeps them growing when the clock was set back.

/// The next token after `last`, at `micros` µs since 1970 on the server's wall clock.
pub(crate) fn next_token(last: u64, micros: u64) -> u64 {
    micros.max(last.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::next_token;

    #[test]
    fn a_token_is_larger_than_the_last_and_not_behind_the_clock() {
        assert_eq!(next_token(0, 1_000), 1_000);
        assert_eq!(next_token(1_000, 1_000), 1_001);
        assert_eq!(next_token(5_000, 1_000), 5_001, "the clock was set back");
    }
}
