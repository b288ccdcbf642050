//! `mcd verify --follow`: says what differs as soon as it does.
//!
//! Whatever is managed is watched, with all folders above. An event that may matter is followed, after a
//! moment of quiet, by a full comparison; so is the passing of [`FULL_EVERY`]. What is found stands in
//! `/run/mcd/drift.json` until nothing is found any more.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;

use super::{HostPart, Verified};
use crate::error::Fault;
use crate::host::converge::Root;
use crate::host::{drift, now};
use crate::model::event::{Event, EventSink};
use crate::plan::drift::{pause, said};

/// What no event tells of is found after so long at most: what is written through a descriptor that stays
/// open, a mapping or another hard link, and what is no file (kernel arguments, the image). A comparison
/// takes about a tenth of a second, so that this costs less than a thousandth of a processor.
const FULL_EVERY: Duration = Duration::from_secs(600);
/// A comparison that failed is made again after so long.
const AGAIN: Duration = Duration::from_secs(60);
/// So long nothing may happen before the comparison begins: an editor writes, dresses and renames.
const QUIET: Duration = Duration::from_millis(150);
/// It begins after so long at the latest.
const QUIET_MAX: Duration = Duration::from_millis(600);
/// What comes during a comparison makes it worthless so often in a row; then it is said all the same.
const ROUNDS_MAX: u32 = 3;
/// A live apply that takes longer was cut, or hangs.
const LIVE_PATIENCE: Duration = Duration::from_secs(120);

/// A root whose drift is followed.
pub struct Following<'a> {
    root: Root,
    /// How `mcd verify` is told which one.
    arguments: Vec<String>,
    sink: &'a dyn EventSink,
    folder: Dir,
    looks: VecDeque<Instant>,
    /// Since when a live apply has been under way.
    live: Option<Instant>,
}

/// What is known after a look.
enum Look {
    /// It is this.
    Found(Box<Verified>),
    /// Not yet: look again after this time, or when something happens.
    Later(Duration),
}

impl std::fmt::Debug for Following<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Following").field("root", &self.root).finish_non_exhaustive()
    }
}

impl<'a> Following<'a> {
    /// The drift of `root`, which `mcd verify` with these arguments compares.
    ///
    /// # Errors
    ///
    /// The folder that it is said in cannot be made.
    pub fn new(root: Root, arguments: Vec<String>, sink: &'a dyn EventSink) -> Result<Self> {
        let folder = drift::folder(&root)?;
        Ok(Self { root, arguments, sink, folder, looks: VecDeque::new(), live: None })
    }

    /// Follows for ever.
    ///
    /// # Errors
    ///
    /// Nothing can be watched, or what differs cannot be written down.
    pub fn run(&mut self) -> Result<()> {
        let mut rounds = 0;
        loop {
            // Before the look, and anew each time: what is managed may be something else now, and what
            // happens meanwhile is not missed.
            let (watch, unwatched) = drift::watch(&self.root)?;
            if unwatched > 0 {
                let message = format!(
                    "{unwatched} folders are not watched, the kernel or mcd takes no more; what changes in \
                     them is found every {} minutes",
                    FULL_EVERY.as_secs() / 60
                );
                self.note(Event::Warning { message });
            }
            let mut patience = FULL_EVERY;
            match self.look() {
                Look::Later(time) => patience = time,
                Look::Found(found) if rounds < ROUNDS_MAX && !found.is_fine() && watch.take()? => {
                    rounds += 1;
                    patience = QUIET;
                }
                Look::Found(found) => {
                    rounds = 0;
                    self.say(&found)?;
                }
            }
            if watch.wait(patience)? {
                let begun = Instant::now();
                while begun.elapsed() < QUIET_MAX && watch.wait(QUIET)? {}
            }
            self.pause();
        }
    }

    fn look(&mut self) -> Look {
        self.looks.push_back(Instant::now());
        let found = drift::compare(&self.arguments).and_then(|output| {
            serde_json::from_slice::<Verified>(&output.stdout).map_err(|_| {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Fault::failed("the host cannot be compared with its records").why(said).into()
            })
        });
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.note(Event::Warning { message: format!("{error:#}") });
                return Look::Later(AGAIN);
            }
        };
        if !found.host.iter().any(|one| one.what == HostPart::LiveApply) {
            self.live = None;
            return Look::Found(Box::new(found));
        }
        // Files and record change one after the other: what differs now says nothing.
        let since = *self.live.get_or_insert_with(Instant::now);
        match LIVE_PATIENCE.checked_sub(since.elapsed()) {
            Some(left) => Look::Later(left),
            None => Look::Found(Box::new(found)),
        }
    }

    fn say(&self, found: &Verified) -> Result<()> {
        let before = drift::said(&self.folder);
        let drift = said(before.as_ref(), found.told(), now());
        if drift == before {
            return Ok(());
        }
        drift::say(&self.folder, drift.as_ref())?;
        self.note(match &drift {
            Some(drift) => {
                let differs = drift.differs.join(", ");
                Event::Warning { message: format!("the host differs from what it was told to be: {differs}") }
            }
            None => Event::Note { message: "nothing differs any more".to_owned() },
        });
        Ok(())
    }

    fn note(&self, event: Event) {
        self.sink.event(event);
    }

    fn pause(&mut self) {
        let ago: Vec<Duration> = self.looks.iter().map(Instant::elapsed).collect();
        let pause = pause(&ago);
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        while self.looks.len() > LOOKS_KEPT {
            self.looks.pop_front();
        }
    }
}

/// More than [`pause`] asks for.
const LOOKS_KEPT: usize = 16;
