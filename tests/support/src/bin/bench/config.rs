//! What a configuration costs: the configs, the yardsticks, the table.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use mcd_test_support::machine_config::MachineConfig;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::results::{Results, seconds};

/// Bytes of a file, about what a configuration's have.
const FILE: usize = 2048;
/// Units of a config of 1,000 files.
const UNITS: usize = 200;

const BEGIN: &str = "<!-- tests/bench/config.sh writes from here -->\n";
const END: &str = "<!-- to here, for configurations -->\n";

/// Text that compresses as configuration does, and differs for each number.
fn content(number: usize, version: usize) -> Vec<u8> {
    let line = format!("# file {number}, version {version}: some setting = some value\n");
    line.bytes().cycle().take(FILE).collect()
}

/// The first `changed` of the files are of another version.
fn config(folder: &str, files: usize, units: usize, changed: usize) -> String {
    let mut config = MachineConfig::new("50-bench");
    for number in 0..files {
        let path = format!("{folder}/bench/{:02}/file-{number:05}.conf", number % 50);
        config = config.file(&path, content(number, usize::from(number < changed)));
    }
    for number in 0..units {
        let text = format!(
            "[Unit]\nDescription=Unit {number}\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
        );
        config =
            config.unit(&format!("bench-{number:03}.service"), json!({ "enabled": true, "contents": text }));
    }
    config.yaml()
}

/// Writes the configs that are measured.
pub fn write_configs(folder: &Path) -> Result<()> {
    for (name, place, files, units, changed) in [
        ("etc", "/etc", 1000, UNITS, 0),
        ("etc-10", "/etc", 1000, UNITS, 10),
        ("etc-10000", "/etc", 10_000, UNITS, 0),
        ("var", "/var/lib", 1000, 0, 0),
        ("var-10", "/var/lib", 1000, 0, 10),
    ] {
        fs::write(folder.join(format!("{name}.yaml")), config(place, files, units, changed))?;
    }
    Ok(())
}

/// Yardstick L: what a plain loop does to write files safely.
pub fn plain_loop(folder: &Path, files: usize) -> Result<()> {
    for number in 0..files {
        let below = folder.join(format!("{:02}", number % 50));
        fs::create_dir_all(&below)?;
        let name = below.join(format!("file-{number:05}.conf"));
        let temporary = below.join(format!(".file-{number:05}"));
        let mut file = File::create_new(&temporary)?;
        file.write_all(&content(number, 0))?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.sync_all()?;
        fs::rename(&temporary, &name)?;
    }
    Ok(())
}

/// Yardstick H: reads and hashes all files.
pub fn hash(folder: &Path) -> Result<()> {
    let mut count = 0;
    for below in fs::read_dir(folder)? {
        for file in fs::read_dir(below?.path())? {
            count += usize::from(!Sha256::digest(fs::read(file?.path())?).is_empty());
        }
    }
    eprintln!("{count} files");
    Ok(())
}

/// A row: what is measured, by which yardstick, and the bar.
struct Row(&'static str, &'static str, &'static str, f64);

const ROWS: [Row; 8] = [
    Row("plan-layer", "plan + layer: 1,000 files, 200 units", "L", 1.0),
    Row("second", "the same, of which 10 files changed", "L", 0.3),
    Row("plan-layer-10000", "10,000 files, 200 units", "L", 10.0),
    Row("converge-etc", "converge `/etc`: 1,000 files, 200 units", "L", 1.0),
    Row("converge-var", "plan + converge `/var` (a root without OSTree): 1,000 files", "L", 1.0),
    Row("converge-var-10", "the same, of which 10 files changed", "L", 1.0),
    Row("check-etc", "check with nothing to do, `/etc`", "H", 3.0),
    Row("check-var", "check with nothing to do, `/var` (`mcd verify`)", "H", 3.0),
];

/// Puts the table into the document.
pub fn report(results: &Path, facts: &Path, document: &Path) -> Result<()> {
    let results = Results::read(results)?;
    let median = |case: &str| results.median(case, "config");
    let mut text = fs::read_to_string(facts)?;
    text.push_str("\n| case | s | yardstick | ratio | bar | peak MiB |\n|---|---|---|---|---|---|\n");
    for Row(case, title, yardstick, bar) in ROWS {
        let (Some(figures), Some(by)) = (median(case), median(yardstick)) else { continue };
        let (low, high) = results.range(case, "config");
        writeln!(
            text,
            "| {title} | {} ({}–{}) | {yardstick} | **{:.2}** | {bar} | {:.0} |",
            seconds(figures.wall),
            seconds(low),
            seconds(high),
            figures.wall / by.wall,
            figures.own,
        )?;
    }
    for (yardstick, title) in
        [("L", "L: write, fsync, rename 1,000 files of 2 KB"), ("H", "H: read and hash them")]
    {
        let Some(figures) = median(yardstick) else { continue };
        let (low, high) = results.range(yardstick, "config");
        writeln!(text, "| {title} | {:.3} ({:.3}–{:.3}) | | | | |", figures.wall, low, high)?;
    }
    println!("{text}");
    let old = fs::read_to_string(document).with_context(|| format!("Reading {}", document.display()))?;
    let marks = || format!("{} lacks its markers", document.display());
    let (before, rest) = old.split_once(BEGIN).with_context(marks)?;
    let (_, after) = rest.split_once(END).with_context(marks)?;
    Ok(fs::write(document, format!("{before}{BEGIN}\n{text}\n{END}{after}"))?)
}
