//! A Java service with Redisson and a Rust service with lockkeeper use one lock.
//!
//! Run with `cargo run -p lockkeeper-guide --example java_and_rust`. It starts a `redis-server` and a Java process of its own. The Java
//! program is `interop/redisson`, with the real Redisson in it: `cargo xtask interop` builds it once, into `target/redisson`.
//! Set `LOCKKEEPER_REDISSON` if it is elsewhere.
#![allow(clippy::disallowed_methods, reason = "the process and the task are the example's own")]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lockkeeper::Client;
use lockkeeper_guide::{Outcome, connect, redis_server, wait_until};

/// A Java process. A command is a line, and so is its answer.
struct Java {
    process: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Java {
    /// Where the Java program is, if it was built and there is a Java to run it.
    fn find() -> Option<PathBuf> {
        let built = std::env::var_os("LOCKKEEPER_REDISSON").filter(|folder| !folder.is_empty());
        let built = built.map_or_else(|| PathBuf::from("target/redisson"), PathBuf::from).join("4.7.0");
        let java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        (java.is_ok_and(|status| status.success()) && built.join("driver.jar").is_file()).then_some(built)
    }

    fn start(program: PathBuf) -> Outcome<Self> {
        let path = format!("{0}/driver.jar:{0}/lib/*", program.display());
        let mut process = Command::new("java")
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-cp", &path, "lockkeeper.interop.Driver"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (input, output) = process.stdin.take().zip(process.stdout.take()).ok_or("the process has no pipes")?;
        Ok(Self { process, input, answers: BufReader::new(output).lines() })
    }

    /// Sends a command, to one thread of one Redisson client.
    fn tell(&mut self, command: &str) -> Outcome {
        Ok(writeln!(self.input, "1 service thread {command}")?)
    }

    /// The answer to the command that was sent.
    fn answer(&mut self) -> Outcome<String> {
        let line = self.answers.next().ok_or("java has ended")??;
        let value = line.split_once("\"value\":").ok_or_else(|| format!("java threw an exception: {line}"))?.1;
        Ok(value.trim_end_matches('}').trim_matches('"').to_owned())
    }

    fn ask(&mut self, command: &str) -> Outcome<String> {
        self.tell(command)?;
        self.answer()
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let Some(program) = Java::find() else {
        println!("skipped: redisson: no java on the PATH, or no driver; build it with `cargo xtask interop`");
        return Ok(());
    };
    let server = redis_server()?;
    let client = Client::connect(server.url(0)).await?;
    let mut java = Java::start(program)?;
    // Address, database, Redisson's watchdog and its idle time-out in ms.
    java.ask(&format!("client open redis://127.0.0.1:{} 0 30000 10000", server.port))?;

    // Rust holds it: Java's tryLock() fails, and its lock() waits for the release.
    let guard = client.mutex("orders:42").lock().await?;
    println!("rust holds it; java's tryLock(): {}", java.ask("lock try orders:42")?);
    java.tell("lock lock orders:42 -1")?; // The watchdog renews it.
    let mut redis = connect(&server)?;
    wait_until("java waits", || {
        let waiting = redis::cmd("PUBSUB").arg("CHANNELS").arg("redisson_lock__channel:*").query(&mut redis);
        waiting.is_ok_and(|channels: Vec<String>| !channels.is_empty())
    });
    guard.release().await?;
    println!("rust released it; java's lock() returned: {}", java.answer()?);

    // Java holds it: ours is refused, and sees who holds it.
    let refused = client.mutex("orders:42").try_lock().await?.is_none();
    println!("java holds it; rust's try_lock() was refused: {refused}");
    let seen = client.inspect("orders:42").await?.ok_or("somebody holds it")?;
    println!("rust sees java's owner: {}", seen.holders[0].owner == java.ask("client owner")?);

    // Ours waits, and is woken by Java's unlock().
    let waiter = tokio::spawn({
        let mutex = client.mutex("orders:42");
        async move { mutex.lock().await }
    });
    java.ask("lock unlock orders:42")?;
    let guard = waiter.await??;
    println!("java unlocked it; rust holds it: {}", guard.is_valid());
    guard.release().await?;
    Ok(client.close().await?)
}
