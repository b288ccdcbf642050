//! Idle priority for pulls that nobody waits for.

use std::process::{Command, Stdio};

/// The lowest CPU priority.
const NICEST: i32 = 19;

/// Lowers this thread's CPU and I/O priority; threads and children started from it inherit both.
/// What cannot be lowered is only less gentle.
pub(super) fn lower_this_thread() {
    if let Err(error) = rustix::process::setpriority_process(None, NICEST) {
        tracing::warn!("could not lower the CPU priority: {error}");
    }
    // There is no safe call for it; the program from util-linux takes a thread's id as well.
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let status = Command::new("ionice").args(["-c", "3", "-p", &thread]).stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => tracing::warn!("could not lower the I/O priority: ionice: {status}"),
        Err(error) => tracing::warn!("could not lower the I/O priority: ionice: {error}"),
    }
}
