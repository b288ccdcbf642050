//! The measurements and what is said of them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};

/// A case that both importers go through.
#[derive(Debug)]
pub struct Case {
    pub id: &'static str,
    pub title: &'static str,
    /// How many times faster `mcd` is to be at least.
    pub bar: Option<f64>,
}

pub const CASES: [Case; 8] = [
    Case { id: "cold-gzip", title: "cold import, 51 gzip layers", bar: Some(4.5) },
    Case { id: "cold-zstd", title: "cold import, 51 zstd layers", bar: Some(5.0) },
    Case { id: "cold-single", title: "cold import, one gzip layer", bar: Some(4.5) },
    Case { id: "one-file", title: "one file changed", bar: Some(50.0) },
    Case { id: "third", title: "a third of the layers changed", bar: Some(12.0) },
    Case { id: "nothing", title: "nothing changed, by digest", bar: None },
    Case { id: "pivot-cold", title: "whole pivot, cold", bar: Some(4.0) },
    Case { id: "pivot-one-file", title: "whole pivot, one file changed", bar: Some(5.0) },
];

/// Something that is measured once, for comparison.
pub const FLOORS: [(&str, &str, &str); 5] = [
    ("floor-curl", "curl", "`curl` of all 51 gzip blobs, one after the other"),
    ("floor-layers", "tar", "`tar xz` of the 51 gzip layers + `syncfs`"),
    ("floor-tree", "tar", "`tar x` of the tree, uncompressed, + `syncfs`"),
    ("deploy", "ostree", "`ostree admin deploy` of the imported image"),
    ("nothing-offline", "mcd", "`mcd pull` by digest, nothing changed, the registry down"),
];

/// One run, or the medians of several.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    pub wall: f64,
    pub cpu: f64,
    /// Peak MiB of the process.
    pub own: f64,
    /// Peak MiB of its descendants.
    pub beside: f64,
}

/// All runs, by case and program.
#[derive(Debug)]
pub struct Results(BTreeMap<(String, String), Vec<Figures>>);

impl Results {
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("Reading {}", path.display()))?;
        let mut runs: BTreeMap<_, Vec<Figures>> = BTreeMap::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let [case, who, numbers @ ..] = fields.as_slice() else { continue };
            let numbers: Vec<f64> = numbers
                .iter()
                .map(|text| text.parse())
                .collect::<Result<_, _>>()
                .context("Reading a number")?;
            if let [wall, cpu, own, beside] = numbers[..] {
                let run = Figures { wall, cpu, own, beside };
                runs.entry(((*case).to_owned(), (*who).to_owned())).or_default().push(run);
            }
        }
        Ok(Self(runs))
    }

    /// The medians, each of its own.
    pub fn median(&self, case: &str, who: &str) -> Option<Figures> {
        let runs = self.runs(case, who);
        let of = |choose: fn(&Figures) -> f64| {
            let mut numbers: Vec<f64> = runs.iter().map(choose).collect();
            numbers.sort_by(f64::total_cmp);
            let middle = numbers.len() / 2;
            if numbers.len() % 2 == 1 {
                numbers[middle]
            } else {
                f64::midpoint(numbers[middle - 1], numbers[middle])
            }
        };
        (!runs.is_empty()).then(|| Figures {
            wall: of(|run| run.wall),
            cpu: of(|run| run.cpu),
            own: of(|run| run.own),
            beside: of(|run| run.beside),
        })
    }

    /// The shortest and the longest wall time.
    pub fn range(&self, case: &str, who: &str) -> (f64, f64) {
        let walls = self.runs(case, who).iter().map(|run| run.wall);
        (walls.clone().fold(f64::INFINITY, f64::min), walls.fold(0.0, f64::max))
    }

    fn runs(&self, case: &str, who: &str) -> &[Figures] {
        self.0.get(&(case.to_owned(), who.to_owned())).map_or(&[], Vec::as_slice)
    }
}

/// Seconds, as exactly as they are worth.
pub fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{value:.2}") } else { format!("{value:.1}") }
}
