//! Carrying a survey out, so that an error is undone and a kill leaves what the next run finishes.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::fs::Dir;
use rustix::fs::{AtFlags, Mode, RenameFlags};

use super::contents::Contents;
use super::journal::{Journal, Undo};
use super::look::{Kind, identity};
use super::place::{Places, temporary};
use super::record::{
    self, Converging, Record, keep_damaged, remove_converging, write_converging, write_record,
};
use super::root::Root;
use super::survey::{Act, Old, Step, Survey};
use super::write::{self, Writing};
use super::{Change, Converged, SetAside};
use crate::error::{ExitKind, Fault};
use crate::host::durable;
use crate::model::applied::Applied;
use crate::model::manifest::Manifest;

/// So many directories are made durable one by one; more, with their whole file system.
const SYNCED_ONE_BY_ONE: usize = 16;

/// Carries surveys out as one: all of it, or nothing.
pub(super) fn perform(root: &Root, contents: &dyn Contents, surveys: &[Survey]) -> Result<Converged> {
    let mut work = Work {
        root,
        places: Places::new(root, surveys.iter().flat_map(|survey| &survey.steps)),
        journal: Journal::default(),
        devices: BTreeMap::new(),
    };
    if let Err(error) = work.until_recorded(contents, surveys) {
        return Err(work.undone(error, surveys));
    }
    let mut warnings = work.clean_up(surveys);
    warnings.extend(surveys.iter().flat_map(|survey| survey.warnings.iter().cloned()));
    Ok(Converged {
        changed: surveys.iter().flat_map(changes).collect(),
        set_aside: surveys.iter().flat_map(set_aside).collect(),
        warnings,
        recorded: surveys.iter().any(Survey::record_differs),
    })
}

fn changes(survey: &Survey) -> Vec<Change> {
    let steps = survey.steps.iter().map(|step| Change { path: step.path.clone(), how: step.how });
    let emptied = survey.emptied.iter().map(|path| Change { path: path.clone(), how: super::How::Removed });
    steps.chain(emptied).collect()
}

fn set_aside(survey: &Survey) -> Vec<SetAside> {
    let folder = Utf8PathBuf::from(format!("/{}", survey.record.originals()));
    let copies = survey.copies.iter().map(|copy| SetAside {
        path: copy.path.clone(),
        copy: copy.digest.as_ref().map(|digest| folder.join(digest.hex())),
        returns: copy.returns,
    });
    copies.collect()
}

struct Work<'r> {
    root: &'r Root,
    places: Places<'r>,
    journal: Journal,
    /// A directory on each file system that is written to.
    devices: BTreeMap<u64, Rc<Dir>>,
}

impl Work<'_> {
    fn until_recorded(&mut self, contents: &dyn Contents, surveys: &[Survey]) -> Result<()> {
        let changing: Vec<&Survey> = surveys.iter().filter(|survey| survey.changes()).collect();
        for survey in &changing {
            if survey.cut.is_none() {
                self.journal.push(Undo::Converging(survey.record));
            }
            write_converging(self.root, survey.record, &announce(survey))?;
        }
        for survey in &changing {
            self.copy_originals(survey)?;
            for step in &survey.steps {
                self.prepare(contents, survey.record, step)
                    .with_context(|| format!("Preparing {}", step.path))?;
            }
        }
        self.sync()?;
        for step in changing.iter().flat_map(|survey| &survey.steps) {
            self.lay_down(step).with_context(|| format!("Laying down {}", step.path))?;
        }
        self.sync_changes(&changing)?;
        for survey in surveys.iter().filter(|survey| survey.record_differs()) {
            if let super::record::Stand::Damaged(_) = survey.stand {
                keep_damaged(self.root, survey.record)?;
            }
            self.journal.push(Undo::Record(survey.record, survey.stand.known().cloned().map(Box::new)));
            write_record(self.root, survey.record, &survey.next)?;
        }
        Ok(())
    }

    /// Copies of what a person has, for root alone. Durable with the next [`Self::sync`].
    fn copy_originals(&mut self, survey: &Survey) -> Result<()> {
        let copies: Vec<_> = survey.copies.iter().filter(|copy| copy.digest.is_some()).collect();
        if copies.is_empty() {
            return Ok(());
        }
        let folder = originals(self.root, survey.record)?;
        self.note(Rc::new(folder.try_clone()?))?;
        for copy in copies {
            let Some(digest) = &copy.digest else { continue };
            let (dir, name) = self.places.of(&copy.path)?;
            let mut file = std::fs::File::from(super::look::open_file(&dir, &name)?);
            super::place::unlink(&folder, digest.hex())?;
            self.journal.push(Undo::Copy(survey.record, digest.clone()));
            let writing = Writing { digest, size: copy.size, dress: None };
            let is_same = write::file(&folder, digest.hex(), &writing, &mut file)
                .with_context(|| format!("Setting {} aside", copy.path))?;
            if !is_same {
                return Err(changed_meanwhile(&copy.path).into());
            }
        }
        Ok(())
    }

    /// Makes directories, and new files under names of ours.
    fn prepare(&mut self, contents: &dyn Contents, record: Record, step: &Step) -> Result<()> {
        let at = self.places.new_place(&step.path, &step.act);
        let (dir, name) = match step.act {
            Act::Mend { .. } | Act::Remove => {
                let (dir, _) = self.places.of(&step.path)?;
                return self.note(dir);
            }
            _ => self.places.of(&at)?,
        };
        self.note(dir.clone())?;
        match &step.act {
            Act::Make(dress) | Act::Swap(dress) => {
                if name.starts_with(super::survey::TEMPORARY) {
                    write::make_room(&dir, &name)?;
                }
                rustix::fs::mkdirat(&dir, &name, Mode::RWXU)?;
                self.journal.push(Undo::Rmdir(at.clone()));
                self.places.forget();
                let (_, made) = write::open_directory(&dir, &name)?;
                write::dress(&made, dress)?;
            }
            Act::Put { source, size, digest, dress } => {
                write::make_room(&dir, &name)?;
                self.journal.push(Undo::Unlink(at.clone()));
                let writing = Writing { digest, size: *size, dress: Some(dress) };
                write::put(self.root, contents, record, &step.path, source, &dir, &name, &writing)?;
            }
            Act::Link { target, dress } => {
                write::make_room(&dir, &name)?;
                self.journal.push(Undo::Unlink(at.clone()));
                write::link(&dir, &name, target, dress)?;
            }
            Act::Mend { .. } | Act::Remove => {}
        }
        Ok(())
    }

    /// Puts what was prepared in its place, and what was there out of the way.
    fn lay_down(&mut self, step: &Step) -> Result<()> {
        if self.places.is_below_swap(&step.path) {
            return Ok(());
        }
        let (dir, name) = self.places.of(&step.path)?;
        let ours = temporary(&step.path);
        match (&step.act, &step.old) {
            (Act::Make(_), _) => return Ok(()),
            (Act::Mend { dress, was }, old) => {
                let (stat, made) = write::open_directory(&dir, &name)?;
                if old.as_ref().is_some_and(|old| !is_old(old, &stat)) {
                    return Err(changed_meanwhile(&step.path).into());
                }
                self.journal.push(Undo::Dress(step.path.clone(), was.clone()));
                return write::dress(&made, dress);
            }
            (Act::Remove, _) => {
                rustix::fs::renameat_with(&dir, &name, &dir, &ours, RenameFlags::NOREPLACE)?;
                self.journal.push(Undo::MoveBack { path: step.path.clone(), from_ours: true });
            }
            (_, Some(_)) => {
                rustix::fs::renameat_with(&dir, &ours, &dir, &name, RenameFlags::EXCHANGE)?;
                self.journal.push(Undo::Exchange(step.path.clone()));
            }
            (_, None) => {
                rustix::fs::renameat_with(&dir, &ours, &dir, &name, RenameFlags::NOREPLACE)?;
                self.journal.push(Undo::MoveBack { path: step.path.clone(), from_ours: false });
            }
        }
        self.places.forget();
        let Some(old) = &step.old else { return Ok(()) };
        let stat = rustix::fs::statat(&dir, &ours, AtFlags::SYMLINK_NOFOLLOW)?;
        // Somebody wrote it between the look and the exchange: theirs is put back.
        if is_old(old, &stat) { Ok(()) } else { Err(changed_meanwhile(&step.path).into()) }
    }

    /// Remembers a file system that is written to.
    fn note(&mut self, dir: Rc<Dir>) -> Result<()> {
        let device = rustix::fs::fstat(&*dir)?.st_dev;
        self.devices.entry(device).or_insert(dir);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        for dir in self.devices.values() {
            rustix::fs::syncfs(&**dir).context("Writing to disk what was prepared")?;
        }
        Ok(())
    }

    /// Makes names durable.
    fn sync_changes(&mut self, changing: &[&Survey]) -> Result<()> {
        let steps = changing.iter().flat_map(|survey| &survey.steps);
        let parents: BTreeSet<&Utf8Path> = steps.filter_map(|step| step.path.parent()).collect();
        if parents.len() > SYNCED_ONE_BY_ONE {
            return self.sync();
        }
        for parent in parents {
            if let Some(dir) = self.places.folder(parent)? {
                durable::sync_folder(&dir).with_context(|| format!("Writing {parent} to disk"))?;
            }
        }
        Ok(())
    }

    /// Takes everything back, and says how that went.
    fn undone(mut self, error: anyhow::Error, surveys: &[Survey]) -> anyhow::Error {
        self.places.forget();
        let failed = self.journal.undo(self.root, &mut self.places);
        if failed.is_empty() {
            return error;
        }
        let changed: Vec<&str> =
            surveys.iter().flat_map(|survey| &survey.steps).map(|step| step.path.as_str()).take(3).collect();
        Fault::new(
            ExitKind::NotUndone,
            "the configuration was laid down in part, and that could not be undone",
        )
        .why(format!("{error:#}; undoing {}: {}", changed.join(", "), failed.join("; ")))
        .next("mend the cause and run `mcd boot`, which completes it")
        .into()
    }

    /// Removes what is not needed any more. What cannot be removed is left to the next run.
    fn clean_up(&mut self, surveys: &[Survey]) -> Vec<String> {
        let mut warnings = Vec::new();
        for survey in surveys.iter().filter(|survey| survey.changes()) {
            let before = warnings.len();
            self.remove_old(survey, &mut warnings);
            self.remove_copies(survey, &mut warnings);
            if warnings.len() > before {
                continue;
            }
            // Elsewhere than the announcement, removals may reach the disk later than its own.
            let elsewhere = self.devices.len() > 1;
            if elsewhere && let Err(error) = self.sync() {
                warnings.push(format!("{error:#}"));
                continue;
            }
            if let Err(error) = remove_converging(self.root, survey.record) {
                warnings.push(format!("{error:#}"));
            }
        }
        warnings
    }

    fn remove_old(&mut self, survey: &Survey, warnings: &mut Vec<String>) {
        let known = Known::of(survey);
        for step in survey.steps.iter().filter(|step| step.old.is_some()) {
            if matches!(step.act, Act::Mend { .. }) || self.places.is_below_swap(&step.path) {
                continue;
            }
            if let Err(error) = remove_temporary(&mut self.places, &step.path, &known) {
                warnings.push(format!("{error:#}"));
            }
        }
        for path in &survey.emptied {
            if let Err(error) = remove_empty(&mut self.places, path) {
                warnings.push(format!("{error:#}"));
            }
        }
    }

    fn remove_copies(&mut self, survey: &Survey, warnings: &mut Vec<String>) {
        for digest in &survey.drops {
            let removed = open_originals(self.root, survey.record).and_then(|folder| {
                folder.map_or(Ok(()), |folder| super::place::unlink(&folder, digest.hex()))
            });
            if let Err(error) = removed {
                warnings.push(format!("{error:#}"));
            }
        }
    }
}

/// What is announced before the first change.
fn announce(survey: &Survey) -> Converging {
    let before = survey.before();
    // Once the record is replaced, this alone still tells what was there before.
    let mut also: Vec<Manifest> = vec![before.manifest];
    for manifest in survey.cut.iter().flat_map(|cut| std::iter::once(&cut.to.manifest).chain(&cut.also)) {
        if !also.contains(manifest) {
            also.push(manifest.clone());
        }
    }
    also.retain(|manifest| *manifest != survey.next.manifest && *manifest != Manifest::default());
    let mut made: BTreeSet<Utf8PathBuf> = survey.next.made.iter().cloned().collect();
    made.extend(before.made);
    made.extend(survey.cut.iter().flat_map(|cut| cut.made.iter().chain(&cut.to.made)).cloned());
    Converging {
        to: survey.next.clone(),
        also,
        made: made.into_iter().collect(),
        drops: survey.drops.clone(),
    }
}

/// Paths whose things are ours to remove.
#[derive(Debug)]
pub(super) struct Known(BTreeSet<Utf8PathBuf>);

impl Known {
    fn of(survey: &Survey) -> Self {
        let before = survey.before();
        Self::from_parts(&before, survey.cut.as_ref(), Some(&survey.next))
    }

    fn from_parts(before: &Applied, cut: Option<&Converging>, next: Option<&Applied>) -> Self {
        let mut known = BTreeSet::new();
        let manifests = [Some(&before.manifest), next.map(|next| &next.manifest)].into_iter().flatten();
        let of_cut = cut.iter().flat_map(|cut| std::iter::once(&cut.to.manifest).chain(&cut.also));
        for manifest in manifests.chain(of_cut) {
            known.extend(manifest.entries.iter().map(|entry| entry.path.clone()));
        }
        known.extend(before.made.iter().cloned());
        known.extend(cut.iter().flat_map(|cut| cut.made.iter().chain(&cut.to.made)).cloned());
        Self(known)
    }
}

/// Removes what a run that was cut short left under names of ours.
pub(super) fn sweep(root: &Root, record: Record) -> Result<()> {
    record::remove_halves(root, record)?;
    let Some(cut) = record::read_converging(root, record)? else { return Ok(()) };
    let before = record::read_record(root, record)?.known().cloned().unwrap_or_default();
    let known = Known::from_parts(&before, Some(&cut), None);
    let mut places = Places::new(root, std::iter::empty());
    let shadow = Utf8PathBuf::from(super::shadow::SHADOW);
    for path in known.0.iter().chain([&shadow]) {
        if Record::of(crate::model::manifest::Scope::of(path).context("A path of ours has a scope")?)
            == record
        {
            remove_temporary(&mut places, path, &known)?;
        }
    }
    Ok(())
}

/// Removes what stands under the temporary name of a path.
fn remove_temporary(places: &mut Places<'_>, path: &Utf8Path, known: &Known) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let Some(dir) = places.folder(parent)? else { return Ok(()) };
    let name = temporary(path);
    match rustix::fs::unlinkat(&dir, &name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => remove_tree(&dir, &name, path, known),
        Err(error) => Err(error).with_context(|| format!("Removing {}", parent.join(name))),
    }
}

/// Removes a directory of ours, which stood or was to stand at `path`, with what is known in it.
fn remove_tree(above: &Dir, name: &str, path: &Utf8Path, known: &Known) -> Result<()> {
    let (_, fd) =
        write::open_directory(above, name).with_context(|| format!("Opening {name} beside {path}"))?;
    let dir = Dir::from_std_file(fd.into());
    for item in dir.entries()? {
        let item = item?;
        let child = item.file_name().to_string_lossy().into_owned();
        if item.file_type()?.is_dir() {
            remove_tree(&dir, &child, &path.join(&child), known)?;
        } else if known.0.contains(&path.join(&child)) || child.starts_with(super::survey::TEMPORARY) {
            super::place::unlink(&dir, &child)?;
        }
    }
    rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)
        .with_context(|| format!("Removing {name}, which was {path} and holds what is not ours"))
}

fn remove_empty(places: &mut Places<'_>, path: &Utf8Path) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let Some(dir) = places.folder(parent)? else { return Ok(()) };
    places.forget();
    match rustix::fs::unlinkat(&dir, path.file_name().unwrap_or_default(), AtFlags::REMOVEDIR) {
        // Somebody put something there: it stays.
        Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTEMPTY | rustix::io::Errno::EXIST) => {
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("Removing the directory {path}")),
    }
}

/// The folder of originals, made if it is missing: for root alone.
fn originals(root: &Root, record: Record) -> Result<Dir> {
    let name = record.originals().rsplit('/').next().unwrap_or_default();
    durable::folder(&record::make_folder(root, record)?, name, 0o700)
}

pub(super) fn open_originals(root: &Root, record: Record) -> Result<Option<Dir>> {
    let path = Utf8PathBuf::from(format!("/{}", record.originals()));
    Ok(match root.way_to(&path)? {
        super::root::Way::Open(dir) => Some(dir),
        _ => None,
    })
}

/// Whether this is what the survey saw. A directory changes with what is in it.
fn is_old(old: &Old, stat: &rustix::fs::Stat) -> bool {
    if old.kind == Kind::Directory {
        old.identity.is_same_inode(stat)
    } else {
        old.identity == identity(stat)
    }
}

fn changed_meanwhile(path: &Utf8Path) -> Fault {
    Fault::failed(format!("{path} was changed by somebody else while it was being replaced"))
        .why("what they wrote is kept")
        .next("try again")
}
