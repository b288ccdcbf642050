//! Running a program for its answer (a health check, systemctl): a process group of its own, ended when its time is up, with an output that is
//! bounded whatever the check says.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::host::trust::redact;

/// Bytes of the output that are kept: its end, where the reason stands.
const OUTPUT_MAX: usize = 256 * 1024;
/// Characters of a reason.
const WHY_MAX: usize = 300;
/// How often a running check is looked at.
const POLL: Duration = Duration::from_millis(10);
/// What else of an output is waited for when the process has ended: a child of it may hold the pipe.
const REST: Duration = Duration::from_millis(200);

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) passed: bool,
    /// The end of its output, redacted; or why it has none.
    pub(super) said: String,
    /// All of it, as far as it is kept.
    pub(super) output: String,
    pub(super) took: Duration,
}

/// Runs `command` to its end, to `timeout`, or until `is_stopped`.
pub(super) fn run(command: &mut Command, timeout: Duration, is_stopped: &dyn Fn() -> bool) -> Ended {
    let begun = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let said = format!("it cannot be run: {error}");
            return Ended { passed: false, said, output: String::new(), took: begun.elapsed() };
        }
    };
    let output = Arc::new(Mutex::new(Vec::new()));
    let readers = [
        child.stdout.take().map(|pipe| keep_end(pipe, &output)),
        child.stderr.take().map(|pipe| keep_end(pipe, &output)),
    ];
    let (passed, told) = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break (true, None),
            Ok(Some(status)) => break (false, Some(status.to_string())),
            Err(error) => break (false, Some(error.to_string())),
            Ok(None) => {}
        }
        let why = if is_stopped() {
            "stopped".to_owned()
        } else if begun.elapsed() >= timeout {
            format!("no answer within {} s", timeout.as_secs_f32())
        } else {
            std::thread::sleep(POLL);
            continue;
        };
        end(&mut child);
        break (false, Some(why));
    };
    let took = begun.elapsed();
    let ended = Instant::now();
    while ended.elapsed() < REST && readers.iter().flatten().any(|reader| !reader.is_finished()) {
        std::thread::sleep(POLL);
    }
    let output =
        output.lock().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()).unwrap_or_default();
    let said = short(&redact(&output));
    let said = match told {
        Some(told) if said.is_empty() => told,
        Some(told) => format!("{told}: {said}"),
        None => said,
    };
    Ended { passed, said, output, took }
}

/// One line, without control characters: the end of the text.
fn short(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let surplus = line.chars().count().saturating_sub(WHY_MAX);
    line.chars().skip(surplus).filter(|c| !c.is_control()).collect()
}

fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // Gone already is as well.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

/// Reads until the end, so that the writer never waits, and keeps the last bytes.
fn keep_end(
    mut pipe: impl Read + Send + 'static,
    output: &Arc<Mutex<Vec<u8>>>,
) -> std::thread::JoinHandle<()> {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count) = pipe.read(&mut buffer) {
            if count == 0 {
                break;
            }
            let Ok(mut kept) = output.lock() else { break };
            kept.extend_from_slice(&buffer[..count]);
            let surplus = kept.len().saturating_sub(OUTPUT_MAX);
            kept.drain(..surplus);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> Ended {
        run(Command::new("sh").args(["-c", script]), timeout, &|| false)
    }

    #[test]
    fn a_check_is_bounded_in_time_and_words() {
        let long = Duration::from_secs(20);
        assert_eq!(shell("echo fine", long).said, "fine");
        let failed = shell("echo password=s3cr3t1 >&2; exit 3", long);
        assert!(!failed.passed && failed.said.contains("exit status: 3"), "{failed:?}");
        assert!(!failed.said.contains("s3cr3t1"), "{failed:?}");
        let wordy = shell("yes word | head -c 1000000", long);
        assert!(wordy.passed && wordy.said.chars().count() <= WHY_MAX, "{wordy:?}");
        let slow = shell("sleep 60 & sleep 60", Duration::from_millis(200));
        assert!(!slow.passed && slow.said.starts_with("no answer within"), "{slow:?}");
        assert!(slow.took < Duration::from_secs(10));
        assert!(!run(&mut Command::new("/nonexistent"), long, &|| false).passed);
        assert!(!run(Command::new("sleep").arg("60"), long, &|| true).passed);
    }
}
