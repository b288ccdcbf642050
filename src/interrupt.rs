//! Ctrl-C and SIGTERM: work is told to stop, the host stays as it was, the exit code says why.
//!
//! A thread of its own waits for the signal, because the main thread may be inside libostree, where
//! no event loop runs; tokio's signal streams would be noticed only afterwards. The first signal
//! cancels a token. A second one ends the process at once, as if nobody had asked for its manners:
//! everything on disk is safe against that anyway.
//!
//! SIGHUP keeps its default, so that `nohup` works.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Result;
use fn_error_context::context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio_util::sync::CancellationToken;

use crate::error::{ExitKind, Fault, to_fault};

/// Whether somebody asked this process to stop.
#[derive(Debug, Clone)]
pub struct Interrupt {
    token: CancellationToken,
    /// 0 until a signal came.
    number: Arc<AtomicU8>,
}

impl Interrupt {
    /// Starts to listen. Until then a signal ends the process at once, which is right while nothing
    /// has begun. Call it after the mount namespace was set up: that wants a single thread.
    #[context("Listening for signals")]
    pub fn listen() -> Result<Self> {
        let interrupt = Self::silent();
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let heard = interrupt.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for number in signals.forever() {
                if heard.signal().is_some() {
                    // Nothing is left to be done if even the default action fails.
                    let _ = signal_hook::low_level::emulate_default_handler(number);
                }
                heard.raise(u8::try_from(number).unwrap_or(u8::MAX));
            }
        })?;
        Ok(interrupt)
    }

    /// One that no signal reaches: for tests and for callers with a way of their own.
    pub fn silent() -> Self {
        Self { token: CancellationToken::new(), number: Arc::new(AtomicU8::new(0)) }
    }

    /// What work in progress watches.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// The signal that came first.
    pub fn signal(&self) -> Option<u8> {
        Some(self.number.load(Ordering::SeqCst)).filter(|number| *number != 0)
    }

    /// Names a failure after its true cause: what fails after a signal fails because of it (skopeo
    /// gets Ctrl-C too, and dies first). Work that was done all the same is done, and a host that
    /// needs a person still says so.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        let (Some(number), Err(error)) = (self.signal(), &result) else { return result };
        let fault = to_fault(error);
        if fault.kind == ExitKind::NotUndone {
            return result;
        }
        Err(Fault::new(ExitKind::Signal(number), format!("stopped by {}", name(number)))
            .why("somebody asked this run to stop; the host is as it was before")
            .next("run the same command again: what was fetched whole is kept")
            .into())
    }

    fn raise(&self, number: u8) {
        self.number.store(number, Ordering::SeqCst);
        self.token.cancel();
    }
}

fn name(number: u8) -> &'static str {
    match i32::from(number) {
        SIGINT => "Ctrl-C (SIGINT)",
        SIGTERM => "SIGTERM",
        _ => "a signal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_signal_is_heard() {
        let interrupt = Interrupt::listen().unwrap();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !interrupt.token().is_cancelled() {
            assert!(std::time::Instant::now() < patience, "the signal never came");
            std::thread::yield_now();
        }
        assert_eq!(interrupt.signal(), Some(15));
    }

    #[test]
    fn a_failure_after_a_signal_is_the_signal() {
        let interrupt = Interrupt::silent();
        let failure = || Err::<(), _>(anyhow::anyhow!("skopeo died"));
        assert_eq!(to_fault(&interrupt.explain(failure()).unwrap_err()).kind, ExitKind::Failed);

        interrupt.raise(15);
        assert!(interrupt.token().is_cancelled());
        assert_eq!(to_fault(&interrupt.explain(failure()).unwrap_err()).kind.code(), 143);
        assert!(interrupt.explain(Ok(())).is_ok(), "finished work is finished");
        let lost = Err::<(), _>(Fault::new(ExitKind::NotUndone, "half done").into());
        assert_eq!(to_fault(&interrupt.explain(lost).unwrap_err()).kind, ExitKind::NotUndone);
    }
}
