//! Counts what a run fetched and says it in lines: the words behind every kind of progress.
//!
//! Pure: events and a clock go in, lines come out.

use std::collections::BTreeMap;
use std::time::Duration;

use super::text::{clean, count, cut, size};
use crate::model::digest::Digest;
use crate::model::event::Event;

/// At most one line a heartbeat: a log that is read later, over a slow import, stays short.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Room for a layer's title in a line of a log.
const TITLE: usize = 50;

/// What is under way and what was done since the last summary.
#[derive(Debug, Default)]
pub(super) struct Tally {
    running: BTreeMap<Digest, Running>,
    fetched: u64,
    fetched_bytes: u64,
    skipped: u64,
    skipped_bytes: u64,
    objects: u64,
    reused: u64,
    /// When the first layer of this batch began.
    began: Option<Duration>,
    spoke: Duration,
}

#[derive(Debug)]
struct Running {
    title: String,
    size: u64,
    bytes: u64,
}

impl Tally {
    /// Takes an event; `now` is the time since the run began. Gives what is worth a line wherever
    /// lines go, without the heartbeat.
    pub(super) fn take(&mut self, event: &Event, now: Duration) -> Vec<String> {
        match event {
            Event::LayerStarted { digest, size, title } => {
                self.began.get_or_insert(now);
                let running = Running { title: cut(&clean(title), TITLE), size: *size, bytes: 0 };
                self.running.insert(digest.clone(), running);
                Vec::new()
            }
            Event::LayerProgress { digest, bytes } => {
                if let Some(running) = self.running.get_mut(digest) {
                    running.bytes = *bytes;
                }
                Vec::new()
            }
            Event::LayerFinished { digest, objects, reused } => self.finished(digest, *objects, *reused),
            Event::LayerSkipped { size, .. } => {
                self.skipped += 1;
                self.skipped_bytes += size;
                Vec::new()
            }
            Event::Step { what } => self.summary(now).into_iter().chain([clean(what)]).collect(),
            Event::Waiting { what, holder } => {
                vec![format!("waiting for {}, held by {}", clean(what), clean(holder))]
            }
            Event::Retry { what, why, delay_seconds, attempt } => vec![format!(
                "{} failed (try {attempt}): {}; trying again in {delay_seconds} s",
                clean(what),
                clean(why)
            )],
            Event::Warning { message } => vec![format!("warning: {}", clean(message))],
            Event::Note { message } => vec![clean(message)],
        }
    }

    fn finished(&mut self, digest: &Digest, objects: u64, reused: u64) -> Vec<String> {
        let Some(running) = self.running.remove(digest) else { return Vec::new() };
        self.fetched += 1;
        self.fetched_bytes += running.size;
        self.objects += objects;
        self.reused += reused;
        vec![
            format!("fetched {} ({}) {}", digest.short(), size(running.size), running.title)
                .trim_end()
                .to_owned(),
        ]
    }

    /// What is going on, if nothing was said for a while.
    pub(super) fn heartbeat(&mut self, now: Duration) -> Option<String> {
        if self.running.is_empty() || now.saturating_sub(self.spoke) < HEARTBEAT {
            return None;
        }
        let read: u64 = self.running.values().map(|running| running.bytes).sum();
        let total: u64 = self.running.values().map(|running| running.size).sum();
        Some(format!(
            "fetching {}: {} of {}; {} done",
            count(self.running.len() as u64, "layer"),
            size(read),
            size(total),
            self.fetched
        ))
    }

    /// Notes that a line went out.
    pub(super) fn spoke(&mut self, now: Duration) {
        self.spoke = now;
    }

    /// What was fetched and skipped since the last time; nothing if no layer was met.
    pub(super) fn summary(&mut self, now: Duration) -> Option<String> {
        if self.fetched + self.skipped == 0 {
            return None;
        }
        let mut parts = Vec::new();
        if self.fetched > 0 {
            let seconds = now.saturating_sub(self.began.unwrap_or(now)).as_secs_f64();
            let rate = if seconds >= 0.1 {
                format!(" in {seconds:.1} s ({}/s)", size((self.fetched_bytes as f64 / seconds) as u64))
            } else {
                String::new()
            };
            parts.push(format!(
                "fetched {} ({}){rate}, {} new, {} here already",
                count(self.fetched, "layer"),
                size(self.fetched_bytes),
                count(self.objects, "object"),
                self.reused
            ));
        }
        if self.skipped > 0 {
            parts.push(format!(
                "skipped {} ({}) already here",
                count(self.skipped, "layer"),
                size(self.skipped_bytes)
            ));
        }
        *self = Self { running: std::mem::take(&mut self.running), spoke: self.spoke, ..Self::default() };
        Some(parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn started(name: &str, size: u64) -> Event {
        Event::LayerStarted { digest: Digest::of(name.as_bytes()), size, title: format!("{name}\nrest") }
    }

    fn progress(name: &str, bytes: u64) -> Event {
        Event::LayerProgress { digest: Digest::of(name.as_bytes()), bytes }
    }

    fn finished(name: &str) -> Event {
        Event::LayerFinished { digest: Digest::of(name.as_bytes()), objects: 1, reused: 2 }
    }

    #[test]
    fn an_import_in_lines() {
        let mut tally = Tally::default();
        let mut said = Vec::new();
        let skipped = Event::LayerSkipped { digest: Digest::of(b"old"), size: 3 << 20 };
        for (now, event) in [
            (0, Event::Step { what: "importing registry.example/os:1".to_owned() }),
            (0, skipped),
            (0, started("kernel", 10 << 20)),
            (0, started("glibc", 2 << 20)),
            (5, progress("kernel", 1 << 20)),
            (5, finished("glibc")),
            (16, progress("kernel", 4 << 20)),
            (17, progress("kernel", 5 << 20)),
            (20, finished("kernel")),
            (20, Event::Step { what: "deploying".to_owned() }),
        ] {
            let mut lines = tally.take(&event, seconds(now));
            lines.extend(tally.heartbeat(seconds(now)));
            if !lines.is_empty() {
                tally.spoke(seconds(now));
            }
            said.extend(lines);
        }
        insta::assert_snapshot!(said.join("\n"));
        assert_eq!(tally.summary(seconds(21)), None, "it was said once");
    }

    #[test]
    fn trouble_is_said_at_once() {
        let mut tally = Tally::default();
        let lines: Vec<String> = [
            Event::Waiting {
                what: "the sysroot's lock".to_owned(),
                holder: "rpm-ostree (pid 12)".to_owned(),
            },
            Event::Retry {
                what: "layer 12".to_owned(),
                why: "503\nbusy".to_owned(),
                delay_seconds: 4,
                attempt: 2,
            },
            Event::Warning { message: "the clock went backwards".to_owned() },
        ]
        .iter()
        .flat_map(|event| tally.take(event, seconds(0)))
        .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn events_of_unknown_layers_do_no_harm() {
        let mut tally = Tally::default();
        assert!(tally.take(&finished("never started"), seconds(1)).is_empty());
        assert!(tally.take(&progress("never started", 1), seconds(1)).is_empty());
        assert_eq!(tally.summary(seconds(2)), None);
    }
}
