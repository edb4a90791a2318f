//! How many columns of a terminal text takes: East Asian wide characters and emoji take two, combining marks none.

/// Ranges that take two columns.
const WIDE: [(u32, u32); 25] = [
    (0x1100, 0x115f),
    (0x231a, 0x231b),
    (0x23e9, 0x23ec),
    (0x25fd, 0x25fe),
    (0x2614, 0x2615),
    (0x2648, 0x2653),
    (0x26aa, 0x26ab),
    (0x26bd, 0x26be),
    (0x2705, 0x2705),
    (0x270a, 0x270b),
    (0x274c, 0x274c),
    (0x2753, 0x2755),
    (0x2795, 0x2797),
    (0x2b1b, 0x2b1c),
    (0x2b50, 0x2b50),
    (0x2e80, 0x303e),
    (0x3041, 0x33ff),
    (0x3400, 0x4dbf),
    (0x4e00, 0xa4cf),
    (0xa960, 0xa97f),
    (0xac00, 0xd7a3),
    (0xf900, 0xfaff),
    (0xfe30, 0xfe6f),
    (0xff00, 0xff60),
    (0x1f300, 0x1faff),
];

/// Ranges that take no column: they change the character before them.
const MARKS: [(u32, u32); 15] = [
    (0x0300, 0x036f),
    (0x0483, 0x0489),
    (0x0591, 0x05bd),
    (0x0610, 0x061a),
    (0x064b, 0x065f),
    (0x06d6, 0x06dc),
    (0x0900, 0x0902),
    (0x093c, 0x093c),
    (0x0e31, 0x0e31),
    (0x0e34, 0x0e3a),
    (0x0e47, 0x0e4e),
    (0x1ab0, 0x1aff),
    (0x1dc0, 0x1dff),
    (0x20d0, 0x20ff),
    (0xfe00, 0xfe0f),
];

/// The columns of one character.
fn of_char(character: char) -> usize {
    let code = u32::from(character);
    let within = |ranges: &[(u32, u32)]| ranges.iter().any(|(first, last)| (*first..=*last).contains(&code));
    if code < 0x300 {
        1
    } else if within(&MARKS) {
        0
    } else if within(&WIDE) || (0x20000..=0x3fffd).contains(&code) || (0xffe0..=0xffe6).contains(&code) {
        2
    } else {
        1
    }
}

/// The columns of a text without control characters.
pub(crate) fn of(text: &str) -> usize {
    text.chars().map(of_char).sum()
}

/// As much of the beginning as fits into `width` columns.
pub(crate) fn beginning(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (at, character) in text.char_indices() {
        used += of_char(character);
        if used > width {
            return &text[..at];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns_and_marks_none() {
        for (text, width) in
            [("job", 3), ("订单", 4), ("注文-1", 6), ("주문", 4), ("e\u{301}", 1), ("🔒x", 3), ("…", 1), ("ä", 1)]
        {
            assert_eq!(of(text), width, "{text}");
        }
        assert_eq!([beginning("订单42", 3), beginning("订单42", 4), beginning("abc", 9)], ["订", "订单", "abc"]);
    }
}
