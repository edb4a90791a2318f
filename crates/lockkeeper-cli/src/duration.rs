//! Durations as users write them: `1.5`, `250ms`, `90s`, `2m`, `1h`, `1d`, and as systemd does: `5sec`, `50min`.

use std::time::Duration;

const NANOS: u128 = 1_000_000_000;

/// The units, longest suffix first, in nanoseconds. A bare number is seconds.
const UNITS: [(&str, u128); 8] = [
    ("min", 60 * NANOS),
    ("sec", NANOS),
    ("ms", NANOS / 1000),
    ("s", NANOS),
    ("m", 60 * NANOS),
    ("h", 3600 * NANOS),
    ("d", 24 * 3600 * NANOS),
    ("", NANOS),
];

/// Ten years. Longer ones are mistakes, and points in time that far away may not exist.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Parses `text`, exactly to the nanosecond; finer digits are dropped.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let no_duration = || format!("{text:?} is not a duration; use 1.5 (seconds), 250ms, 90s, 2m, 1h or 1d");
    if text.starts_with('-') {
        return Err(format!("{text:?} is negative; use 0 or more"));
    }
    let (number, unit) =
        UNITS.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit))).ok_or_else(no_duration)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return Err(no_duration());
    }
    let too_long = || format!("{text:?} is too long; at most {} hours", LONGEST.as_secs() / 3600);
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
    let billionths =
        fraction.bytes().chain(std::iter::repeat(b'0')).take(9).fold(0, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    // At most 2^64 hours in billionths of a nanosecond: far below 2^128.
    let nanos = u128::from(whole) * unit + billionths * unit / NANOS;
    let seconds = u64::try_from(nanos / NANOS).map_err(|_| too_long())?;
    let duration = Duration::new(seconds, (nanos % NANOS) as u32);
    if duration <= LONGEST { Ok(duration) } else { Err(too_long()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_understood() {
        for (text, millis) in [
            ("0", 0),
            ("1.5", 1500),
            (".5", 500),
            ("5.", 5000),
            ("90s", 90_000),
            ("250ms", 250),
            ("2m", 120_000),
            ("50min", 3_000_000),
            ("5sec", 5_000),
            ("1d", 86_400_000),
            ("1h", 3_600_000),
            ("0.25h", 900_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse("0.0000000019"), Ok(Duration::from_nanos(1)));
        assert_eq!(parse("87600h"), Ok(LONGEST));
    }

    #[test]
    fn what_is_no_duration_is_refused_in_words() {
        for (text, says) in [
            ("", "is not a duration"),
            (".", "is not a duration"),
            ("s", "is not a duration"),
            ("soon", "is not a duration"),
            ("1 s", "is not a duration"),
            ("1.2.3", "is not a duration"),
            ("1e3", "is not a duration"),
            ("+1", "is not a duration"),
            ("inf", "is not a duration"),
            ("nan", "is not a duration"),
            ("٣", "is not a duration"),
            ("1w", "is not a duration"),
            ("-1", "is negative"),
            ("-0.5s", "is negative"),
            ("87601h", "is too long"),
            ("18446744073709551615", "is too long"),
            ("18446744073709551616", "is too long"),
            ("18446744073709551615h", "is too long"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(says), "{text}: {message}");
        }
    }
}
