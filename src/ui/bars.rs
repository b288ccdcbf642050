//! Progress bars: one per running layer, with bytes, rate and title.

use std::collections::BTreeMap;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::text::clean;
use crate::model::digest::Digest;
use crate::model::event::Event;

/// The digest first, so that the columns stand below each other; the title gets the room that is
/// left. indicatif cuts the line at the terminal's width.
const BAR: &str =
    "{prefix} {bar:16} {binary_bytes:>10}/{binary_total_bytes:<10} {binary_bytes_per_sec:>12} {wide_msg}";

/// The bars of one run.
#[derive(Debug)]
pub(super) struct Bars {
    all: MultiProgress,
    running: BTreeMap<Digest, ProgressBar>,
}

impl Bars {
    pub(super) fn new() -> Self {
        Self { all: MultiProgress::new(), running: BTreeMap::new() }
    }

    /// Moves the bars.
    pub(super) fn show(&mut self, event: &Event) {
        match event {
            Event::LayerStarted { digest, size, title } => {
                let style = ProgressStyle::with_template(BAR)
                    .expect("the template is a constant")
                    .progress_chars("━╸ ");
                let bar = self.all.add(ProgressBar::new(*size).with_style(style));
                bar.set_prefix(digest.short().to_owned());
                bar.set_message(clean(title));
                // A layer that is read again after a failure: its bar starts over.
                if let Some(before) = self.running.insert(digest.clone(), bar) {
                    self.all.remove(&before);
                }
            }
            Event::LayerProgress { digest, bytes } => {
                if let Some(bar) = self.running.get(digest) {
                    bar.set_position(*bytes);
                }
            }
            Event::LayerFinished { digest, .. } => {
                if let Some(bar) = self.running.remove(digest) {
                    bar.finish_and_clear();
                    self.all.remove(&bar);
                }
            }
            _ => {}
        }
    }

    /// Prints lines above the bars.
    pub(super) fn print(&self, lines: &[String]) {
        for line in lines {
            // A terminal that went away is no reason to stop an import.
            let _ = self.all.println(line);
        }
    }

    /// Takes all bars away.
    pub(super) fn clear(&mut self) {
        for bar in std::mem::take(&mut self.running).into_values() {
            bar.finish_and_clear();
        }
        let _ = self.all.clear();
    }
}
