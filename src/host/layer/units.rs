//! The links that enable and disable units, worked out by systemctl itself on a small tree that holds
//! the target's unit folders and the config's units.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use super::compose::instance_of;
use super::target::Target;

/// Where a config's units stand.
pub(super) const CONFIGURED: &str = "/etc/systemd/system";
/// The image's units.
const VENDOR: &str = "/usr/lib/systemd/system";
/// What of the target systemctl reads.
const FOLDERS: [&str; 3] = [VENDOR, "/usr/lib/systemd/system-preset", "/etc/systemd"];
/// Where the small tree is made: gone with the next boot whatever happens.
const SCRATCH: [&str; 2] = ["/run", "/tmp"];

/// What is said of units.
#[derive(Default)]
pub(super) struct Wanted<'a> {
    /// Files and links of the config in folders that systemctl reads.
    pub(super) nodes: BTreeMap<&'a Utf8Path, UnitNode<'a>>,
    /// Enabled, disabled, or by preset.
    pub(super) units: BTreeMap<&'a str, Option<bool>>,
}

/// A file or link of the config.
pub(super) enum UnitNode<'a> {
    File(std::borrow::Cow<'a, [u8]>),
    Link(&'a str),
    /// The image's is taken away.
    Absent,
}

/// A link that the config makes or takes away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) path: Utf8PathBuf,
    /// Where it leads; none if it must not be there.
    pub(super) target: Option<String>,
    /// The unit that it is about.
    pub(super) unit: String,
}

/// The links, and what to tell.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) links: Vec<Link>,
    /// Units that cannot be enabled, and why.
    pub(super) refused: Vec<(String, String)>,
    /// What is odd and stops nothing.
    pub(super) warnings: Vec<String>,
}

/// Whether a path is one that systemctl reads when it works links out.
pub(super) fn is_read(path: &Utf8Path) -> bool {
    FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// Works the links out.
#[context("Working out which links enable the units")]
pub(super) fn links(target: &dyn Target, wanted: &Wanted<'_>) -> Result<Links> {
    if wanted.units.is_empty() {
        return Ok(Links::default());
    }
    let tree = Scratch::new()?;
    for folder in FOLDERS {
        let (parent, name) = folder.rsplit_once('/').unwrap_or_default();
        tree.dir.create_dir_all(parent.trim_start_matches('/'))?;
        let parent = tree.dir.open_dir(parent.trim_start_matches('/'))?;
        target.copy(Utf8Path::new(folder), &parent, name)?;
    }
    tree.dir.create_dir_all(relative(CONFIGURED))?;
    for (path, node) in &wanted.nodes {
        place(&tree.dir, path, node)?;
    }
    work_out(&tree, wanted)
}

fn work_out(tree: &Scratch, wanted: &Wanted<'_>) -> Result<Links> {
    let mut result = Links::default();
    let image = tree.links()?;
    let mut there: BTreeMap<&str, Option<bool>> = BTreeMap::new();
    for (unit, enabled) in &wanted.units {
        match (tree.has(unit), enabled) {
            (true, _) => drop(there.insert(unit, *enabled)),
            (false, Some(true)) => result.refused.push((
                (*unit).to_owned(),
                "there is no such unit in the config or the image; give its contents, or leave enabled out"
                    .to_owned(),
            )),
            (false, _) => result.warnings.push(format!("unit {unit} is disabled, and is nowhere")),
        }
    }
    let of = |state: Option<bool>| -> Vec<&str> {
        there.iter().filter(|(_, enabled)| **enabled == state).map(|(unit, _)| *unit).collect()
    };
    let (enabled, by_preset) = (of(Some(true)), of(None));
    // Links that an older [Install] section of a unit of ours asked for go. Those of an image's unit that
    // stays enabled may be its builder's own.
    let is_ours = |unit: &&str| wanted.nodes.contains_key(Utf8Path::new(&format!("{CONFIGURED}/{unit}")));
    let ours: Vec<&str> = enabled.iter().copied().filter(is_ours).collect();
    let disabled = [of(Some(false)), by_preset.clone(), ours].concat();
    let disabled = tree.with_links(&disabled, &image);
    for (unit, why) in tree.each("disable", &disabled)? {
        result.warnings.push(format!("unit {unit}: {why}"));
    }
    let without = if disabled.is_empty() { image.clone() } else { tree.links()? };
    for (unit, why) in tree.each("preset", &by_preset)? {
        result.warnings.push(format!("unit {unit}: {why}"));
    }
    result.refused.extend(tree.each("enable", &enabled)?);
    let with = tree.links()?;
    let made = tree.made_by_enabling(&enabled, &without, &with)?;
    let is_wish = |path: &Utf8PathBuf| wanted.nodes.contains_key(path.as_path());
    for (path, target) in made.iter().filter(|(path, _)| !is_wish(path)) {
        let unit = unit_of(path, target, wanted);
        result.links.push(Link { path: path.clone(), target: Some(target.clone()), unit });
    }
    for (path, target) in image.iter().filter(|(path, _)| !with.contains_key(*path) && !is_wish(path)) {
        result.links.push(Link { path: path.clone(), target: None, unit: unit_of(path, target, wanted) });
    }
    for unit in enabled.into_iter().filter(|unit| !result.refused.iter().any(|(refused, _)| refused == unit))
    {
        let has_link = result.links.iter().any(|link| link.target.is_some() && link.unit == unit);
        if !has_link && !tree.is_enabled(unit)? {
            result.warnings.push(format!(
                "unit {unit} has no [Install] section that says where it belongs: enabling it does nothing"
            ));
        }
    }
    Ok(result)
}

/// The unit that a link is about: its name in a folder of wants, else what it leads to.
fn unit_of(path: &Utf8Path, target: &str, wanted: &Wanted<'_>) -> String {
    let folder = path.parent().and_then(Utf8Path::file_name).unwrap_or_default();
    let name = if folder.ends_with(".wants") || folder.ends_with(".requires") {
        path.file_name()
    } else {
        Utf8Path::new(target).file_name()
    };
    let name = name.unwrap_or(target);
    // The default instance is there because of its template.
    match instance_of(name) {
        Some((template, _))
            if !wanted.units.contains_key(name) && wanted.units.contains_key(template.as_str()) =>
        {
            template
        }
        _ => name.to_owned(),
    }
}

fn clone_pair((path, target): (&Utf8PathBuf, &String)) -> (Utf8PathBuf, String) {
    (path.clone(), target.clone())
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

fn place(tree: &Dir, path: &Utf8Path, node: &UnitNode<'_>) -> Result<()> {
    let path = relative(path.as_str());
    if let Some((parent, _)) = path.rsplit_once('/') {
        tree.create_dir_all(parent)?;
    }
    match tree.symlink_metadata(path) {
        Ok(old) if !old.is_dir() => tree.remove_file(path)?,
        _ => {}
    }
    match node {
        UnitNode::File(content) => tree.write(path, content)?,
        UnitNode::Link(target) => tree.symlink_contents(target, path)?,
        UnitNode::Absent => {}
    }
    Ok(())
}

/// A folder that is removed again.
struct Scratch {
    parent: Dir,
    name: String,
    path: String,
    dir: Dir,
}

impl Scratch {
    fn new() -> Result<Self> {
        let mut failure = None;
        for base in SCRATCH {
            match Self::below(base) {
                Ok(scratch) => return Ok(scratch),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| anyhow::anyhow!("There is no place for temporary files")))
    }

    fn below(base: &str) -> Result<Self> {
        let parent = Dir::open_ambient_dir(base, ambient_authority())?;
        let thread = format!("{:?}", std::thread::current().id());
        let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
        let name = format!("mcd-units-{}-{thread}", std::process::id());
        // What a killed run with this number left.
        drop(parent.remove_dir_all(&name));
        let mut options = cap_std_ext::cap_std::fs::DirBuilder::new();
        cap_std_ext::cap_std::fs::DirBuilderExt::mode(&mut options, 0o700);
        parent.create_dir_with(&name, &options).with_context(|| format!("Making {base}/{name}"))?;
        let dir = parent.open_dir(&name)?;
        Ok(Self { path: format!("{base}/{name}"), parent, name, dir })
    }

    /// Says why it did not do so, if it says that. An error, where it came to no end of its own: that is
    /// no fault of a unit.
    fn systemctl(&self, verb: &str, units: &[&str]) -> Result<Option<String>> {
        if units.is_empty() {
            return Ok(None);
        }
        let output = self.command(verb, units).output().context("Starting systemctl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.replace(&self.path, "");
        let ended = format!("systemctl {verb} ended with {}: {}", output.status, said.trim());
        ensure!(output.status.code().is_some(), "{}", ended.trim_end_matches([':', ' ']));
        Ok((!output.status.success()).then_some(ended))
    }

    /// Gives those units for which it fails, and why.
    fn each(&self, verb: &str, units: &[&str]) -> Result<Vec<(String, String)>> {
        if self.systemctl(verb, units)?.is_none() {
            return Ok(Vec::new());
        }
        // It gives up at the first: the others one by one.
        let mut failed = Vec::new();
        for unit in units {
            failed.extend(self.systemctl(verb, &[unit])?.map(|why| ((*unit).to_owned(), why)));
        }
        Ok(failed)
    }

    /// The links that enabling makes, those that the image had before among them.
    fn made_by_enabling(
        &self,
        enabled: &[&str],
        without: &BTreeMap<Utf8PathBuf, String>,
        with: &BTreeMap<Utf8PathBuf, String>,
    ) -> Result<BTreeMap<Utf8PathBuf, String>> {
        let is_new = |path: &Utf8PathBuf, target: &String| without.get(path) != Some(target);
        let mut made: BTreeMap<Utf8PathBuf, String> =
            with.iter().filter(|(path, target)| is_new(path, target)).map(clone_pair).collect();
        let enabled = self.with_links(enabled, without);
        if enabled.is_empty() {
            return Ok(made);
        }
        self.each("disable", &enabled)?;
        let taken_away = self.links()?;
        self.each("enable", &enabled)?;
        let again = self.links()?;
        let there = again.iter().filter(|(path, target)| {
            with.get(*path) == Some(target) && taken_away.get(*path) != Some(target)
        });
        made.extend(there.map(clone_pair));
        Ok(made)
    }

    /// Those units that disabling may take a link from: systemctl looks at some hundred files for each
    /// unit, and most have no link.
    fn with_links<'a>(&self, units: &[&'a str], links: &BTreeMap<Utf8PathBuf, String>) -> Vec<&'a str> {
        let of_template = |name: &str| instance_of(name).map(|(template, _)| template);
        let mut linked: BTreeSet<String> = BTreeSet::new();
        for (path, target) in links {
            for name in [path.file_name(), Utf8Path::new(target).file_name()].into_iter().flatten() {
                linked.extend(of_template(name));
                linked.insert(name.to_owned());
            }
        }
        let may_have = |unit: &&&str| linked.contains(**unit) || self.names_others(unit);
        units.iter().filter(may_have).copied().collect()
    }

    /// Whether a unit may be enabled and disabled together with others, or under another name.
    fn names_others(&self, unit: &str) -> bool {
        let template = instance_of(unit).map(|(template, _)| template);
        let names = std::iter::once(unit.to_owned()).chain(template);
        let files: Vec<String> = names
            .flat_map(|name| [CONFIGURED, VENDOR].map(|folder| format!("{}/{name}", relative(folder))))
            .collect();
        // A drop-in may say so as well.
        if files.iter().any(|path| self.dir.is_dir(format!("{path}.d"))) {
            return true;
        }
        files.into_iter().filter_map(|path| self.dir.read_to_string(path).ok()).any(|text| {
            text.lines()
                .map(str::trim_start)
                .any(|line| line.starts_with("Also") || line.starts_with("Alias"))
        })
    }

    fn is_enabled(&self, unit: &str) -> Result<bool> {
        let output = self.command("is-enabled", &[unit]).output().context("Starting systemctl")?;
        ensure!(output.status.code().is_some(), "systemctl is-enabled ended with {}", output.status);
        let said = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
        Ok(matches!(said, b"enabled" | b"alias" | b"generated"))
    }

    fn command(&self, verb: &str, units: &[&str]) -> Command {
        let mut command = Command::new("systemctl");
        command.arg(format!("--root={}", self.path)).arg(verb).arg("--").args(units);
        command.env("LC_ALL", "C").env_remove("SYSTEMD_LOG_LEVEL");
        command
    }

    /// Whether there is such a unit, or the template that it is an instance of.
    fn has(&self, unit: &str) -> bool {
        let template = unit
            .split_once('@')
            .and_then(|(base, rest)| rest.rsplit_once('.').map(|(_, kind)| format!("{base}@.{kind}")));
        let names = std::iter::once(unit.to_owned()).chain(template);
        names.into_iter().any(|name| {
            [CONFIGURED, VENDOR]
                .iter()
                .any(|folder| self.dir.symlink_metadata(format!("{}/{name}", relative(folder))).is_ok())
        })
    }

    /// All links below the folder of configured units, and where they lead.
    fn links(&self) -> Result<BTreeMap<Utf8PathBuf, String>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![Utf8PathBuf::from(CONFIGURED)];
        while let Some(folder) = folders.pop() {
            for entry in self.dir.read_dir(relative(folder.as_str()))? {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let path = folder.join(&name);
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_symlink() {
                    let target = self.dir.read_link_contents(relative(path.as_str()))?;
                    found.insert(path, String::from_utf8_lossy(target.as_os_str().as_bytes()).into_owned());
                }
            }
        }
        Ok(found)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = self.parent.remove_dir_all(&self.name) {
            tracing::debug!(%error, "cannot remove the temporary unit tree");
        }
    }
}
