//! `bench`: what `make bench` measures with, and what makes its report.
#![allow(clippy::disallowed_methods)]

mod chart;
mod measure;
mod report;
mod results;

use std::path::Path;

use anyhow::{Result, bail};

const USAGE: &str = "usage: bench measure RESULTS CASE WHO COMMAND [ARGUMENT]…
       bench report RESULTS FACTS DOCUMENT PICTURE
measure runs the command and appends a line to RESULTS: case, who, wall seconds, CPU seconds of all
processes, peak memory of the process itself and of its descendants in MiB.
report puts FACTS, medians and ratios into DOCUMENT between its markers, and draws PICTURE.";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["measure", results, case, who, command @ ..] if !command.is_empty() => {
            measure::measure(Path::new(results), case, who, command)
        }
        ["report", results, facts, document, picture] => {
            report::report(Path::new(results), Path::new(facts), Path::new(document), Path::new(picture))
        }
        _ => bail!(USAGE),
    }
}
