//! The verbs of configuration as they are typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{FetchArgs, RebootArgs, UntilArg, WaitArgs};

/// The verbs of configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Make the host what MachineConfigs say: image, arguments, files, units, keys
    ///
    /// Everything becomes one commit that the next boot starts. Changes whose policy needs no reboot
    /// are made on the running system, with the reloads and restarts that they ask for.
    Apply(ApplyArgs),
    /// Show what an apply would change, and what each change needs
    Diff(DiffArgs),
    /// Compare the host with what it was told to be
    Verify(VerifyArgs),
    /// Check MachineConfigs and Ignition configs without a host
    Validate(ValidateArgs),
    /// Lay down the configuration of the deployment that starts: for boot units
    Boot(BootArgs),
    /// Stop managing the configuration of the host
    Forget(ForgetArgs),
}

impl ConfigVerb {
    /// Whether stdout is for a machine.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Apply(args) => args.target.json,
            Self::Diff(args) => args.target.json,
            Self::Verify(args) => args.target.json,
            Self::Validate(args) => args.json,
            Self::Boot(args) => args.json,
            Self::Forget(args) => args.target.json,
        }
    }
}

/// The files of a request.
#[derive(Debug, Args)]
pub struct ConfigFiles {
    /// MachineConfig or Ignition config, YAML or JSON; - is standard input
    ///
    /// Several are merged as the render controller does: by name, the worker role's first.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Which host or root.
#[derive(Debug, Args)]
pub struct ConfigTargetArgs {
    /// Work on the OSTree sysroot at DIR, which is not booted
    #[arg(long, value_name = "DIR", conflicts_with = "root")]
    pub sysroot: Option<PathBuf>,
    /// Work on the root file system at DIR, which does not run and has no OSTree
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Print JSON on stdout: one document, or one line per event
    #[arg(long)]
    pub json: bool,
}

/// `mcd apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// The files.
    #[command(flatten)]
    pub files: ConfigFiles,
    /// Print the plan, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Stop when everything is fetched, written and checked (prepared)
    #[arg(long, value_name = "PHASE", hide_possible_values = true, conflicts_with = "resume")]
    pub until: Option<UntilArg>,
    /// Commit what --until prepared left; needs no network
    #[arg(
        long,
        value_name = "ID",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with_all = ["files", "dry_run"]
    )]
    pub resume: Option<Option<String>>,
    /// Exit with 77 when there is nothing to do
    #[arg(long)]
    pub unchanged_exit_77: bool,
    /// Whose entries this request replaces: machine-config, controller-config or local
    #[arg(long, value_name = "SOURCE", hide = true, default_value = "machine-config")]
    pub source: String,
    /// Reboot.
    #[command(flatten)]
    pub reboot: RebootArgs,
    /// Fetching.
    #[command(flatten)]
    pub fetch: FetchArgs,
    /// The host.
    #[command(flatten)]
    pub target: ConfigTargetArgs,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `mcd diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The files.
    #[command(flatten)]
    pub files: ConfigFiles,
    /// Show the contents of files that not everybody may read
    #[arg(long)]
    pub show_secrets: bool,
    /// The host.
    #[command(flatten)]
    pub target: ConfigTargetArgs,
}

/// `mcd verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Put back what differs, from what the host keeps
    #[arg(long)]
    pub repair: bool,
    /// Do not end: say what differs as soon as it does, in /run/mcd/drift.json
    ///
    /// What is managed is watched, and compared as a whole every ten minutes. The file is there while
    /// something differs.
    #[arg(long, conflicts_with_all = ["repair", "sysroot"])]
    pub follow: bool,
    /// The host.
    #[command(flatten)]
    pub target: ConfigTargetArgs,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `mcd validate`.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// The files.
    #[command(flatten)]
    pub files: ConfigFiles,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `mcd boot`.
#[derive(Debug, Args)]
pub struct BootArgs {
    /// The root of the deployment that is about to start; without it, the running one
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Run by the unit early in the boot: what must be left is left, and the machine reboots
    #[arg(long, hide = true, conflicts_with = "root")]
    pub early: bool,
    /// Run by the unit when it is stopped
    #[arg(long, hide = true, conflicts_with_all = ["root", "early"])]
    pub ending: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `mcd forget`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["keep", "remove"]))]
pub struct ForgetArgs {
    /// Leave what is there: it is the machine's own from now on
    #[arg(long)]
    pub keep: bool,
    /// Put back what the image has
    #[arg(long)]
    pub remove: bool,
    /// Reboot.
    #[command(flatten)]
    pub reboot: RebootArgs,
    /// The host.
    #[command(flatten)]
    pub target: ConfigTargetArgs,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
}
