//! The Java in "Moving from Redisson" compiles against the Redisson that the interop tests use.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const CHAPTER: &str = include_str!("../src/from-redisson.md");

/// The version that the interop tests use most.
const VERSION: &str = "4.7.0";

/// The folder of a built driver with its libraries, or why there is none.
fn driver() -> Result<PathBuf, String> {
    let all = std::env::var_os("LOCKKEEPER_REDISSON").filter(|folder| !folder.is_empty());
    let all = all.ok_or("redisson: LOCKKEEPER_REDISSON is not set; `cargo xtask test` does, if there is one")?;
    let built = PathBuf::from(all).join(VERSION);
    if !built.join("lib").is_dir() {
        return Err(format!("redisson: {} has no libraries; `cargo xtask interop` builds it", built.display()));
    }
    let javac = Command::new("javac").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if javac.is_ok_and(|status| status.success()) { Ok(built) } else { Err("redisson: there is no javac".to_owned()) }
}

/// A class with one method per block, and with what the reader's own service has around them.
fn class(blocks: &[&str]) -> String {
    let methods: String = blocks
        .iter()
        .enumerate()
        .map(|(number, block)| format!("void block{number}() throws Exception {{\n{block}}}\n"))
        .collect();
    format!(
        "import java.util.concurrent.TimeUnit;
        import static java.util.concurrent.TimeUnit.SECONDS;
        import org.redisson.Redisson;
        import org.redisson.api.*;
        import org.redisson.config.Config;
        abstract class Blocks {{
        Config config; RedissonClient redisson; RLock lock;
        abstract void work(); abstract void answerBusy();
        {methods}}}"
    )
}

fn compile(driver: &Path, name: &str, source: &str) -> Output {
    let folder = std::env::temp_dir().join(format!("lockkeeper-java-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("Blocks.java"), source).expect("a source");
    let path = format!("{0}/driver.jar:{0}/lib/*", driver.display());
    let mut javac = Command::new("javac");
    javac.args(["-J-XX:TieredStopAtLevel=1", "-proc:none", "-cp", &path, "-d", "."]).arg("Blocks.java").current_dir(&folder);
    let ended = javac.stdin(Stdio::null()).output().expect("javac starts");
    std::fs::remove_dir_all(&folder).expect("a folder");
    ended
}

#[test]
fn the_java_of_the_chapter_compiles() {
    let driver = match driver() {
        Ok(driver) => driver,
        Err(why) => return lockkeeper::conformance::skip("the_java_of_the_chapter_compiles", &why),
    };
    let blocks: Vec<&str> = CHAPTER.split("```java\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 7, "only {} blocks were found", blocks.len());
    let ended = compile(&driver, "chapter", &class(&blocks));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    // The control: a method that Redisson does not have.
    let ended = compile(&driver, "control", &class(&["lock.lockForGood();\n"]));
    assert!(!ended.status.success(), "anything compiles");
}
