//! Children that die with the value that stands for them, and with the test process.
//!
//! The kernel's parent-death signal follows the *thread* that forked, and a test's thread may end
//! before the value does. So one thread, which lives as long as the process, forks them all.

use std::io;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use anyhow::{Context as _, Result};

/// A command to start, and where to answer.
type Order = (Command, Sender<io::Result<Child>>);

static NURSERY: OnceLock<Sender<Order>> = OnceLock::new();

/// A running child.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
}

impl Guarded {
    /// Starts `program` with `arguments` and what `set_up` adds: output, environment, folder.
    pub fn start(program: &str, arguments: &[&str], set_up: impl FnOnce(&mut Command)) -> Result<Self> {
        // util-linux sets the signal and executes the program: no unsafe code between fork and exec.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", program]).args(arguments).stdin(Stdio::null());
        set_up(&mut command);
        let (answer, answered) = channel();
        nursery().send((command, answer)).ok().context("The nursery thread is gone")?;
        let child = answered.recv().context("The nursery thread is gone")?;
        Ok(Self { child: child.with_context(|| format!("Starting {program}"))? })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child itself: its pipes, its status.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn nursery() -> &'static Sender<Order> {
    NURSERY.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in orders {
                let _ = answer.send(command.spawn());
            }
        });
        sender
    })
}

/// Runs a command to its end and gives its output; an error with what it said if it fails.
pub fn run(command: &mut Command) -> Result<Output> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("Starting {command:?}"))?;
    anyhow::ensure!(
        output.status.success(),
        "{command:?} ended with {}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}
