//! Running commands so that a reader of the log sees what was run, how long it took, and how to run it again.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What came of a step that did not fail.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    /// Why it was not done.
    Skipped(String),
}

/// One command of a step, at the root of the project, without input.
#[derive(Debug)]
pub(crate) struct Run {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    removed: Vec<&'static str>,
}

impl Run {
    pub(crate) fn new(program: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        Self { program: program.to_owned(), arguments, variables: Vec::new(), removed: Vec::new() }
    }

    /// The cargo that runs us.
    pub(crate) fn cargo(arguments: &[&str]) -> Self {
        Self::new("cargo", arguments)
    }

    pub(crate) fn with(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((variable, value.into()));
        self
    }

    pub(crate) fn without(mut self, variable: &'static str) -> Self {
        self.removed.push(variable);
        self
    }

    /// Runs it; its output goes to ours.
    pub(crate) fn stream(&self) -> Result<(), String> {
        println!("    {self}");
        let status = self.command().status().map_err(|error| self.not_started(&error))?;
        if status.success() { Ok(()) } else { Err(format!("it ended with {status}; repeat it with: {self}")) }
    }

    /// Runs it and gives what it printed; its errors go to ours.
    pub(crate) fn capture(&self) -> Result<String, String> {
        println!("    {self}");
        let output = self.command().stderr(Stdio::inherit()).output().map_err(|error| self.not_started(&error))?;
        if !output.status.success() {
            return Err(format!("it ended with {}; repeat it with: {self}", output.status));
        }
        String::from_utf8(output.stdout).map_err(|_| format!("its output is not UTF-8; repeat it with: {self}"))
    }

    /// Whether it runs and succeeds, in silence.
    pub(crate) fn succeeds(&self) -> bool {
        self.command().stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    fn command(&self) -> Command {
        let program = if self.program == "cargo" { std::env::var_os("CARGO") } else { None };
        let mut command = Command::new(program.unwrap_or_else(|| self.program.clone().into()));
        command
            .args(&self.arguments)
            .current_dir(root())
            .stdin(Stdio::null())
            .envs(self.variables.iter().map(|(variable, value)| (variable, value)));
        for variable in &self.removed {
            command.env_remove(variable);
        }
        command
    }

    fn not_started(&self, error: &std::io::Error) -> String {
        format!("{} cannot be started: {error}; install it, or put it on the PATH", self.program)
    }
}

/// As it can be pasted into a shell.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (variable, value) in &self.variables {
            write!(f, "{variable}={} ", quoted(value))?;
        }
        f.write_str(&self.program)?;
        self.arguments.iter().try_for_each(|word| write!(f, " {}", quoted(word)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./:,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Runs one step: says what it is, and how long it took.
pub(crate) fn step(
    name: &str,
    what: &str,
    work: impl FnOnce() -> Result<Outcome, String>,
) -> Result<(Outcome, Duration), String> {
    println!("==> {name}: {what}");
    let began = Instant::now();
    let outcome = work().map_err(|message| format!("step {name} failed: {message}"))?;
    let took = began.elapsed();
    match &outcome {
        Outcome::Done => println!("    ok, {:.1} s", took.as_secs_f64()),
        Outcome::Skipped(why) => println!("    skipped: {why}"),
    }
    Ok((outcome, took))
}

/// The root of the project.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the project")
}

/// Where cargo puts what it builds; absolute.
pub(crate) fn target() -> PathBuf {
    let told = std::env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    told.and_then(|folder| std::path::absolute(folder).ok()).unwrap_or_else(|| root().join("target"))
}

/// Where a program is, if it is on the PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let executable = |file: &PathBuf| file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_a_shell_takes_it() {
        let run = Run::cargo(&["run", "--", "echo", "it's one"]).with("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(run.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo run -- echo 'it'\''s one'");
    }

    #[test]
    fn a_failure_names_the_step_and_the_command() {
        let failed = step("fmt", "always fails", || Run::new("sh", &["-c", "exit 3"]).stream().map(|()| Outcome::Done));
        let message = failed.unwrap_err();
        assert!(message.contains("step fmt failed") && message.contains("repeat it with: sh -c 'exit 3'"), "{message}");
    }

    #[test]
    fn commands_have_no_input() {
        assert_eq!(Run::new("cat", &[]).capture().unwrap(), "");
    }
}
