//! What can be drawn on the terminal, if there is one.

use std::io::{IsTerminal, stdout};
use std::os::fd::AsFd;

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

/// How wide what is printed may be: what is no terminal takes any width.
pub(crate) fn room() -> Option<usize> {
    stdout().is_terminal().then(|| size(stdout()).0)
}

/// At most `width` characters, the last of which tells that there are more.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Text of others, without what would move the cursor.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}
