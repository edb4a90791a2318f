//! `cargo xtask dist`: the program that packages ship: optimized, without symbols, and the symbols in a file beside it.

use std::path::Path;

use crate::steps::{Run, target};

/// How large the program may be with the stores of its default build.
const LARGEST: u64 = 10_000_000;

/// Builds it, and takes the symbols out of it.
pub(crate) fn run() -> Result<(), String> {
    Run::cargo(&["build", "--profile", "dist", "-p", "lockkeeper-cli"]).stream()?;
    let folder = target().join("dist");
    let (built, program, symbols) =
        (folder.join("lockkeeper"), folder.join("bin/lockkeeper"), folder.join("bin/lockkeeper.debug"));
    std::fs::create_dir_all(folder.join("bin")).map_err(|error| format!("cannot make {}/bin: {error}", folder.display()))?;
    let shown = |file: &Path| file.display().to_string();
    objcopy(&["--only-keep-debug", "--compress-debug-sections", &shown(&built), &shown(&symbols)])?;
    // The link names the file with the symbols; debuggers look for it beside the program.
    objcopy(&["--strip-all", &format!("--add-gnu-debuglink={}", shown(&symbols)), &shown(&built), &shown(&program)])?;
    let size = |file: &Path| file.metadata().map(|data| data.len()).map_err(|error| format!("{}: {error}", file.display()));
    let (small, beside) = (size(&program)?, size(&symbols)?);
    println!("    {}: {:.1} MB", program.display(), small as f64 / 1e6);
    println!("    {}: {:.1} MB, for debuggers and `addr2line`", symbols.display(), beside as f64 / 1e6);
    if small > LARGEST {
        return Err(format!("the program has {small} bytes, more than {LARGEST}; find out what came in"));
    }
    Ok(())
}

fn objcopy(words: &[&str]) -> Result<(), String> {
    Run::new("objcopy", words).stream()
}
