//! The table in the document.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::chart;
use crate::results::{CASES, FLOORS, Results, seconds};

const BEGIN: &str = "<!-- make bench writes from here -->\n";
const END: &str = "<!-- to here -->\n";

pub fn report(results: &Path, facts: &Path, document: &Path, picture: &Path) -> Result<()> {
    let results = Results::read(results)?;
    let facts = fs::read_to_string(facts)?;
    let text = format!("{}\n\n{}\n{}", facts.trim_end(), cases(&results)?, floors(&results)?);
    println!("{text}");
    let old = fs::read_to_string(document).with_context(|| format!("Reading {}", document.display()))?;
    let marks = || format!("{} lacks its markers", document.display());
    let (before, rest) = old.split_once(BEGIN).with_context(marks)?;
    let (_, after) = rest.split_once(END).with_context(marks)?;
    fs::write(document, format!("{before}{BEGIN}\n{text}\n{END}{after}"))?;
    Ok(fs::write(picture, chart::draw(&results)?)?)
}

fn cases(results: &Results) -> Result<String> {
    let mut text = String::from(
        "| case | mcd s | ostree-ext s | faster | bar | CPU s, mcd | CPU s, ostree-ext | CPU ratio | peak MiB: mcd + skopeo | peak MiB: ostree-ext + skopeo |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for case in CASES {
        let (Some(ours), Some(theirs)) =
            (results.median(case.id, "mcd"), results.median(case.id, "ostree-ext"))
        else {
            continue;
        };
        let spread = |who| {
            let (low, high) = results.range(case.id, who);
            format!("{}–{}", seconds(low), seconds(high))
        };
        let bar = case.bar.map_or_else(|| "–".to_owned(), |bar| format!("{bar}×"));
        writeln!(
            text,
            "| {} | **{}** ({}) | {} ({}) | **{:.1}×** | {bar} | {} | {} | {:.1}× | {:.0} + {:.0} | {:.0} + {:.0} |",
            case.title,
            seconds(ours.wall),
            spread("mcd"),
            seconds(theirs.wall),
            spread("ostree-ext"),
            theirs.wall / ours.wall,
            seconds(ours.cpu),
            seconds(theirs.cpu),
            theirs.cpu / ours.cpu.max(0.01),
            ours.own,
            ours.beside,
            theirs.own,
            theirs.beside,
        )?;
    }
    Ok(text)
}

fn floors(results: &Results) -> Result<String> {
    let mut text = String::from("| for comparison | s | CPU s |\n|---|---|---|\n");
    for (id, who, title) in FLOORS {
        let Some(figures) = results.median(id, who) else { continue };
        let (low, high) = results.range(id, who);
        writeln!(
            text,
            "| {title} | {} ({}–{}) | {} |",
            seconds(figures.wall),
            seconds(low),
            seconds(high),
            seconds(figures.cpu)
        )?;
    }
    Ok(text)
}
