//! One picture with all cases side by side, for light and dark pages.

use std::fmt::Write as _;

use anyhow::Result;

use crate::results::{CASES, Results, seconds};

const LEFT: f64 = 230.0;
const WIDTH: f64 = 860.0;
/// What the longest bar takes; its label follows.
const BARS: f64 = 500.0;
const BAR: f64 = 15.0;
const GROUP: f64 = 48.0;
const TOP: f64 = 64.0;

/// What all pictures look like.
pub(crate) const STYLE: &str = "<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 15px }
.small { fill: #57606a; font-size: 12px }
.mcd { fill: #0969da } .other { fill: #afb8c1 }
.bold { font-weight: 600 }
line { stroke: #bc4c00; stroke-width: 2; stroke-dasharray: 3 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 }
.mcd { fill: #4493f8 } .other { fill: #656c76 } line { stroke: #db6d28 }
}
</style>\n";

/// The SVG.
pub fn draw(results: &Results) -> Result<String> {
    let cases: Vec<_> = CASES
        .iter()
        .filter_map(|case| {
            Some((case, results.median(case.id, "mcd")?.wall, results.median(case.id, "ostree-ext")?.wall))
        })
        .collect();
    let longest = cases.iter().map(|(_, ours, theirs)| ours.max(*theirs)).fold(0.01, f64::max);
    let height = TOP + GROUP * cases.len() as f64 + 16.0;
    let scale = |value: f64| (value / longest * BARS).max(1.5);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"Seconds of mcd and of ostree-ext, case by case\">\n{STYLE}"
    );
    writeln!(svg, "<text class=\"title\" x=\"16\" y=\"24\">Wall seconds, median: shorter is better</text>")?;
    legend(&mut svg)?;
    for (index, (case, ours, theirs)) in cases.iter().enumerate() {
        let y = TOP + GROUP * index as f64;
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 12.0,
            y + 21.0,
            case.title
        )?;
        bar(&mut svg, "other", y, scale(*theirs), &format!("{} s", seconds(*theirs)), "small")?;
        let label = format!("{} s · {:.1}× faster", seconds(*ours), theirs / ours);
        bar(&mut svg, "mcd", y + BAR + 2.0, scale(*ours), &label, "bold")?;
        if case.id == "cold-gzip"
            && let Some(floor) = results.median("floor-layers", "tar")
        {
            let x = LEFT + scale(floor.wall);
            writeln!(svg, "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\"/>", y - 3.0, y + BAR + 1.0)?;
        }
    }
    svg += "</svg>\n";
    Ok(svg)
}

fn legend(svg: &mut String) -> Result<()> {
    for (x, class, name) in [(16.0, "mcd", "mcd"), (84.0, "other", "ostree-ext 0.15.3")] {
        writeln!(svg, "<rect class=\"{class}\" x=\"{x}\" y=\"36\" width=\"12\" height=\"12\" rx=\"2\"/>")?;
        writeln!(svg, "<text class=\"small\" x=\"{}\" y=\"46\">{name}</text>", x + 18.0)?;
    }
    writeln!(svg, "<line x1=\"236\" x2=\"236\" y1=\"34\" y2=\"50\"/>")?;
    writeln!(svg, "<text class=\"small\" x=\"246\" y=\"46\">tar xz of the same layers + syncfs</text>")?;
    Ok(())
}

fn bar(svg: &mut String, class: &str, y: f64, width: f64, label: &str, text_class: &str) -> Result<()> {
    writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\"/>"
    )?;
    let (x, y) = (LEFT + width + 8.0, y + 12.0);
    writeln!(svg, "<text class=\"{text_class}\" x=\"{x:.1}\" y=\"{y}\">{label}</text>")?;
    Ok(())
}
