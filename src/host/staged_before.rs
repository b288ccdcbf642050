//! What became of a deployment that was staged in the boot before this one.

use std::process::Command;
use std::time::Duration;

use super::child;
use super::trust::redact;

/// The unit whose stop finalises.
const FINALISE: &str = "ostree-finalize-staged.service";
/// How its tool's messages of failure begin.
const ERROR: &str = "error:";
/// The journal of a long boot is on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(20);
const LENGTH_MAX: usize = 300;

/// Why the last shutdown could not finalise it, in libostree's words; none where nothing is told: the
/// power was cut, or the journal does not go back so far.
pub fn why_not_finalised() -> Option<String> {
    let mut command = Command::new("journalctl");
    command.args(["-b", "-1", "-o", "cat", "--no-pager", "-n", "200", "_UID=0", "-u", FINALISE]);
    error_in(&child::run(&mut command, TIMEOUT, &|| false).output)
}

fn error_in(journal: &str) -> Option<String> {
    let line = journal.lines().find_map(|line| line.trim().strip_prefix(ERROR))?;
    let clean: String = redact(line.trim()).chars().filter(|c| !c.is_control()).take(LENGTH_MAX).collect();
    (!clean.is_empty()).then_some(clean)
}

#[cfg(test)]
mod tests {
    use super::error_in;

    #[test]
    fn the_first_error_is_why() {
        let journal = "Stopping…\nerror: Installing kernel: No space left on device\nerror: later\n";
        assert_eq!(error_in(journal).as_deref(), Some("Installing kernel: No space left on device"));
        assert_eq!(error_in("Finalized deployment\n"), None);
    }
}
