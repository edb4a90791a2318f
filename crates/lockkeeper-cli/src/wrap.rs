//! Help that fits the terminal: long lines go on below the text they belong to.

use crate::terminal::room;
use crate::width::of;

/// A text column narrower than this is not worth keeping: the text starts on a line of its own.
const NARROW: usize = 24;

/// How far such a line is indented, beyond the line that it belongs to.
const BELOW: usize = 6;

/// The text for stdout: wrapped to a terminal, unchanged elsewhere.
pub(crate) fn to_terminal(text: &str) -> String {
    room().map_or_else(|| text.to_owned(), |width| wrapped(text, width))
}

/// Lines for stdout whose last column begins at `column`: on a terminal, what does not fit goes on below that column.
pub(crate) fn last_column(lines: Vec<String>, column: usize) -> Vec<String> {
    let Some(width) = room() else { return lines };
    lines.into_iter().map(|line| wrapped_below(&line, column, width)).collect()
}

fn wrapped_below(line: &str, column: usize, width: usize) -> String {
    if of(line) <= width || width < column + NARROW {
        return line.to_owned();
    }
    let (before, last) = line.split_at(line.char_indices().nth(column).map_or(line.len(), |(at, _)| at));
    let mut all = before.to_owned();
    wrap_words(last, (0, column), width, &mut all);
    all
}

/// No line is wider than `width`, unless one word is.
fn wrapped(text: &str, width: usize) -> String {
    let mut all = String::with_capacity(text.len());
    for line in text.lines() {
        if of(line) <= width {
            all.push_str(line);
            all.push('\n');
        } else {
            wrap_line(line, width, &mut all);
        }
    }
    if !text.ends_with('\n') {
        all.pop();
    }
    all
}

fn wrap_line(line: &str, width: usize, all: &mut String) {
    let indent = line.len() - line.trim_start().len();
    let content = &line[indent..];
    // A term and its explanation are separated by two spaces or more.
    let Some(gap) = content.find("  ") else {
        wrap_words(content, (indent, indent), width, all);
        all.push('\n');
        return;
    };
    wrap_words(&content[..gap], (indent, indent + BELOW), width, all);
    let explanation = content[gap..].trim_start();
    let column = indent + of(&content[..content.len() - explanation.len()]);
    if column + NARROW <= width {
        wrap_words(explanation, (column - indent - of(&content[..gap]), column), width, all);
    } else {
        all.push('\n');
        wrap_words(explanation, (indent + BELOW, indent + BELOW), width, all);
    }
    all.push('\n');
}

/// Appends `text` after `indents.0` spaces, and what does not fit into lines of their own, after `indents.1` spaces.
fn wrap_words(text: &str, indents: (usize, usize), width: usize, all: &mut String) {
    all.push_str(&" ".repeat(indents.0));
    let mut used = of(all.rsplit('\n').next().unwrap_or_default());
    let mut first = true;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !first && used + 1 + of(word) > width {
            all.push('\n');
            all.push_str(&" ".repeat(indents.1));
            (used, first) = (indents.1, true);
        }
        if !first {
            all.push(' ');
            used += 1;
        }
        all.push_str(word);
        used += of(word);
        first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_below_their_text() {
        let text = "  -w, --wait <DURATION>  Wait at most this long, for the store too\n\nA short line\n";
        assert_eq!(
            wrapped(text, 50),
            "  -w, --wait <DURATION>  Wait at most this long,\n                         for the store too\n\nA short line\n"
        );
        // Too narrow for two columns.
        assert_eq!(
            wrapped(text, 40),
            "  -w, --wait <DURATION>\n        Wait at most this long, for the\n        store too\n\nA short line\n"
        );
        assert_eq!(wrapped("          one two three four five", 24), "          one two three\n          four five");
        assert_eq!(wrapped("no change", 80), "no change");
    }

    #[test]
    fn a_last_column_goes_on_below_itself() {
        let line = "ok  source  default (no -S, no config file)";
        assert_eq!(wrapped_below(line, 12, 36), "ok  source  default (no -S, no\n            config file)");
        assert_eq!(wrapped_below(line, 12, 43), line);
        assert_eq!(wrapped_below(line, 12, 30), line, "no room for a column");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut line = crate::args::command();
        for width in [60, 80] {
            for text in [line.render_long_help().to_string(), line.render_help().to_string()] {
                let wide: Vec<_> = wrapped(&text, width).lines().filter(|line| of(line) > width).map(str::to_owned).collect();
                assert!(wide.is_empty(), "{width}: {wide:?}");
            }
        }
    }
}
