//! A run of some workloads takes the place of their part of the page. The whole takes about an hour, and a store is measured again more often than that.

use std::fmt::Write as _;

/// A section of the page: its id, and its text with the heading.
pub(crate) type Section = (&'static str, String);

/// What a run of some workloads has for the page.
pub(crate) struct Run<'a> {
    /// A table of goals.
    pub(crate) goals: &'a str,
    /// The workload and the figure of every goal that there is, measured or not.
    pub(crate) known: &'a [(&'static str, &'static str)],
    pub(crate) sections: &'a [Section],
    /// When the sections were measured.
    pub(crate) note: &'a str,
    /// What stands at the end of the page, written by hand. It begins with a heading.
    pub(crate) notes: &'a str,
}

impl Run<'_> {
    /// Whether a row is of a goal that this project no longer has, in a workload that ran.
    fn is_outdated(&self, row: &str) -> bool {
        let ran = |workload: &str| self.sections.iter().any(|(id, _)| id.starts_with(workload));
        let [_, workload, what] = figure(row)[..] else { return false };
        let workload = workload.trim().trim_start_matches('(').trim_end_matches(')');
        row.starts_with("| (") && ran(workload) && !self.known.contains(&(workload, what.trim()))
    }
}

/// The page with new goals and sections in the place of the old ones. What is new stands behind what was there.
pub(crate) fn merged(page: &str, run: &Run<'_>) -> String {
    let Run { goals, sections, note, notes, .. } = *run;
    let mut text = String::new();
    let mut fresh: Vec<&str> = goals.lines().filter(|line| line.starts_with("| (")).collect();
    let mut left: Vec<&Section> = sections.iter().collect();
    let (mut in_goals, mut in_results, mut skipping) = (false, false, false);
    let by_hand = notes.lines().next().unwrap_or_default();
    for line in page.lines() {
        if line.starts_with("## ") || line.starts_with("### ") {
            skipping = false;
        }
        if in_goals && !line.starts_with('|') {
            fresh.drain(..).for_each(|row| push(&mut text, row));
            in_goals = false;
        }
        if in_results && line.starts_with("## ") {
            left.drain(..).for_each(|(_, section)| text.push_str(&noted(section, note)));
            in_results = false;
        }
        if !by_hand.is_empty() && line == by_hand {
            break;
        }
        in_goals |= line.starts_with("| workload | figure |");
        in_results |= line == "## Results";
        if let Some(at) = left.iter().position(|(id, _)| line.starts_with(&format!("### ({id}) "))) {
            text.push_str(&noted(&left.remove(at).1, note));
            skipping = true;
        }
        let left_out = skipping || (in_goals && run.is_outdated(line));
        match fresh.iter().position(|row| in_goals && figure(row) == figure(line)) {
            Some(at) => push(&mut text, fresh.remove(at)),
            None if !left_out => push(&mut text, line),
            None => {}
        }
    }
    left.drain(..).for_each(|(_, section)| text.push_str(&noted(section, note)));
    text.push_str(notes);
    text
}

fn push(text: &mut String, line: &str) {
    let _ = writeln!(text, "{line}");
}

/// The workload and the figure of a goal's row, without what was measured.
fn figure(row: &str) -> Vec<&str> {
    row.split('|').take(3).collect()
}

/// The section with a note under its heading.
fn noted(section: &str, note: &str) -> String {
    match section.split_once('\n') {
        Some((heading, rest)) => format!("{heading}\n\n{note}\n{rest}"),
        None => section.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# B\n\n## Goals\n\n| workload | figure | goal | measured |  |\n|---|---|---:|---:|---|\n| (a) | x | ≤ 1 | 2 | **missed** |\n\n\
                        ## Results\n\n### (a) one\n\nold a\n\n### (b) two\n\nold b\n\n## Notes\n\nby hand\n";

    const KNOWN: &[(&str, &str)] = &[("a", "x"), ("l", "y")];

    fn with<'a>(goals: &'a str, sections: &'a [Section], notes: &'a str) -> Run<'a> {
        Run { goals, known: KNOWN, sections, note: "*Today.*", notes }
    }

    #[test]
    fn what_ran_takes_its_place_and_the_rest_stays() {
        let goals = "| workload | figure | goal | measured |  |\n|---|---|---:|---:|---|\n| (a) | x | ≤ 1 | 1 | met |\n| (l) | y | ≤ 1 | 1 | met |\n";
        let sections = [("a", "### (a) one\n\nnew a\n\n".to_owned()), ("l", "### (l) three\n\nnew l\n\n".to_owned())];
        let page = merged(PAGE, &with(goals, &sections, ""));
        assert!(!page.contains("old a") && !page.contains("missed"), "{page}");
        for kept in ["old b", "by hand", "### (a) one\n\n*Today.*\n\nnew a", "| (a) | x | ≤ 1 | 1 | met |\n| (l) | y"] {
            assert!(page.contains(kept), "{kept} is not in\n{page}");
        }
        assert!(page.find("new l") < page.find("## Notes") && page.find("new l") > page.find("old b"), "{page}");
        assert_eq!(merged(PAGE, &with("", &[], "")), PAGE);
    }

    #[test]
    fn a_section_that_is_measured_again_has_one_note() {
        let sections = [("a", "### (a) one\n\nnew a\n\n".to_owned())];
        let once = merged(PAGE, &with("", &sections, ""));
        assert_eq!(merged(&once, &with("", &sections, "")), once);
    }

    #[test]
    fn a_goal_that_no_longer_exists_goes_with_the_next_run_of_its_workload() {
        let row = "| (l) | y before it was renamed | ≤ 1 | 2 | **missed** |\n";
        let page = PAGE.replace("\n\n## Results", &format!("\n{row}\n## Results"));
        let of = |id| [(id, format!("### ({id}) one\n\nnew\n\n"))];
        assert!(merged(&page, &with("", &of("a"), "")).contains(row), "another workload ran");
        let ran = merged(&page, &with("", &of("l8-pg"), ""));
        assert!(!ran.contains(row), "{ran}");
        // A goal that was not measured this time stays.
        assert!(merged(PAGE, &with("", &of("a"), "")).contains("| (a) | x | ≤ 1 | 2 | **missed** |"));
    }

    #[test]
    fn what_is_written_by_hand_is_copied_anew() {
        let notes = "## Notes\n\nby hand, and later\n";
        let page = merged(PAGE, &with("", &[("l", "### (l) three\n\nnew l\n\n".to_owned())], notes));
        assert!(page.ends_with(&format!("new l\n\n{notes}")) && page.contains("old b"), "{page}");
        assert_eq!(merged(&page, &with("", &[], notes)), page);
    }
}
