//! `bench`: what `make bench` measures with, and what makes its report.
#![allow(clippy::disallowed_methods)]

mod chart;
mod config;
mod fleet;
mod measure;
mod report;
mod results;

use std::path::Path;

use anyhow::{Result, bail};

const USAGE: &str = "usage: bench measure RESULTS CASE WHO COMMAND [ARGUMENT]…
       bench report RESULTS FACTS DOCUMENT PICTURE
       bench report-fleet RESULTS FACTS DOCUMENT PICTURE
       bench configs FOLDER | loop FOLDER FILES | hash FOLDER | report-config RESULTS FACTS DOCUMENT
measure runs the command and appends a line to RESULTS: case, who, wall seconds, CPU seconds of all
processes, peak memory of the process itself and of its descendants in MiB.
report puts FACTS, medians and ratios into DOCUMENT between its markers, and draws PICTURE.
configs writes the MachineConfigs of config.sh; loop and hash are its yardsticks.";

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
        ["report-fleet", results, facts, document, picture] => {
            fleet::report(Path::new(results), Path::new(facts), Path::new(document), Path::new(picture))
        }
        ["configs", folder] => config::write_configs(Path::new(folder)),
        ["loop", folder, files] => config::plain_loop(Path::new(folder), files.parse()?),
        ["hash", folder] => config::hash(Path::new(folder)),
        ["report-config", results, facts, document] => {
            config::report(Path::new(results), Path::new(facts), Path::new(document))
        }
        _ => bail!(USAGE),
    }
}
