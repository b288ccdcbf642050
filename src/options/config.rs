//! What the verbs of configuration mean.

use std::path::PathBuf;

use super::{FetchOptions, Reboot, fetch, reboot};
use crate::cli::UntilArg;
use crate::cli::config::{self as typed, ConfigVerb};
use crate::error::Fault;
use crate::model::manifest::Source;

/// A verb of configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigRequest {
    /// `apply`.
    Apply(ApplyOptions),
    /// `diff`.
    Diff(DiffOptions),
    /// `verify`.
    Verify(VerifyOptions),
    /// `validate`.
    Validate(Vec<ConfigFile>),
    /// `boot`.
    Boot(BootPart),
    /// `forget`.
    Forget(ForgetOptions),
}

/// A part of a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootPart {
    /// Before the root at this path starts.
    Before(PathBuf),
    /// In the running system, asked for by a person: it only lays down.
    Running,
    /// Early in the running system.
    Early,
    /// When that ends.
    Ending,
}

/// Where a config is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigFile {
    /// Standard input.
    Stdin,
    /// A file.
    Path(PathBuf),
}

/// What is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The running host.
    Running,
    /// An OSTree sysroot that is not booted.
    Sysroot(PathBuf),
    /// A root file system without OSTree that does not run.
    Root(PathBuf),
}

/// `apply`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyOptions {
    /// The host.
    pub place: Place,
    /// What is wanted.
    pub asked: AskedConfig,
    /// Whose entries are replaced.
    pub source: Source,
    /// Fetching.
    pub fetch: FetchOptions,
    /// Only print the plan.
    pub dry_run: bool,
    /// Stop when prepared.
    pub until_prepared: bool,
    /// Reboot when something changed that needs it.
    pub reboot: Reboot,
    /// Run again what failed or was rolled back; override inhibitors.
    pub force: bool,
    /// Exit code 77 when there is nothing to do.
    pub unchanged_exit_77: bool,
    /// Whether to wait for locks.
    pub wait: bool,
}

/// Which config an apply goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedConfig {
    /// These files, merged.
    Files(Vec<ConfigFile>),
    /// What `--until prepared` left: the one there is, or the one with this id.
    Resume(Option<String>),
}

/// `diff`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffOptions {
    /// The host.
    pub place: Place,
    /// What it is compared with.
    pub files: Vec<ConfigFile>,
    /// Show contents that not everybody may read.
    pub show_secrets: bool,
}

/// `verify`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyOptions {
    /// The host.
    pub place: Place,
    /// Put back what differs.
    pub repair: bool,
    /// Go on, and say what differs as soon as it does.
    pub follow: bool,
    /// Whether to wait for locks.
    pub wait: bool,
}

/// `forget`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgetOptions {
    /// The host.
    pub place: Place,
    /// Leave what is there; else the image's own comes back.
    pub keep: bool,
    /// Reboot when something changed that needs it.
    pub reboot: Reboot,
    /// Override inhibitors.
    pub force: bool,
    /// Whether to wait for locks.
    pub wait: bool,
}

/// The meaning of a verb of configuration.
pub(super) fn read(verb: ConfigVerb) -> Result<ConfigRequest, Fault> {
    Ok(match verb {
        ConfigVerb::Apply(args) => ConfigRequest::Apply(apply(args)?),
        ConfigVerb::Diff(args) => ConfigRequest::Diff(DiffOptions {
            place: place(args.target),
            files: files(args.files, "diff")?,
            show_secrets: args.show_secrets,
        }),
        ConfigVerb::Verify(args) => ConfigRequest::Verify(VerifyOptions {
            place: place(args.target),
            repair: args.repair,
            follow: args.follow,
            wait: !args.wait.no_wait,
        }),
        ConfigVerb::Validate(args) => ConfigRequest::Validate(files(args.files, "validate")?),
        ConfigVerb::Boot(args) => ConfigRequest::Boot(match args.root {
            Some(root) => BootPart::Before(root),
            None if args.early => BootPart::Early,
            None if args.ending => BootPart::Ending,
            None => BootPart::Running,
        }),
        ConfigVerb::Forget(args) => ConfigRequest::Forget(ForgetOptions {
            place: place(args.target),
            keep: args.keep,
            reboot: reboot(args.reboot.reboot)?,
            force: args.reboot.force,
            wait: !args.wait.no_wait,
        }),
    })
}

fn apply(args: typed::ApplyArgs) -> Result<ApplyOptions, Fault> {
    let asked = match args.resume {
        Some(id) => AskedConfig::Resume(id),
        None => AskedConfig::Files(files(args.files, "apply")?),
    };
    Ok(ApplyOptions {
        place: place(args.target),
        asked,
        source: source(&args.source)?,
        fetch: fetch(args.fetch, false)?,
        dry_run: args.dry_run,
        until_prepared: args.until == Some(UntilArg::Prepared),
        reboot: reboot(args.reboot.reboot)?,
        force: args.reboot.force,
        unchanged_exit_77: args.unchanged_exit_77,
        wait: !args.wait.no_wait,
    })
}

fn source(text: &str) -> Result<Source, Fault> {
    match text {
        "machine-config" => Ok(Source::MachineConfig),
        "controller-config" => Ok(Source::ControllerConfig),
        "local" => Ok(Source::Local),
        other => Err(Fault::usage(format!("--source {other}: no such source"))
            .next("give machine-config, controller-config or local")),
    }
}

fn place(args: typed::ConfigTargetArgs) -> Place {
    match (args.sysroot, args.root) {
        (Some(sysroot), _) => Place::Sysroot(sysroot),
        (None, Some(root)) => Place::Root(root),
        (None, None) => Place::Running,
    }
}

fn files(args: typed::ConfigFiles, verb: &str) -> Result<Vec<ConfigFile>, Fault> {
    if args.files.is_empty() {
        return Err(Fault::usage(format!("mcd {verb}: no file is named"))
            .next(format!("name one or several, or - for standard input: `mcd {verb} config.yaml`")));
    }
    let is_stdin = |path: &PathBuf| path.as_os_str() == "-";
    if args.files.iter().filter(|path| is_stdin(path)).count() > 1 {
        return Err(Fault::usage("standard input (-) is named twice").next("it can be read once only"));
    }
    let read = |path: PathBuf| if is_stdin(&path) { ConfigFile::Stdin } else { ConfigFile::Path(path) };
    Ok(args.files.into_iter().map(read).collect())
}
