//! The line on the terminal that says why nothing happens: who holds the lock, for how long, the place in the queue. It is erased before anything else is written.

use std::future::Future;
use std::io::{Write as _, stderr};
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper::backend::{Holder, Snapshot};
use tokio::time::{Instant, sleep};

use crate::exit::say;
use crate::terminal;
use crate::view::{ago, place, who};

/// Shorter waits are not shown.
const QUIET: Duration = Duration::from_millis(400);

/// How often the line is updated.
const REDRAW: Duration = Duration::from_secs(1);

/// Where stderr is no terminal: the wait is reported after this long, and then at doubling pauses.
const FIRST_REPORT: Duration = Duration::from_secs(5);

/// Waits for `work`, and shows meanwhile what it waits for: as a line that is redrawn, or as a line now and then if stderr is not a terminal.
pub(crate) async fn shown<T>(client: &Client, name: &str, began: Instant, work: impl Future<Output = T>) -> T {
    if !terminal::is_drawable(&stderr()) {
        return reported(client, name, began, work).await;
    }
    // Erased also when a signal drops this future.
    let mut line = Line { drawn: false };
    let mut work = std::pin::pin!(work);
    let mut pause = QUIET;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(pause) => {}
        }
        pause = REDRAW;
        // If the store does not answer, the last line stays.
        tokio::select! {
            biased;
            done = &mut work => return done,
            found = client.inspect(name) => if let Ok(Some(found)) = found {
                line.draw(&describe(name, &found, client, began.elapsed()));
            }
        }
    }
}

/// Writes a line after 5 s, and then at doubling pauses: enough for a log, and not too much.
async fn reported<T>(client: &Client, name: &str, began: Instant, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut pause = FIRST_REPORT;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(pause) => {}
        }
        pause *= 2;
        tokio::select! {
            biased;
            done = &mut work => return done,
            found = client.inspect(name) => {
                let held = match found {
                    Ok(found) => found.as_ref().and_then(held).unwrap_or_else(|| "no holder is known".to_owned()),
                    Err(error) => format!("the store does not answer: {error}"),
                };
                say(&format!("still waiting for {name:?} after {}, {held}", ago(began.elapsed())));
            }
        }
    }
}

/// Erases itself when dropped.
#[derive(Default)]
pub(crate) struct Line {
    drawn: bool,
}

impl Line {
    pub(crate) fn draw(&mut self, text: &str) {
        let text = terminal::cut(text, terminal::size(stderr()).0.saturating_sub(1));
        let (dim, normal) = if terminal::has_colour(&stderr()) { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        let _ = write!(stderr(), "\r\x1b[K{dim}{text}{normal}");
        self.drawn = true;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.drawn {
            erase();
        }
    }
}

/// Erases the line before the terminal is used for something else.
pub(crate) fn erase() {
    if terminal::is_drawable(&stderr()) {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}

/// Who holds the lock and since when; `None` if no holder is known.
pub(crate) fn held(found: &Snapshot) -> Option<String> {
    held_by(found, who)
}

fn held_by(found: &Snapshot, who: fn(&Holder) -> String) -> Option<String> {
    let holder = found.holders.first()?;
    let mut text = format!("held by {}", who(holder));
    if let Some(held) = holder.held_for {
        text.push_str(&format!(" for {}", ago(held)));
    }
    if found.holders.len() > 1 {
        text.push_str(&format!(" and {} more", found.holders.len() - 1));
    }
    Some(text)
}

fn describe(name: &str, found: &Snapshot, client: &Client, waited: Duration) -> String {
    let mut text = format!("waiting {} for {:?}", ago(waited), terminal::plain(name));
    // Without the program: the place in the queue must fit on the line, too.
    if let Some(held) = held_by(found, place) {
        text.push_str(&format!(": {held}"));
    }
    let mine = client.id().to_string();
    if let Some(place) = found.queue.iter().position(|waiting| waiting.owner.starts_with(&mine)) {
        text.push_str(&format!(", {} of {} in the queue", place + 1, found.queue.len()));
    }
    text
}
