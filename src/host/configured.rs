//! What is managed on a deployment: its `/etc` record, its commit's manifest, and who made it.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use camino::Utf8PathBuf;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use super::converge::{Root, differences, parse_applied};
use super::deploy::merge_deployment;
use super::layer;
use super::status::{image_of_derived, name_of};
use super::sysroot::Host;
use crate::model::applied::{Applied, ETC_RECORD};
use crate::model::manifest::{Manifest, Scope};
use crate::model::status::{ConfigStatus, DeploymentStatus};
use crate::plan::boot::{Belongs, Seen, belongs};

/// The record of `/var`, seen from there.
const VAR_RECORD_IN_VAR: &str = "lib/mcd/applied.json";

/// What is managed on a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    /// The commit of the image below it: what a derived commit of it is made from.
    pub image_commit: String,
    /// What belongs there.
    pub manifest: Manifest,
    /// The derived commit that holds the contents.
    pub commit: Option<String>,
    /// What a new deployment starts from: what belongs there, and what of it below `/usr` another
    /// tool's deployment lacks.
    pub carried: Manifest,
    /// What of that is missing.
    pub missing: Vec<Utf8PathBuf>,
    /// Who says what belongs there.
    pub told_by: ToldBy,
}

/// Who says what belongs on a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToldBy {
    /// Nobody: nothing of ours ever was there.
    Nobody,
    /// The manifest in its commit.
    Commit,
    /// The record in its `/etc`.
    Record,
    /// The record in its `/etc`, which another tool's merge took over from one of ours.
    Stranger,
    /// A record that tells it is damaged.
    Unknown,
}

impl Configured {
    fn new(status: &DeploymentStatus, told_by: ToldBy, manifest: Manifest, commit: Option<String>) -> Self {
        let image_commit = status.image_commit.clone().unwrap_or_else(|| status.name.checksum.clone());
        Self { image_commit, carried: manifest.clone(), manifest, commit, missing: Vec::new(), told_by }
    }

    /// Whether records or commits of ours are there: then only a derived commit may follow.
    pub fn is_managed(&self) -> bool {
        self.told_by != ToldBy::Nobody
    }

    /// What status shows; nothing where nothing of ours is.
    pub(super) fn status(&self, deployment: &DeploymentStatus) -> Option<ConfigStatus> {
        let stranger = self.told_by == ToldBy::Stranger;
        self.is_managed().then(|| ConfigStatus {
            names: self.manifest.names.clone(),
            entries: self.manifest.entries.len(),
            extensions_image: self.manifest.extensions_image.clone(),
            commit: self.commit.clone().filter(|commit| *commit != deployment.name.checksum),
            stranger,
            missing: self.missing.clone(),
        })
    }
}

impl Configured {
    /// What somebody should know about it.
    pub(super) fn notice(&self, deployment: &DeploymentStatus) -> Option<String> {
        let name = crate::plan::short_name(&deployment.name);
        match self.told_by {
            ToldBy::Unknown => Some(format!(
                "what is managed on deployment {name} cannot be known: its record is damaged; apply the configuration again once /etc/mcd/applied.json is removed"
            )),
            ToldBy::Stranger => {
                let lacks = match self.missing.len() {
                    0 => String::new(),
                    1 => "; it lacks 1 managed path below /usr".to_owned(),
                    count => format!("; it lacks {count} managed paths below /usr"),
                };
                Some(format!(
                    "deployment {name} was made by another tool from a configured one{lacks}; `mcd verify --repair` makes one of it that has everything"
                ))
            }
            _ => None,
        }
    }
}

fn is_below_usr(path: &camino::Utf8Path) -> bool {
    Scope::of(path) == Some(Scope::Usr)
}

impl Host {
    /// What is managed on a deployment.
    #[context("Reading what is managed on {}", status.name)]
    pub fn configured(&self, status: &DeploymentStatus) -> Result<Configured> {
        let repo = self.repo()?;
        let own = layer::manifest_of_commit(&repo, &status.name.checksum);
        let etc = self.etc_record(status)?;
        let var = self.var_record().unwrap_or_default();
        let belongs = belongs(&Seen {
            is_deployment: true,
            id: status.id.as_deref(),
            commit: Some(&status.name.checksum),
            manifest: own.as_ref().ok().and_then(Option::as_ref),
            manifest_damaged: own.is_err(),
            etc: etc.as_ref().ok().and_then(Option::as_ref),
            etc_damaged: etc.is_err(),
            var: var.as_ref(),
        });
        let is_plain = matches!(&own, Ok(None));
        let nothing = Manifest::default();
        Ok(match belongs {
            Belongs::Record | Belongs::Stranger => {
                self.told_by_record(status, etc.unwrap_or_default().unwrap_or_default(), is_plain)?
            }
            Belongs::VarRecord => self.told_by_record(status, var.unwrap_or_default(), is_plain)?,
            Belongs::Commit => {
                let commit = Some(status.name.checksum.clone());
                Configured::new(status, ToldBy::Commit, own?.unwrap_or_default(), commit)
            }
            Belongs::Nothing => Configured::new(status, ToldBy::Nobody, nothing, None),
            Belongs::Unknown => Configured::new(status, ToldBy::Unknown, nothing, None),
        })
    }

    /// What a record says. On a deployment whose commit has no manifest (`is_plain`) it is a stranger's,
    /// where the image or what is below `/usr` is another; else that is an image's own commit, on which
    /// a live apply was made.
    fn told_by_record(
        &self,
        status: &DeploymentStatus,
        record: Applied,
        is_plain: bool,
    ) -> Result<Configured> {
        let mut told = Configured::new(status, ToldBy::Record, record.manifest, record.commit);
        if !is_plain {
            return Ok(told);
        }
        let repo = self.repo()?;
        let made_of = told.commit.as_deref().map(|commit| image_of_derived(&repo, commit)).transpose()?;
        let missing = self.missing_below_usr(status, &told.manifest)?;
        if made_of.flatten().as_ref() != Some(&told.image_commit) || !missing.is_empty() {
            told.told_by = ToldBy::Stranger;
            told.manifest.entries.retain(|entry| !missing.contains(&entry.path));
            told.missing = missing;
        }
        Ok(told)
    }

    /// What a manifest has below `/usr` and the deployment has not, or not so. Where it has no root yet,
    /// nothing of it is there.
    fn missing_below_usr(&self, status: &DeploymentStatus, manifest: &Manifest) -> Result<Vec<Utf8PathBuf>> {
        let entries = manifest.entries.iter().filter(|entry| is_below_usr(&entry.path));
        let wanted = Manifest { entries: entries.cloned().collect(), ..Manifest::default() };
        if status.staged || wanted.entries.is_empty() {
            return Ok(wanted.entries.into_iter().map(|entry| entry.path).collect());
        }
        let root = Root::new(self.deployment_root(status)?);
        let mut missing: Vec<_> =
            differences(&root, &wanted, &[Scope::Usr])?.into_iter().map(|one| one.path).collect();
        missing.dedup();
        Ok(missing)
    }

    /// The record in the deployment's `/etc`. One that is staged has none yet: it gets that of the
    /// deployment whose `/etc` is merged into it.
    fn etc_record(&self, status: &DeploymentStatus) -> Result<Result<Option<Applied>>> {
        let sysroot = self.load()?;
        let deployment = if status.staged { merge_deployment(&sysroot) } else { find(&sysroot, status) };
        let Some(deployment) = deployment else { return Ok(Ok(None)) };
        let path = format!("{}/{ETC_RECORD}", sysroot.deployment_dirpath(&deployment));
        Ok(read_record(self.root(), &path))
    }

    /// The root folder of a deployment that is not staged.
    #[context("Opening deployment {}", status.name)]
    pub fn deployment_root(&self, status: &DeploymentStatus) -> Result<Dir> {
        if status.booted {
            return self.running_root();
        }
        let sysroot = self.load()?;
        let deployment = find(&sysroot, status).context("It is gone")?;
        Ok(self.root().open_dir(sysroot.deployment_dirpath(&deployment).as_str())?)
    }

    /// Whether anything of ours was ever laid down on this host.
    pub fn has_var_record(&self) -> Result<bool> {
        Ok(self.var_record()?.is_some())
    }

    /// The commits that deployments are of and that records name: those of every deployment's `/etc`,
    /// of `/var`, and of what is under way. None where one of them cannot be read.
    #[context("Reading which commits the records name")]
    pub(super) fn commits_in_records(&self) -> Result<Option<BTreeSet<String>>> {
        let mut named = BTreeSet::new();
        let mut records: Vec<Option<Applied>> = Vec::new();
        let sysroot = self.load()?;
        for deployment in sysroot.deployments() {
            // Its own commit too: another tool's merge may carry its record on when it is gone.
            named.insert(deployment.csum().to_string());
            let path = sysroot.deployment_dirpath(&deployment);
            match read_record(self.root(), &format!("{path}/{ETC_RECORD}")) {
                Ok(record) => records.push(record),
                Err(_) => return Ok(None),
            }
        }
        let Ok(var) = self.var_record() else { return Ok(None) };
        records.push(var);
        if let Some(intent) = self.intent()? {
            named.extend([intent.commit, intent.image_commit]);
        }
        let Ok(live) = self.live() else { return Ok(None) };
        if let Some(live) = live {
            records.extend([Some(live.to), Some(live.back)]);
            for intent in live.next.into_iter().flat_map(|next| [Some(next.before), next.after]).flatten() {
                named.extend([intent.commit, intent.image_commit]);
            }
        }
        for record in records.into_iter().flatten() {
            named.extend(record.commit.into_iter().chain(record.deployment_commit));
        }
        Ok(Some(named))
    }

    /// The digest of the image that a commit is of or derived from; none where that is no image, or
    /// the commit is gone.
    pub fn image_of_commit(&self, commit: &str) -> Result<Option<String>> {
        super::status::digest_of_commit(&self.repo()?, commit)
    }

    /// What was laid down last in `/var`.
    fn var_record(&self) -> Result<Option<Applied>> {
        match self.var()? {
            Some(var) => read_record(&var, VAR_RECORD_IN_VAR),
            None => Ok(None),
        }
    }
}

fn find(sysroot: &ostree::Sysroot, status: &DeploymentStatus) -> Option<ostree::Deployment> {
    let mut all = sysroot.deployments().into_iter();
    all.find(|one| name_of(one) == status.name && one.osname() == status.stateroot)
}

/// Reads a record; none where there is none.
#[context("Reading the record {path}")]
fn read_record(root: &Dir, path: &str) -> Result<Option<Applied>> {
    match root.read(path) {
        Ok(bytes) => Ok(Some(parse_applied(&bytes)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
