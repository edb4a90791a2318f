//! What each target does with its bytes.

use lockkeeper::fuzzing as door;
use lockkeeper::referee::{Limits, Referee, read};

// The CLI is a program: its parser is compiled here once more.
#[allow(dead_code, unreachable_pub, reason = "it is the file of another crate")]
#[path = "../../../crates/lockkeeper-cli/src/duration.rs"]
mod parser;

/// Longer histories take longer, and show no more.
const MOST_LINES: usize = 200;

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// The lines of an input; a store gives text and bytes in several columns.
fn lines(data: &[u8]) -> Vec<&[u8]> {
    data.split(|byte| *byte == b'\n').take(MOST_LINES).collect()
}

pub(super) fn url(data: &[u8]) {
    text(data).into_iter().for_each(door::store_url);
}

pub(super) fn toml(data: &[u8]) {
    text(data).into_iter().for_each(|text| door::config_file(text, false));
}

pub(super) fn yaml(data: &[u8]) {
    text(data).into_iter().for_each(|text| door::config_file(text, true));
}

pub(super) fn redis(data: &[u8]) {
    door::redis_reply(data);
}

/// The token, the head and the parts, one in each line; what a notification says is one line.
pub(super) fn rows(data: &[u8]) {
    let lines: Vec<&str> = lines(data).into_iter().filter_map(text).collect();
    let column = |at: usize| lines.get(at).copied().filter(|column| !column.is_empty());
    let token = column(0).and_then(|token| token.parse().ok()).unwrap_or(7);
    door::sql_rows(token, column(1), column(2));
    lines.iter().for_each(|line| door::sql_payload(line));
}

pub(super) fn record(data: &[u8]) {
    door::record(data);
}

pub(super) fn sqlite(data: &[u8]) {
    text(data).into_iter().for_each(door::sqlite_text);
}

/// A child in each line.
pub(super) fn zookeeper(data: &[u8]) {
    let lines: Vec<&str> = lines(data).into_iter().filter_map(text).collect();
    door::zookeeper_children(&lines);
}

/// A key and its value in two lines each.
pub(super) fn etcd(data: &[u8]) {
    let lines = lines(data);
    let pairs: Vec<(&[u8], &[u8])> = lines.chunks(2).map(|pair| (pair[0], pair.get(1).copied().unwrap_or_default())).collect();
    door::etcd_keys(&pairs);
}

/// A text, and in a second line a pattern.
pub(super) fn name(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (text, pattern) = text.split_once('\n').unwrap_or((text, "a*b*c?"));
    door::name(text, pattern);
}

pub(super) fn duration(data: &[u8]) {
    text(data).into_iter().for_each(|text| drop(parser::parse(text)));
}

pub(super) fn history(data: &[u8]) {
    let whole = lines(data).join(&b'\n');
    let (mut referee, mut end) = (Referee::new(Limits::default()), 0);
    for event in read(whole.as_slice()).map_while(Result::ok) {
        // Time does not go back: the program that merges histories sorts them.
        if event.at >= end {
            end = event.at;
            referee.observe(&event);
        }
    }
    let _ = referee.finish(end);
}
