//! Parse, log, dispatch, pick the exit code.

use std::process::ExitCode;

use mcd::error::{ExitKind, to_fault};
use mcd::options::{Stop, parse};
use mcd::ui::Printer;
use mcd::{commands, logging};

fn main() -> ExitCode {
    #[cfg(feature = "ostree")]
    mcd::memory::bound();
    let invocation = match parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(stop) => return refuse(stop).into(),
    };
    logging::start(invocation.verbosity);
    let printer = Printer::new(invocation.json);
    match commands::run(invocation.request, &printer) {
        Ok(ended) => ended.code().into(),
        Err(error) => {
            let fault = to_fault(&error);
            logging::fault(&fault);
            printer.fault(&fault);
            fault.kind.code().into()
        }
    }
}

/// The command line does not say what to do, or only asks for help.
fn refuse(stop: Stop) -> u8 {
    let printer = Printer::new(false);
    match stop {
        Stop::Clap(error) => {
            printer.clap(&error);
            if error.use_stderr() { ExitKind::Usage.code() } else { 0 }
        }
        Stop::Fault(fault) => {
            printer.fault(&fault);
            fault.kind.code()
        }
    }
}
