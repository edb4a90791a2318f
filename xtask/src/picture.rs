//! `cargo xtask picture`: runs the scene of the README in a real shell, and draws what was typed and printed as an SVG.
//!
//! The picture has a background of its own, so it is readable on light and on dark pages. Lines appear at the pace of the run. Where nothing is
//! animated, all of it is shown.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::steps::{Run, root, target};

/// Where the picture is.
const PLACE: &str = "docs/images/terminal.svg";

/// What is typed, and parts of what must be printed before the next line is typed. They are words that a reader of the README will meet, so the
/// picture is stale when a message changes.
const SCENE: [(&str, &[&str]); 8] = [
    ("# one job holds the lock, in the background", &[]),
    ("lockkeeper run -l 3s nightly -- ./report.sh &", &["report: started"]),
    (
        "lockkeeper run --no-wait nightly -- ./report.sh; echo \"exit $?\"",
        &["\"nightly\" is held by ", " (./report.sh) for ", "; wait longer", "exit 1"],
    ),
    ("# without --no-wait the second one waits for its turn", &[]),
    ("lockkeeper run nightly -- sh -c 'echo \"my turn, token $LOCKKEEPER_TOKEN\"'", &["my turn, token "]),
    ("# an operator takes the lock away: the job is ended, and says why", &[]),
    (
        "lockkeeper run -l 3s nightly -- ./report.sh & sleep 0.5; lockkeeper release --yes nightly",
        &["released \"nightly\", held by ", " (./report.sh) for ", ", owner "],
    ),
    ("wait $!; echo \"exit $?\"", &["the lock \"nightly\" is lost: the store no longer knows this hold", "exit 79"]),
];

const REPORT: &str = "#!/bin/sh\necho 'report: started'\nsleep 3\necho 'report: done'\n";

/// Shows that the shell is ready for the next line. It is no part of the picture.
const PROMPT: &str = "--ready--";

/// How long one line of the scene may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Before a command is typed, and the longest pause that the picture keeps.
const READ: f64 = 1.0;
const LONGEST: f64 = 1.5;

/// Characters in a line, and the size of one.
const COLUMNS: usize = 96;
const WIDTH: f64 = 8.43;
const HEIGHT: f64 = 21.0;

/// A line of the picture, and when it appears.
#[derive(Debug, PartialEq)]
struct Line {
    kind: &'static str,
    text: String,
    at: f64,
}

/// Records the scene and writes the picture.
pub(crate) fn run() -> Result<(), String> {
    Run::cargo(&["build", "-p", "lockkeeper-cli"]).stream()?;
    let folder = target().join("xtask").join(format!("picture-{}", std::process::id()));
    let recorded = record(&folder);
    // It holds a script and a store that only the scene used.
    let _ = fs::remove_dir_all(&folder);
    let place = root().join(PLACE);
    let trouble = |error: std::io::Error| format!("cannot write {}: {error}", place.display());
    fs::create_dir_all(place.parent().unwrap_or(root())).map_err(trouble)?;
    fs::write(&place, draw(&recorded?)).map_err(trouble)?;
    println!("    wrote {PLACE}; look at it before you commit it");
    Ok(())
}

/// Types the scene into a shell; gives what was typed and printed.
fn record(folder: &Path) -> Result<Vec<Line>, String> {
    let trouble = |error: std::io::Error| format!("cannot record the scene in {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(trouble)?;
    let script = folder.join("report.sh");
    fs::write(&script, REPORT).map_err(trouble)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(trouble)?;
    let path = format!("{}:{}", target().join("debug").display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh")
        .args(["-c", "exec sh 2>&1"])
        .current_dir(folder)
        .env("PATH", path)
        .env("LOCKKEEPER_STORE", format!("sqlite:{}", folder.join("locks.db").display()))
        .env_remove("LOCKKEEPER_CONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(trouble)?;
    let (mut input, output) = shell.stdin.take().zip(shell.stdout.take()).ok_or("the shell has no pipes")?;
    let (sender, printed) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.map(|line| sender.send((Instant::now(), line))).all(|sent| sent.is_ok())
    });
    let mut lines = Vec::new();
    let mut time = 0.0;
    for (typed, expected) in SCENE {
        // At the pace of the picture. A holder that began a moment ago is shown by its owner id: it tells its host and program in the background.
        if kind(typed) == "typed" {
            std::thread::sleep(Duration::from_secs_f64(READ));
        }
        time += READ;
        lines.push(Line { kind: kind(typed), text: typed.to_owned(), at: time });
        writeln!(input, "{typed}\necho {PROMPT}").map_err(trouble)?;
        let mut last = Instant::now();
        let end = last + LIMIT;
        let (mut prompted, mut missing) = (false, expected.to_vec());
        while !(prompted && missing.is_empty()) {
            let left = end.saturating_duration_since(Instant::now());
            let (when, text) =
                printed.recv_timeout(left).map_err(|_| format!("{typed}: did not print {missing:?}, or did not end"))?;
            if text == PROMPT {
                prompted = true;
                continue;
            }
            missing.retain(|part| !text.contains(part));
            time += when.saturating_duration_since(last).as_secs_f64().min(LONGEST);
            last = when;
            lines.push(Line { kind: "printed", text, at: time });
        }
    }
    drop(input);
    shell.wait().map_err(trouble)?;
    Ok(lines)
}

/// The picture of these lines.
fn draw(lines: &[Line]) -> String {
    let rows: Vec<(&Line, Vec<String>)> = lines.iter().map(|line| (line, wrapped(&prompted(line)))).collect();
    let count: usize = rows.iter().map(|(_, parts)| parts.len()).sum();
    let (width, height) = ((COLUMNS as f64 * WIDTH) + 40.0, (count as f64 * HEIGHT) + 66.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n\
         <title>lockkeeper in a terminal</title>\n\
         <!-- Recorded by `cargo xtask picture`. -->\n\
         <style>\n\
         text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;fill:#d1d7e0}}\n\
         .note{{fill:#9198a1}}.typed{{fill:#7ee787}}\n\
         g{{animation:show .01s both}}@keyframes show{{from{{opacity:0}}to{{opacity:1}}}}\n\
         @media (prefers-reduced-motion:reduce){{g{{animation:none}}}}\n\
         </style>\n\
         <rect x=\".5\" y=\".5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"8\" fill=\"#0d1117\" stroke=\"#59636e\"/>\n\
         <circle cx=\"20\" cy=\"18\" r=\"5\" fill=\"#ff7b72\"/><circle cx=\"38\" cy=\"18\" r=\"5\" fill=\"#d29922\"/><circle cx=\"56\" cy=\"18\" r=\"5\" fill=\"#3fb950\"/>\n",
        width - 1.0,
        height - 1.0,
    );
    let mut row = 0.0;
    for (line, parts) in rows {
        // Writing into a String does not fail.
        let _ = write!(svg, "<g style=\"animation-delay:{:.1}s\">", line.at);
        for part in parts {
            let (kind, y) = (line.kind, 54.0 + (row * HEIGHT));
            let length = part.chars().count() as f64 * WIDTH;
            let _ = write!(
                svg,
                "<text class=\"{kind}\" x=\"20\" y=\"{y:.0}\" xml:space=\"preserve\" textLength=\"{length:.1}\">{}</text>",
                escaped(&part)
            );
            row += 1.0;
        }
        svg.push_str("</g>\n");
    }
    svg + "</svg>\n"
}

fn kind(typed: &str) -> &'static str {
    if typed.starts_with('#') { "note" } else { "typed" }
}

fn prompted(line: &Line) -> String {
    if line.kind == "typed" { format!("$ {}", line.text) } else { line.text.clone() }
}

/// Cut at a space, where there is one, so that each part fits; later parts are indented.
fn wrapped(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in text.split_inclusive(' ') {
        let full = |part: &String| part.chars().count() + word.trim_end().chars().count() > COLUMNS;
        if parts.last().is_some_and(|part| !part.trim().is_empty() && full(part)) {
            parts.push("    ".to_owned());
        }
        if let Some(part) = parts.last_mut() {
            part.push_str(word);
        }
    }
    parts
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_wrapped_at_a_space() {
        let parts = wrapped(&format!("{} {}", "a".repeat(60), "b".repeat(60)));
        assert_eq!(parts, [format!("{} ", "a".repeat(60)), format!("    {}", "b".repeat(60))]);
        assert_eq!(wrapped("short"), ["short"]);
    }

    #[test]
    fn what_was_printed_is_text_in_the_picture() {
        let lines = [Line { kind: "typed", text: "a && b <c".to_owned(), at: 1.0 }];
        assert!(draw(&lines).contains(">$ a &amp;&amp; b &lt;c</text>"), "{}", draw(&lines));
    }

    /// What of the scene the picture does not show, in the order of the scene.
    fn missing(picture: &str) -> Vec<String> {
        let mut missing = Vec::new();
        let mut rest = picture;
        let mut look = |part: &str| match rest.split_once(&escaped(part)) {
            Some((_, after)) => rest = after,
            None => missing.push(part.to_owned()),
        };
        for (typed, expected) in SCENE {
            let lines = wrapped(&prompted(&Line { kind: kind(typed), text: typed.to_owned(), at: 0.0 }));
            lines.iter().map(String::as_str).chain(expected.iter().copied()).for_each(&mut look);
        }
        missing
    }

    /// The picture in the repository was recorded from the scene above.
    #[test]
    fn the_picture_shows_the_scene() {
        let picture = fs::read_to_string(root().join(PLACE)).unwrap();
        assert_eq!(missing(&picture), Vec::<String>::new(), "repeat cargo xtask picture");
        // As the messages were once: without the program, and with other words between.
        let older = picture.replace(" (./report.sh) for ", " for ");
        assert_eq!(missing(&older), [" (./report.sh) for "; 2]);
    }
}
