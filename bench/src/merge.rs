//! A run of some workloads takes the place of their part of the page. The whole takes about an hour, and a store is measured again more often than that.

use std::fmt::Write as _;

/// A section of the page: its id, and its text with the heading.
pub(crate) type Section = (&'static str, String);

/// The page with new goals and sections in the place of the old ones. What is new stands behind what was there; `note` says when the sections were measured.
pub(crate) fn merged(page: &str, goals: &str, sections: &[Section], note: &str) -> String {
    let mut text = String::new();
    let mut fresh: Vec<&str> = goals.lines().filter(|line| line.starts_with("| (")).collect();
    let mut left: Vec<&Section> = sections.iter().collect();
    let (mut in_goals, mut in_results, mut skipping) = (false, false, false);
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
        in_goals |= line.starts_with("| workload | figure |");
        in_results |= line == "## Results";
        if let Some(at) = left.iter().position(|(id, _)| line.starts_with(&format!("### ({id}) "))) {
            text.push_str(&noted(&left.remove(at).1, note));
            skipping = true;
        }
        match fresh.iter().position(|row| in_goals && figure(row) == figure(line)) {
            Some(at) => push(&mut text, fresh.remove(at)),
            None if !skipping => push(&mut text, line),
            None => {}
        }
    }
    left.drain(..).for_each(|(_, section)| text.push_str(&noted(section, note)));
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

    #[test]
    fn what_ran_takes_its_place_and_the_rest_stays() {
        let goals = "| workload | figure | goal | measured |  |\n|---|---|---:|---:|---|\n| (a) | x | ≤ 1 | 1 | met |\n| (l) | y | ≤ 1 | 1 | met |\n";
        let sections = [("a", "### (a) one\n\nnew a\n\n".to_owned()), ("l", "### (l) three\n\nnew l\n\n".to_owned())];
        let page = merged(PAGE, goals, &sections, "*Today.*");
        assert!(!page.contains("old a") && !page.contains("missed"), "{page}");
        for kept in ["old b", "by hand", "### (a) one\n\n*Today.*\n\nnew a", "| (a) | x | ≤ 1 | 1 | met |\n| (l) | y"] {
            assert!(page.contains(kept), "{kept} is not in\n{page}");
        }
        assert!(page.find("new l") < page.find("## Notes") && page.find("new l") > page.find("old b"), "{page}");
        assert_eq!(merged(PAGE, "", &[], ""), PAGE);
    }

    #[test]
    fn a_section_that_is_measured_again_has_one_note() {
        let sections = [("a", "### (a) one\n\nnew a\n\n".to_owned())];
        let once = merged(PAGE, "", &sections, "*Today.*");
        assert_eq!(merged(&once, "", &sections, "*Today.*"), once);
    }
}
