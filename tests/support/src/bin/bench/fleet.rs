//! How a fleet's requests and time grow: the tables, and the picture of them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::chart::STYLE;

const BEGIN: &str = "<!-- make fleet writes from here -->\n";
const END: &str = "<!-- to here -->\n";

/// What was measured of one number of nodes.
struct Row {
    nodes: u64,
    /// All daemons started at the same moment.
    together: Value,
    /// Rolled out ten at a time.
    ten: Value,
    /// Rolled out a tenth at a time.
    share: Value,
}

/// Puts FACTS and the tables into DOCUMENT between its markers, and draws PICTURE.
pub fn report(results: &Path, facts: &Path, document: &Path, picture: &Path) -> Result<()> {
    let rows = read(&fs::read_to_string(results)?)?;
    let text =
        format!("{}\n\n{}\n{}", fs::read_to_string(facts)?.trim_end(), table(&rows)?, requests(&rows)?);
    println!("{text}");
    let old = fs::read_to_string(document).with_context(|| format!("Reading {}", document.display()))?;
    let marks = || format!("{} lacks its markers", document.display());
    let (before, rest) = old.split_once(BEGIN).with_context(marks)?;
    let (_, after) = rest.split_once(END).with_context(marks)?;
    fs::write(document, format!("{before}{BEGIN}\n{text}\n{END}{after}"))?;
    Ok(fs::write(picture, draw(&rows)?)?)
}

fn read(text: &str) -> Result<Vec<Row>> {
    let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let of = |nodes: u64, case: &str| {
        let line = lines.iter().rev().find(|line| line["nodes"] == nodes && line["case"] == case);
        line.cloned().with_context(|| format!("{nodes} nodes, {case}: not measured"))
    };
    let mut counts: Vec<u64> = lines.iter().filter_map(|line| line["nodes"].as_u64()).collect();
    counts.sort_unstable();
    counts.dedup();
    let row = |nodes| {
        let (together, ten, share) = (of(nodes, "together")?, of(nodes, "ten")?, of(nodes, "share")?);
        Ok(Row { nodes, together, ten, share })
    };
    counts.into_iter().map(row).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn table(rows: &[Row]) -> Result<String> {
    let mut text = String::from(
        "| nodes | start: requests | busiest second, together | busiest second, spread over 10 s | update: requests | per node | \
         controller's requests | s, 10 at a time | s, a tenth at a time | cordoned at most | connections | KiB per daemon | KiB of the controller |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for Row { nodes, together, ten, share } in rows {
        writeln!(
            text,
            "| {nodes} | {} | {} | **{}** | {} | **{:.1}** | {} | **{:.0}** | **{:.0}** | {}, {} | {} | {:.0} | {} |",
            ten["start_requests"],
            together["start_busiest"],
            ten["start_busiest"],
            ten["requests"],
            number(&ten["per_node"]),
            ten["controller_requests"],
            number(&ten["seconds"]),
            number(&share["seconds"]),
            ten["away"],
            share["away"],
            ten["connections"],
            number(&ten["daemon_kib"]),
            ten["controller_kib"],
        )?;
    }
    Ok(text)
}

/// What one node asks for during one update.
fn requests(rows: &[Row]) -> Result<String> {
    let Some(Row { nodes, ten, .. }) = rows.last() else { return Ok(String::new()) };
    let mut text = format!("| of {nodes} nodes, per node and update | requests |\n|---|---|\n");
    for (what, count) in ten["table"].as_object().into_iter().flatten() {
        writeln!(text, "| {what} | {:.1} |", number(count) / *nodes as f64)?;
    }
    Ok(text)
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;
/// Of one of the two panels: its axes.
const PANEL: (f64, f64) = (330.0, 200.0);
const TOP: f64 = 72.0;

/// A line of a panel: its class, its name, and where its name stands beside its last point.
struct Line<'a> {
    class: &'a str,
    name: &'a str,
    points: Vec<(f64, f64)>,
}

/// Two panels over the number of nodes: requests, and seconds.
fn draw(rows: &[Row]) -> Result<String> {
    let of =
        |value: fn(&Row) -> f64| rows.iter().map(|row| (row.nodes as f64, value(row))).collect::<Vec<_>>();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"Requests and seconds of one update of a whole fleet, by its number of nodes\">\n{STYLE}"
    );
    svg += "<style>polyline { fill: none; stroke-width: 2 } .axis { stroke: #afb8c1; stroke-width: 1; stroke-dasharray: none } \
            .mcd-line { stroke: #0969da } .other-line { stroke: #8c959f }</style>\n";
    let requests = [
        Line { class: "mcd", name: "all daemons", points: of(|row| number(&row.ten["requests"])) },
        Line {
            class: "other",
            name: "controller",
            points: of(|row| number(&row.ten["controller_requests"])),
        },
    ];
    panel(&mut svg, 70.0, "Requests of one update of all nodes", &requests)?;
    let seconds = [
        Line { class: "mcd", name: "10 at a time", points: of(|row| number(&row.ten["seconds"])) },
        Line { class: "other", name: "a tenth at a time", points: of(|row| number(&row.share["seconds"])) },
    ];
    panel(&mut svg, 500.0, "Seconds until all nodes are Done", &seconds)?;
    svg += "</svg>\n";
    Ok(svg)
}

fn panel(svg: &mut String, left: f64, title: &str, lines: &[Line<'_>]) -> Result<()> {
    let (width, height) = PANEL;
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let (widest, highest) = all().fold((1.0_f64, 1.0_f64), |(x, y), point| (x.max(point.0), y.max(point.1)));
    let at = |(x, y): (f64, f64)| (left + x / widest * width, TOP + height - y / highest * height);
    let bottom = TOP + height;
    writeln!(svg, "<text class=\"title\" x=\"{left}\" y=\"24\">{title}</text>")?;
    writeln!(svg, "<line class=\"axis\" x1=\"{left}\" x2=\"{left}\" y1=\"{TOP}\" y2=\"{bottom}\"/>")?;
    writeln!(
        svg,
        "<line class=\"axis\" x1=\"{left}\" x2=\"{}\" y1=\"{bottom}\" y2=\"{bottom}\"/>",
        left + width
    )?;
    for share in [0.0, 0.5, 1.0] {
        let (_, y) = at((0.0, share * highest));
        writeln!(
            svg,
            "<text class=\"small\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{:.0}</text>",
            left - 6.0,
            y + 4.0,
            share * highest
        )?;
    }
    for (nodes, _) in lines.first().map(|line| line.points.as_slice()).unwrap_or_default() {
        let (x, _) = at((*nodes, 0.0));
        writeln!(
            svg,
            "<text class=\"small\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{nodes}</text>",
            bottom + 18.0
        )?;
    }
    writeln!(
        svg,
        "<text class=\"small\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">nodes</text>",
        left + width / 2.0,
        bottom + 38.0
    )?;
    for (index, Line { class, name, points }) in lines.iter().enumerate() {
        let x = left + 150.0 * index as f64;
        writeln!(svg, "<rect class=\"{class}\" x=\"{x}\" y=\"36\" width=\"12\" height=\"12\" rx=\"2\"/>")?;
        writeln!(svg, "<text class=\"small\" x=\"{}\" y=\"46\">{name}</text>", x + 18.0)?;
        let places: Vec<(f64, f64)> = points.iter().map(|point| at(*point)).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        writeln!(svg, "<polyline class=\"{class}-line\" points=\"{}\"/>", path.join(" "))?;
        for (x, y) in places {
            writeln!(svg, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>")?;
        }
    }
    Ok(())
}
