//! Puts the events of all processes in order, and has the referee judge them when nothing earlier can come any more.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

use lockkeeper::referee::{Event, Limits, Referee, Verdict, Violation, What};

use super::waits::Waits;

/// So many events before a broken promise are shown.
const SHOWN: usize = 16;

/// So many events are kept for that.
const KEPT: usize = 2_000;

/// What the first event says, before the time on the machine's boot clock in nanoseconds.
const BEGIN: &str = "boot clock at the begin: ";

/// A broken promise, and what happened to that name before.
#[derive(Clone, Debug)]
pub(super) struct Broken {
    pub(super) violation: Violation,
    pub(super) before: Vec<String>,
}

pub(super) struct Events {
    referee: Referee,
    limits: Limits,
    waiting: BTreeMap<(u64, u64), Event>,
    arrived: u64,
    last: VecDeque<Event>,
    /// The clock when the run began; the history counts from there.
    begin: u64,
    end: u64,
    prefix: String,
    history: Option<Box<dyn Write>>,
    pub(super) waits: Waits,
    pub(super) broken: Vec<Broken>,
    pub(super) granted: u64,
    pub(super) calls: u64,
    pub(super) losses: u64,
}

impl Events {
    pub(super) fn new(begin: u64, prefix: &str, limits: Limits, history: Option<Box<dyn Write>>) -> Self {
        let mut events = Self {
            referee: Referee::new(limits),
            limits,
            waiting: BTreeMap::new(),
            arrived: 0,
            last: VecDeque::new(),
            begin,
            end: 0,
            prefix: prefix.to_owned(),
            history,
            waits: Waits::default(),
            broken: Vec::new(),
            granted: 0,
            calls: 0,
            losses: 0,
        };
        // Callers add events of their own to the history.
        events.add(Event { at: begin, client: 0, what: What::Note { text: format!("{BEGIN}{begin}") } });
        events
    }

    /// An event with the machine's clock.
    pub(super) fn add(&mut self, mut event: Event) {
        let since = |at: &mut u64| *at = at.saturating_sub(self.begin);
        since(&mut event.at);
        match &mut event.what {
            What::Granted { sent, name, .. } | What::Kept { sent, name, .. } => {
                since(sent);
                shorten(name, &self.prefix);
            }
            What::Call { name, .. }
            | What::Probed { name, .. }
            | What::Lost { name, .. }
            | What::Release { name, .. }
            | What::LatchAsks { name, .. }
            | What::LatchAnswers { name, .. }
            | What::Released { name, .. } => shorten(name, &self.prefix),
            What::Wrote { resource, .. } => shorten(resource, &self.prefix),
            _ => {}
        }
        self.calls += u64::from(matches!(event.what, What::Call { .. }));
        self.granted += u64::from(matches!(event.what, What::Granted { .. }));
        self.losses += u64::from(matches!(event.what, What::Lost { .. }));
        self.arrived += 1;
        self.waiting.insert((event.at, self.arrived), event);
    }

    /// Judges all that happened before `until`, by the machine's clock. What cannot be written to the history is an error.
    pub(super) fn judge(&mut self, until: u64) -> std::io::Result<()> {
        let until = until.saturating_sub(self.begin);
        while let Some(entry) = self.waiting.first_entry().filter(|entry| entry.key().0 < until) {
            let event = entry.remove();
            if let Some(history) = &mut self.history {
                serde_json::to_writer(&mut *history, &event)?;
                history.write_all(b"\n")?;
            }
            self.referee.observe(&event);
            self.waits.observe(&event);
            self.end = event.at;
            self.last.push_back(event);
            if self.last.len() > KEPT {
                self.last.pop_front();
            }
            self.collect();
        }
        Ok(())
    }

    /// Remembers new violations with what happened before them.
    fn collect(&mut self) {
        let all = self.referee.violations();
        for violation in &all[self.broken.len().min(all.len())..] {
            // The words of a violation begin with the name.
            let name = violation.text.split('"').nth(1).unwrap_or_default();
            let of_name = |event: &&Event| format!("{:?}", event.what).contains(&format!("{name:?}"));
            let mut before: Vec<_> = self.last.iter().rev().filter(of_name).take(SHOWN).map(shown).collect();
            before.reverse();
            self.broken.push(Broken { violation: violation.clone(), before });
        }
    }

    /// Judges the rest, and what the referee found in all.
    pub(super) fn finish(&mut self, at: u64) -> std::io::Result<Verdict> {
        self.judge(u64::MAX)?;
        if let Some(history) = &mut self.history {
            history.flush()?;
        }
        let at = at.saturating_sub(self.begin).max(self.end);
        // What is due at the end, such as a loss that nobody was told of.
        self.referee.observe(&Event { at, client: u32::MAX, what: What::Note { text: "the end".to_owned() } });
        self.collect();
        let referee = std::mem::replace(&mut self.referee, Referee::new(self.limits));
        Ok(referee.finish(at))
    }
}

fn shorten(name: &mut String, prefix: &str) {
    if let Some(rest) = name.strip_prefix(prefix) {
        *name = rest.to_owned();
    }
}

/// One line of a timeline.
fn shown(event: &Event) -> String {
    let what = serde_json::to_value(&event.what).unwrap_or_default();
    let word = what["event"].as_str().unwrap_or_default();
    let seconds = |value: &serde_json::Value| value.as_u64().map_or(String::new(), |at| format!("{:.6}", at as f64 / 1e9));
    let mut text = format!("{:>12.6} s  process {:<3} {word}", event.at as f64 / 1e9, event.client);
    for field in ["owner", "side", "token", "valid", "call", "resource", "read", "wrote"] {
        match &what[field] {
            serde_json::Value::Null => {}
            // The end of an owner tells them apart.
            serde_json::Value::String(owner) if field == "owner" && owner.len() > 20 => {
                text += &format!(" owner …{}", &owner[owner.len().saturating_sub(16)..]);
            }
            value => text += &format!(" {field} {value}"),
        }
    }
    if !what["sent"].is_null() {
        text += &format!(" sent {} good for {} s", seconds(&what["sent"]), seconds(&what["lease"]));
    }
    text
}

#[cfg(test)]
mod tests {
    use lockkeeper::referee::{Promise, Side};

    use super::*;

    fn granted(at: u64, client: u32, token: u64) -> Event {
        let (name, owner, side) = ("p:mutex".to_owned(), format!("{client}:1"), Side::Exclusive);
        let (token, sent) = (Some(token), at - 1);
        Event { at, client, what: What::Granted { call: 1, name, owner, side, token, sent, lease: 3_000_000_000 } }
    }

    #[test]
    fn events_are_judged_in_order_and_a_broken_promise_has_a_timeline() {
        let mut events = Events::new(1_000, "p:", Limits::default(), None);
        events.add(granted(1_020, 2, 8));
        events.add(granted(1_010, 1, 7));
        events.judge(1_015).unwrap();
        assert!(events.broken.is_empty());
        let verdict = events.finish(2_000).unwrap();
        let found: Vec<_> = events.broken.iter().map(|broken| broken.violation.promise).collect();
        assert_eq!(found, [Promise::P1], "{:?}", verdict.violations);
        let before = &events.broken[0].before;
        assert!(before.len() == 2 && before[0].contains("process 1") && before[1].contains("token 8"), "{before:?}");
    }
}
