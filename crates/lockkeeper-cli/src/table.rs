//! Aligned columns. If they do not fit, some are shortened, in a given order.

use crate::terminal::cut;
use crate::width;

/// Between two columns.
const GAP: &str = "  ";

/// A column that may be shortened, to `least` columns of the terminal; to `at_last` when there is nothing more to leave out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Yielding {
    pub(crate) column: usize,
    pub(crate) least: usize,
    pub(crate) at_last: usize,
}

/// What happens to a table that does not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Narrowing {
    /// These columns are shortened, in this order.
    pub(crate) yielding: &'static [Yielding],
    /// If that is not enough these are left out, in this order.
    pub(crate) dropped: &'static [usize],
}

/// Columns as wide as their widest cell.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    fitted(rows, Narrowing { yielding: &[], dropped: &[] }, None)
}

/// Columns as wide as their widest cell. If they do not fit into `room`, some are shortened or left out.
pub(crate) fn fitted<const N: usize>(rows: &[[String; N]], narrowing: Narrowing, room: Option<usize>) -> Vec<String> {
    let widest = |column: usize| rows.iter().map(|row| width::of(&row[column])).max().unwrap_or_default();
    let whole: [usize; N] = std::array::from_fn(widest);
    let mut left_out = 0;
    let (shown, widths) = loop {
        let is_left_out = |column: &usize| narrowing.dropped[..left_out].contains(column);
        let shown: Vec<usize> = (0..N).filter(|column| !is_left_out(column)).collect();
        let mut widths = whole;
        let all = shown.iter().map(|column| whole[*column]).sum::<usize>() + GAP.len() * shown.len().saturating_sub(1);
        let mut too_much = room.map_or(0, |room| all.saturating_sub(room));
        let nothing_is_left = left_out == narrowing.dropped.len();
        for Yielding { column, least, at_last } in narrowing.yielding.iter().filter(|yielding| !is_left_out(&yielding.column)) {
            let least = if nothing_is_left { at_last } else { least };
            let less = too_much.min(widths[*column].saturating_sub(*least));
            widths[*column] -= less;
            too_much -= less;
        }
        if too_much == 0 || nothing_is_left {
            break (shown, widths);
        }
        left_out += 1;
    };
    let line = |row: &[String; N]| {
        let cell = |column: &usize| {
            let cell = shortened(&row[*column], widths[*column]);
            let padding = widths[*column].saturating_sub(width::of(&cell));
            format!("{cell}{}", " ".repeat(padding))
        };
        shown.iter().map(cell).collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// At most `room` columns. A number at the end is kept whole if possible: half of a process id is another process id.
fn shortened(text: &str, room: usize) -> String {
    if width::of(text) <= room {
        return text.to_owned();
    }
    let last = text.rfind([' ', ':']).map(|at| &text[at..]).filter(|last| last.contains(|letter: char| letter.is_ascii_digit()));
    let last = last.unwrap_or_default();
    match room.checked_sub(width::of(last) + 1) {
        Some(head @ 1..) if !last.is_empty() => format!("{}…{last}", width::beginning(text, head)),
        _ => cut(text, room),
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
        const ORDER: &[Yielding] =
            &[Yielding { column: 1, least: 5, at_last: 5 }, Yielding { column: 2, least: 10, at_last: 10 }];
        let order = Narrowing { yielding: ORDER, dropped: &[] };
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
            assert_eq!(fitted(&rows, order, room)[1], expected, "{room:?}");
        }
    }

    #[test]
    fn what_has_no_number_at_its_end_or_a_long_one_is_cut_there() {
        assert_eq!(shortened("semaphore 1 of 3 free", 17), "semaphore 1 of 3…");
        assert_eq!(shortened("a:0123456789", 6), "a:012…");
        assert_eq!(shortened("0123456789", 4), "012…");
        assert_eq!(shortened("0123", 4), "0123");
    }

    #[test]
    fn columns_are_left_out_when_shortening_is_not_enough() {
        const YIELDING: &[Yielding] = &[Yielding { column: 1, least: 5, at_last: 5 }];
        let rows = rows([["NAME", "OWNER", "LEASE LEFT"], ["job", "5c1e6bd0:12", "29s"]]);
        let narrowing = Narrowing { yielding: YIELDING, dropped: &[1, 2] };
        for (room, expected) in [(30, "job   5c1e6bd0:12  29s"), (23, "job   5…:12  29s"), (22, "job   29s"), (15, "job")] {
            assert_eq!(fitted(&rows, narrowing, Some(room))[1], expected, "{room}");
        }
    }

    #[test]
    fn wide_characters_are_counted_by_their_columns() {
        let rows = rows([["NAME", "KIND"], ["订单:42", "mutex"], ["a", "mutex"]]);
        assert_eq!(aligned(&rows), ["NAME     KIND", "订单:42  mutex", "a        mutex"]);
        assert_eq!(shortened("订单订单订单:42", 8), "订单…:42");
    }
}
