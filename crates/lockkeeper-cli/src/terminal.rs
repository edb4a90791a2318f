//! What can be drawn on the terminal, if there is one; and text that is safe to draw.

use std::io::{IsTerminal, stdout};
use std::os::fd::AsFd;

use crate::width;

/// Whether lines can be redrawn there.
pub(crate) fn is_drawable(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
}

/// Whether colour is wanted there: `NO_COLOR` with any text says no.
pub(crate) fn has_colour(stream: &impl IsTerminal) -> bool {
    is_drawable(stream) && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Columns and rows.
pub(crate) fn size(stream: impl AsFd) -> (usize, usize) {
    let known = rustix::termios::tcgetwinsize(stream).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    known.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
}

/// The width of stdout; `None` if it is not a terminal and takes any width.
pub(crate) fn room() -> Option<usize> {
    stdout().is_terminal().then(|| size(stdout()).0)
}

/// At most `width` columns; `…` at the end if something was cut.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if width::of(text) <= width {
        return text.to_owned();
    }
    format!("{}…", width::beginning(text, width.saturating_sub(1)))
}

/// Text of others for a table: each character that could change the terminal or the order of the text becomes one replacement character.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|character| if is_unsafe(character) { '\u{fffd}' } else { character }).collect()
}

/// Text of others for a message: such characters are written as `\u{1b}`.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unsafe(character) { safe.extend(character.escape_unicode()) } else { safe.push(character) }
    }
    safe
}

/// Control characters, which can move the cursor or worse, and invisible marks, which can show text in another order than it has.
pub(crate) fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_direction_marks_do_not_reach_the_terminal() {
        let hostile = "a\x1b[2Jb\u{9b}c\u{202e}d\u{2066}e\u{200f}f";
        assert_eq!(plain(hostile), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f");
        assert_eq!(escaped(hostile), "a\\u{1b}[2Jb\\u{9b}c\\u{202e}d\\u{2066}e\\u{200f}f");
        assert_eq!(escaped("orders: Ünï \u{1f600}"), "orders: Ünï \u{1f600}");
    }
}
