//! The Chinese README says what the English one says: same outline, same code, same links, and somebody looked at it since the last change.

use std::collections::BTreeSet;

const ENGLISH: &str = include_str!("../../../README.md");
const CHINESE: &str = include_str!("../../../README.zh-CN.md");

/// The shape of a page: its headings by depth, its table rows, its list entries, and its code line by line.
fn outline(page: &str) -> Vec<String> {
    let mut in_code = false;
    let mut shape = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        }
        let depth = line.bytes().take_while(|byte| *byte == b'#').count();
        if in_code || line.starts_with("```") {
            shape.push(line.to_owned());
        } else if depth > 0 {
            shape.push(format!("heading {depth}"));
        } else if line.starts_with('|') {
            shape.push(format!("row of {}", line.matches('|').count()));
        } else if line.starts_with("* ") {
            shape.push("entry".to_owned());
        }
    }
    shape
}

/// Where its links go, except from one language to the other.
fn links(page: &str) -> BTreeSet<&str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.starts_with("README")).collect()
}

/// FNV-1a: it need only change when the text does.
fn hash(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

#[test]
fn both_have_the_same_outline_and_the_same_code() {
    let (english, chinese) = (outline(ENGLISH), outline(CHINESE));
    for (number, (english, chinese)) in english.iter().zip(&chinese).enumerate() {
        assert_eq!(english, chinese, "part {number}");
    }
    assert_eq!(english.len(), chinese.len());
}

#[test]
fn both_have_the_same_links() {
    assert_eq!(links(ENGLISH), links(CHINESE));
}

#[test]
fn the_chinese_one_was_looked_at_after_the_last_change() {
    let mark = format!("<!-- in step with README.md {} -->", hash(ENGLISH));
    assert!(
        CHINESE.trim_end().ends_with(&mark),
        "README.md has changed: bring README.zh-CN.md in step with it, and end it with\n{mark}"
    );
}

/// The checks above find what they are there for.
#[test]
fn a_change_of_one_page_is_found() {
    assert_ne!(outline(ENGLISH), outline(&ENGLISH.replace("try_lock", "lock")), "other code");
    assert_ne!(outline(ENGLISH), outline(&format!("{ENGLISH}\n## More\n")), "another heading");
    assert_ne!(links(ENGLISH), links(&ENGLISH.replace("docs/cli.md", "docs/shell.md")), "another link");
    assert_ne!(hash(ENGLISH), hash(&ENGLISH.replace("Busy is not an error", "Busy is an error")), "another sentence");
}
