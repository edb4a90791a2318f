//! Aligned columns. If they do not fit, some are shortened, in a given order.

use crate::terminal::cut;

/// Between two columns.
const GAP: &str = "  ";

/// A column that may be shortened, to `least` characters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Yielding {
    pub(crate) column: usize,
    pub(crate) least: usize,
}

/// Columns as wide as their widest cell.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    fitted(rows, &[], None)
}

/// Columns as wide as their widest cell. If they do not fit into `room`, the columns in `yielding` are shortened, in that order.
pub(crate) fn fitted<const N: usize>(rows: &[[String; N]], yielding: &[Yielding], room: Option<usize>) -> Vec<String> {
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let mut widths: [usize; N] = std::array::from_fn(widest);
    let whole = widths.iter().sum::<usize>() + GAP.len() * N.saturating_sub(1);
    let mut too_much = room.map_or(0, |room| whole.saturating_sub(room));
    for Yielding { column, least } in yielding {
        let less = too_much.min(widths[*column].saturating_sub(*least));
        widths[*column] -= less;
        too_much -= less;
    }
    let line = |row: &[String; N]| {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{:<width$}", shortened(cell, width))).collect();
        cells.join(GAP).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// At most `width` characters. A number at the end is kept whole if possible: half of a process id is another process id.
fn shortened(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let last =
        text.rfind([' ', ':']).map(|at| &text[at..]).filter(|last| last.contains(|character: char| character.is_ascii_digit()));
    let last = last.unwrap_or_default();
    match width.checked_sub(last.chars().count() + 1) {
        Some(head @ 1..) if !last.is_empty() => format!("{}…{last}", text.chars().take(head).collect::<String>()),
        _ => cut(text, width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows<const N: usize, const R: usize>(rows: [[&str; N]; R]) -> [[String; N]; R] {
        rows.map(|row| row.map(str::to_owned))
    }

    #[test]
    fn columns_stand_under_each_other() {
        assert_eq!(aligned(&rows([["A", "B"], ["long", "x"]])), ["A     B", "long  x"]);
    }

    #[test]
    fn columns_yield_in_their_order_and_only_as_far_as_needed() {
        let rows = rows([["NAME", "OWNER", "HOST AND PID"], ["job", "5c1e6bd0:12", "build-17.example 4711"]]);
        let order = [Yielding { column: 1, least: 5 }, Yielding { column: 2, least: 10 }];
        for (room, expected) in [
            (None, "job   5c1e6bd0:12  build-17.example 4711"),
            (Some(40), "job   5c1e6bd0:12  build-17.example 4711"),
            (Some(39), "job   5c1e6b…:12  build-17.example 4711"),
            (Some(34), "job   5…:12  build-17.example 4711"),
            (Some(33), "job   5…:12  build-17.examp… 4711"),
            (Some(23), "job   5…:12  buil… 4711"),
            // There is an end to it.
            (Some(10), "job   5…:12  buil… 4711"),
        ] {
            assert_eq!(fitted(&rows, &order, room)[1], expected, "{room:?}");
        }
    }

    #[test]
    fn what_has_no_number_at_its_end_or_a_long_one_is_cut_there() {
        assert_eq!(shortened("semaphore 1 of 3 free", 17), "semaphore 1 of 3…");
        assert_eq!(shortened("a:0123456789", 6), "a:012…");
        assert_eq!(shortened("0123456789", 4), "012…");
        assert_eq!(shortened("0123", 4), "0123");
    }
}
