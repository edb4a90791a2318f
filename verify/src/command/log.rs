//! Logs of runs in `docs/evidence`: a line of titles, then one line per run, separated by tabs, so that runs can be added up. Each begins with its date and
//! its commit.

use std::path::{Path, PathBuf};

/// A log, and what is known of the present run.
#[derive(Debug)]
pub(crate) struct Log {
    file: Option<PathBuf>,
    titles: String,
    rows: Vec<Vec<String>>,
    date: String,
    /// The commit that this program was built from.
    pub(crate) commit: String,
}

/// The value of an option.
pub(crate) fn word<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)).copied()
}

/// What is written where something is not known.
const UNKNOWN: &str = "?";

impl Log {
    /// Reads the log that `--log` names; `--date` and `--commit` are those of this run. Without `--log` there are no runs before this one.
    pub(crate) fn open(words: &[&str], titles: &[&str]) -> Result<Self, String> {
        let titles = [&["date", "commit"], titles].concat().join("\t");
        let file = word(words, "--log").map(PathBuf::from);
        let rows = match file.as_ref().map(std::fs::read_to_string) {
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("cannot read the log: {error}"));
            }
            Some(Ok(text)) => rows(&titles, &text)?,
            _ => Vec::new(),
        };
        let told = |name: &str| word(words, name).unwrap_or(UNKNOWN).to_owned();
        Ok(Self { file, titles, rows, date: told("--date"), commit: told("--commit") })
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, values: &[String]) {
        self.rows.push([&[self.date.clone(), self.commit.clone()], values].concat());
    }

    /// How many runs there are of this kind, and the sum of each of these columns. What is not known counts as nothing.
    pub(crate) fn sums<const N: usize>(
        &self,
        columns: [&str; N],
        of: impl Fn(&dyn Fn(&str) -> String) -> bool,
    ) -> (u64, [u64; N]) {
        let value = |row: &[String], column: &str| {
            let at = self.titles.split('\t').position(|title| title == column);
            at.and_then(|at| row.get(at)).cloned().unwrap_or_default()
        };
        let rows: Vec<_> = self.rows.iter().filter(|row| of(&|column| value(row, column))).collect();
        let sum = |column: &str| rows.iter().map(|row| value(row, column).parse().unwrap_or(0)).sum();
        (rows.len() as u64, columns.map(sum))
    }

    /// What was noted about runs: the column after date and commit, and the last one.
    pub(crate) fn notes(&self) -> Vec<String> {
        let noted = |row: &Vec<String>| Some((row.get(2)?.clone(), row.last().filter(|note| !note.is_empty())?.clone()));
        let mut notes: Vec<String> = self.rows.iter().filter_map(noted).map(|(of, note)| format!("{of}: {note}")).collect();
        notes.dedup();
        notes
    }

    /// Writes it to where it came from.
    pub(crate) fn write(&self) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let lines: String = self.rows.iter().map(|row| row.join("\t") + "\n").collect();
        let folder = file.parent().unwrap_or(Path::new("."));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(file, format!("{}\n{lines}", self.titles)));
        written.map_err(|error| format!("cannot write {}: {error}", file.display()))
    }
}

fn rows(titles: &str, text: &str) -> Result<Vec<Vec<String>>, String> {
    let mut lines = text.lines();
    match lines.next() {
        Some(found) if found != titles => Err(format!("the log has the columns {found:?} instead of {titles:?}")),
        _ => Ok(lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_kept_and_added_up() {
        let file = std::env::temp_dir().join(format!("lockkeeper-log-{}", std::process::id()));
        let path = file.display().to_string();
        let words = ["--log", &path, "--date", "2026-11-19", "--commit", "abc"];
        let row = |seeds: u64, broken: &str| [seeds.to_string(), broken.to_owned()];
        let mut log = Log::open(&words, &["seeds", "broken"]).unwrap();
        log.add(&row(3, "0"));
        log.write().unwrap();
        let mut log = Log::open(&["--log", &path, "--commit", "def"], &["seeds", "broken"]).unwrap();
        log.add(&row(4, UNKNOWN));
        assert_eq!(log.sums(["seeds", "broken"], |_| true), (2, [7, 0]));
        assert_eq!(log.sums(["seeds"], |run| run("commit") == "abc"), (1, [3]));
        log.write().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, "date\tcommit\tseeds\tbroken\n2026-11-19\tabc\t3\t0\n?\tdef\t4\t?\n");
        assert!(Log::open(&words, &["seeds"]).unwrap_err().contains("columns"));
        std::fs::remove_file(&file).unwrap();
    }
}
