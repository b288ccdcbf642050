//! One receiver of a verb's events, in one of three manners.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;

use super::tally::Tally;
use crate::model::event::{Event, EventSink};

/// Shows events as they come. Shared by the threads of an import.
#[derive(Debug)]
pub struct Progress {
    began: Instant,
    manner: Mutex<Manner>,
}

#[derive(Debug)]
enum Manner {
    /// Bars that move, on a terminal.
    #[cfg(feature = "ostree")]
    Bars { tally: Tally, bars: super::bars::Bars },
    /// Lines, for logs.
    Lines { tally: Tally },
    /// JSON lines on stdout.
    Json,
}

/// The first JSON line.
#[derive(Debug, Serialize)]
struct Begin {
    event: &'static str,
    version: u32,
    verb: &'static str,
}

/// The last JSON line of a verb that did not fail.
#[derive(Debug, Serialize)]
struct End<'a, T> {
    event: &'static str,
    version: u32,
    #[serde(flatten)]
    outcome: &'a T,
}

impl Progress {
    pub(super) fn json(verb: &'static str) -> Self {
        super::json_line(&Begin { event: "begin", version: super::EVENTS_VERSION, verb });
        Self::new(Manner::Json)
    }

    pub(super) fn lines() -> Self {
        Self::new(Manner::Lines { tally: Tally::default() })
    }

    #[cfg(feature = "ostree")]
    pub(super) fn terminal() -> Self {
        Self::new(Manner::Bars { tally: Tally::default(), bars: super::bars::Bars::new() })
    }

    /// Without the importer there is nothing that a bar could show.
    #[cfg(not(feature = "ostree"))]
    pub(super) fn terminal() -> Self {
        Self::lines()
    }

    fn new(manner: Manner) -> Self {
        Self { began: Instant::now(), manner: Mutex::new(manner) }
    }

    /// Takes the bars away and says what was fetched and skipped. Call it before anything else is
    /// printed at the end of a verb, also of one that failed; calling it twice does no harm.
    pub fn finish(&self) {
        let now = self.began.elapsed();
        match &mut *self.lock() {
            #[cfg(feature = "ostree")]
            Manner::Bars { tally, bars } => {
                bars.clear();
                say(tally.summary(now));
            }
            Manner::Lines { tally } => say(tally.summary(now)),
            Manner::Json => {}
        }
    }

    /// Finishes, and says how the verb ended: `text` for people, or the fields of `outcome` (a
    /// struct, never a bare value) as the last JSON line.
    pub fn end(&self, outcome: &impl Serialize, text: impl FnOnce() -> String) {
        self.finish();
        if matches!(*self.lock(), Manner::Json) {
            super::json_line(&End { event: "end", version: super::EVENTS_VERSION, outcome });
        } else {
            super::data(&text());
        }
    }

    /// A thread that panicked while it printed leaves counts that are still good enough to show.
    fn lock(&self) -> MutexGuard<'_, Manner> {
        self.manner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for Progress {
    fn event(&self, event: Event) {
        let now = self.began.elapsed();
        match &mut *self.lock() {
            #[cfg(feature = "ostree")]
            Manner::Bars { tally, bars } => {
                bars.show(&event);
                // The bar itself says that a layer is through.
                let lines = tally.take(&event, now);
                if !matches!(event, Event::LayerFinished { .. }) {
                    bars.print(&lines);
                }
            }
            Manner::Lines { tally } => {
                let mut lines = tally.take(&event, now);
                lines.extend(tally.heartbeat(now));
                if !lines.is_empty() {
                    tally.spoke(now);
                    say(lines);
                }
            }
            Manner::Json => super::json_line(&event),
        }
    }
}

fn say(lines: impl IntoIterator<Item = String>) {
    let mut stderr = anstream::stderr().lock();
    for line in lines {
        // There is nobody to tell if stderr is gone.
        let _ = writeln!(stderr, "{line}");
    }
}
