//! The command line as it is typed: clap types without behaviour.
//!
//! What was typed is not what it means: [`crate::options`] turns these into plain options. Manual
//! pages and shell completions are generated from here, so every item's comment is what a user
//! reads.
//!
//! The binary answers to three names. `mcd` is the whole program; `machine-config-daemon` and
//! `pivot` keep the flags that scripts and units of OpenShift 4.1 and 4.2 pass.

pub mod config;
pub mod daemon;
pub mod firstboot;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

/// Transactional OS updates for OSTree hosts
///
/// mcd moves a host to an OS image and back, as one atomic change that the next boot starts.
#[derive(Debug, Parser)]
#[command(
    name = "mcd",
    version,
    help_expected = true,
    max_term_width = 80,
    disable_help_subcommand = true,
    after_help = "Exit codes: 0 done, 1 failed and nothing changed, 2 usage, 3 refused, 4 failed \
                  and not undone, 5 differs or unhealthy, 6 busy, 77 nothing to do (with \
                  --unchanged-exit-77), 128+N ended by signal N."
)]
pub struct Cli {
    /// Say more on stderr; twice for what only developers want
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 900)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Move the host to an OS image: the next boot starts it
    ///
    /// Fetches what is missing, deploys the image beside the running system with its kernel
    /// arguments and switches in one step. The running system is not touched. Without IMAGE the
    /// request is read from /etc/pivot/image-pullspec and /etc/pivot/kernel-args.
    Pivot(PivotArgs),
    /// The verbs of configuration.
    #[command(flatten)]
    Config(config::ConfigVerb),
    /// Fetch an OS image ahead; a later pivot to it needs no network
    Pull(PullArgs),
    /// Show deployments, what the next boot starts and what is prepared
    Status(StatusArgs),
    /// Run the health checks of the running system, and show what each found
    ///
    /// Exit code 0: every required check passes; 5: one fails. Nothing is done about it: after a
    /// boot, mcd-health.service runs the same checks, and goes back to the last good deployment if
    /// they do not pass in time.
    Health(HealthArgs),
    /// Write a support bundle: records, status, checks and journal, without secrets
    ///
    /// Contents of files are not in it, and what looks like a credential is taken out. What could
    /// not be read is listed in it.
    Report(ReportArgs),
    /// Let the next boot start the previous deployment
    ///
    /// Says before it acts which files in /etc (certificates, kubeconfigs, host keys) changed
    /// since and go back with it.
    Rollback(RollbackArgs),
    /// Keep a deployment until it is unpinned
    Pin(PinArgs),
    /// Let a pinned deployment go with the next cleanup
    Unpin(PinArgs),
    /// Drop what is prepared or staged; the running system stays
    Cancel(CancelArgs),
    /// Remove layers, images and leftovers that nothing needs
    Cleanup(CleanupArgs),
    /// Show who changed the host, when, to what, and how it ended
    History(HistoryArgs),
    /// Bring the machine to what its first boot asks for, and reboot once
    ///
    /// Run by mcd-firstboot.service before kubelet. The request is cleared only by the run that
    /// finds nothing left to do, and is not run again after a rollback.
    #[command(alias = "firstboot-complete-machineconfig")]
    Firstboot(firstboot::FirstbootArgs),
    /// Say why an image cannot be read from its registry
    ///
    /// Tries route, clock, proxy, names and connections to the registry and its mirrors, and reads
    /// the image's manifest. Exit code 0: it can be read; 5: it cannot, and what is at fault is said.
    Doctor(firstboot::DoctorArgs),
    /// Follow this host's Node in a cluster, in a pod
    ///
    /// Watches the Node; when another desiredConfig or desiredImage is set there, lets the host
    /// prepare it while workloads still run, has the node drained if the plan says so, commits,
    /// reboots, waits until the deployment is good and says Done. Written as annotations that the
    /// operator's controllers understand. docs/cluster.md shows a manifest, docs/runbook.md what
    /// each reason means.
    Daemon(daemon::DaemonArgs),
    /// Roll MachineConfigs out over pools of nodes, where no operator does
    ///
    /// Renders what each MachineConfigPool selects, and tells its nodes, one first, then at most
    /// maxUnavailable at a time, zone by zone; halts when nodes fail. One process at a time leads,
    /// by a Lease. docs/cluster.md has the settings of a pool.
    Controller(daemon::ControllerArgs),
    /// Keep the cluster from draining or rebooting this host
    ///
    /// What needs neither goes on, and changes are prepared. `mcd release` lifts it.
    Hold(HoldArgs),
    /// Lift the hold of `mcd hold`
    Release,
    /// Carry out what a pod asked for: run by its unit
    #[command(hide = true)]
    ServeRequest(ServeRequestArgs),
    /// Write manual pages or shell completions
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// Which host.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Work on the OSTree sysroot at DIR, which is not booted
    #[arg(long, value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
    /// Print JSON on stdout: one document, or one line per event
    #[arg(long)]
    pub json: bool,
}

/// How to behave when somebody else is at work.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Exit with 6 instead of waiting for another run
    #[arg(long)]
    pub no_wait: bool,
}

/// How an image is fetched.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// Take registry credentials from FILE
    #[arg(long, value_name = "FILE")]
    pub authfile: Option<PathBuf>,
    /// Accept any certificate, and plain HTTP: for tests only
    #[arg(long)]
    pub insecure_skip_tls_verification: bool,
    /// Read at most RATE bytes a second; K, M and G count in 1024s
    #[arg(long, value_name = "RATE")]
    pub rate_limit: Option<String>,
}

/// Changes of the kernel arguments: deletes first, then replaces, then appends.
#[derive(Debug, Args)]
pub struct KargArgs {
    /// Add a kernel argument at the end; repeatable
    #[arg(long, value_name = "ARG")]
    pub karg_append: Vec<String>,
    /// Remove a kernel argument, by KEY or KEY=VALUE; repeatable
    ///
    /// Removing what is not there is no error.
    #[arg(long, value_name = "ARG")]
    pub karg_delete: Vec<String>,
    /// Set KEY=VALUE in place, or KEY=OLD=NEW; repeatable
    #[arg(long, value_name = "ARG")]
    pub karg_replace: Vec<String>,
}

/// Whether to reboot when something changed.
#[derive(Debug, Args)]
pub struct RebootArgs {
    /// Reboot if something changed; alone it means auto
    #[arg(
        short,
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "never",
        default_missing_value = "auto",
        hide_possible_values = true,
        hide_default_value = true,
        long_help = "Reboot if something changed: never (the default), auto, full or soft. Alone \
                     it means auto, the cheapest that serves. soft \
                     restarts user space only, where kernel, initramfs and arguments stay."
    )]
    pub reboot: RebootArg,
    /// Run again what failed or was undone; override inhibitors
    #[arg(long)]
    pub force: bool,
}

/// The values of `--reboot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RebootArg {
    /// Do not reboot
    Never,
    /// The cheapest reboot that serves
    Auto,
    /// Only the user space
    Soft,
    /// The machine
    Full,
}

/// The values of `--until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UntilArg {
    /// Fetched and checked; no deployment made
    Prepared,
}

/// `mcd pivot`.
#[derive(Debug, Args)]
pub struct PivotArgs {
    /// The image.
    // What the user reads is not this comment: rustdoc would take the brackets for links.
    #[arg(
        value_name = "IMAGE",
        help = "The OS image: HOST/NAME[:TAG][@DIGEST], oci:PATH[:TAG], …",
        long_help = "The OS image: HOST/NAME[:TAG][@DIGEST], oci:PATH[:TAG], …\n\nAlso docker://, \
                     oci-archive:, containers-storage: and the ostree-unverified-registry:, \
                     ostree-unverified-image:, ostree-image-signed: and ostree-remote-…: spellings."
    )]
    pub image: Option<String>,
    /// Print the plan and the sizes, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Stop when everything is fetched and checked (prepared)
    #[arg(long, value_name = "PHASE", hide_possible_values = true, conflicts_with = "resume")]
    pub until: Option<UntilArg>,
    /// Commit what --until prepared left; needs no network
    #[arg(
        long,
        value_name = "ID",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with_all = ["image", "dry_run", "karg_append", "karg_delete", "karg_replace"]
    )]
    pub resume: Option<Option<String>>,
    /// Stage again what was committed and got lost: what the unit runs after a boot
    #[arg(long, hide = true, conflicts_with_all = ["image", "dry_run", "resume", "until"])]
    pub resume_lost: bool,
    /// Exit with 77 when there is nothing to do
    #[arg(long)]
    pub unchanged_exit_77: bool,
    /// Kernel arguments.
    #[command(flatten)]
    pub kargs: KargArgs,
    /// Reboot.
    #[command(flatten)]
    pub reboot: RebootArgs,
    /// Fetching.
    #[command(flatten)]
    pub fetch: FetchArgs,
    /// The host.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `mcd pull`.
#[derive(Debug, Args)]
pub struct PullArgs {
    /// The OS image, spelled as for pivot
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Use idle disk and CPU time only
    #[arg(long)]
    pub background: bool,
    /// Print the sizes, fetch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Fetching.
    #[command(flatten)]
    pub fetch: FetchArgs,
    /// The host.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `mcd status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The host.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `mcd health`.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Repeat until the verdict, and go back if it is bad: what the unit runs
    #[arg(long, hide = true)]
    pub judge: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `mcd report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Write to FILE, which must not exist; without it, to a new file in /var/tmp
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `mcd rollback`.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// Go to this deployment, not the one that status calls rollback
    #[arg(long, value_name = "CSUM.SERIAL")]
    pub to: Option<String>,
    /// Say what would go back, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Reboot.
    #[command(flatten)]
    pub reboot: RebootArgs,
    /// The host.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `mcd pin` and `mcd unpin`.
#[derive(Debug, Args)]
pub struct PinArgs {
    /// A number of status, booted, rollback, CSUM.SERIAL or the start of CSUM
    #[arg(value_name = "WHICH")]
    pub which: String,
    /// The host.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `mcd cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The host.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `mcd cleanup`.
#[derive(Debug, Args)]
pub struct CleanupArgs {
    /// Say what would go, remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The first boot of a deployment: settle its records, then clean up
    #[arg(long, hide = true)]
    pub after_boot: bool,
    /// The host.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `mcd history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Show only the newest N changes
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// The host.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `mcd generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to write.
    #[command(subcommand)]
    pub what: GenerateVerb,
}

/// What `mcd generate` writes.
#[derive(Debug, Subcommand)]
pub enum GenerateVerb {
    /// Manual pages, section 8
    Man {
        /// The folder to write to
        dir: PathBuf,
    },
    /// Completions for bash, zsh and fish
    Completions {
        /// The folder to write to
        dir: PathBuf,
    },
}

/// Move the host to an OS image: mcd pivot with the flags of OpenShift 4.1's pivot
#[derive(Debug, Parser)]
#[command(name = "pivot", version, help_expected = true, max_term_width = 80)]
pub struct OldPivot {
    /// The flags it shares with the daemon's verb.
    #[command(flatten)]
    pub args: OldPivotArgs,
    /// Exit with 77 when there is nothing to do
    #[arg(long)]
    pub unchanged_exit_77: bool,
}

/// The `pivot` flags that both old programs have.
#[derive(Debug, Args)]
pub struct OldPivotArgs {
    /// The OS image; without it, /etc/pivot/image-pullspec
    #[arg(value_name = "IMAGE")]
    pub image: Option<String>,
    /// Accepted without effect: no container image is made
    #[arg(short, long)]
    pub keep: bool,
    /// Reboot if something changed
    #[arg(short, long)]
    pub reboot: bool,
    /// Accepted without effect: a log flag of the old program
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)]
    pub logtostderr: Option<Option<String>>,
    /// Accepted without effect: a log flag of the old program
    #[arg(short = 'v', hide = true, value_name = "LEVEL")]
    pub old_verbosity: Option<String>,
}

/// `hold`.
#[derive(Debug, Args)]
pub struct HoldArgs {
    /// Lift it by itself after this time: 30m, 2h, 1h30m
    #[arg(long = "for", value_name = "TIME")]
    pub time: Option<String>,
    /// Say why, for whoever asks why nothing happens
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// `serve-request`.
#[derive(Debug, Args)]
pub struct ServeRequestArgs {
    /// The request's id
    #[arg(long, value_name = "ID", required_unless_present = "status")]
    pub id: Option<String>,
    /// Say how the host is, as JSON on stdout, and serve nothing
    #[arg(long, conflicts_with = "id")]
    pub status: bool,
    /// Requests and replies are in DIR instead of /run/mcd
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,
    /// Work on the OSTree sysroot at DIR, which is not booted
    #[arg(long, value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
}

/// The host's verbs of OpenShift 4.2's machine-config-daemon, answered by mcd
#[derive(Debug, Parser)]
#[command(
    name = "machine-config-daemon",
    help_expected = true,
    max_term_width = 80,
    disable_help_subcommand = true
)]
pub struct OldDaemon {
    /// What to do.
    #[command(subcommand)]
    pub verb: OldDaemonVerb,
}

/// The old daemon's verbs.
#[derive(Debug, Subcommand)]
pub enum OldDaemonVerb {
    /// Move the host to an OS image: mcd pivot with the flags of 4.2
    Pivot {
        /// The shared flags.
        #[command(flatten)]
        args: OldPivotArgs,
        /// Take the image from /etc/pivot/image-pullspec
        #[arg(short = 'P', long)]
        from_etc_pullspec: bool,
    },
    /// Print the version
    Version,
    /// Follow this host's Node in a cluster: mcd daemon with the old flags
    Start(Box<daemon::OldStartArgs>),
    /// Finish a first boot: mcd firstboot
    FirstbootCompleteMachineconfig(firstboot::OldFirstbootArgs),
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::*;

    /// Every command that has a help page: the program itself and all verbs, hidden ones too.
    fn pages(mut command: Command) -> Vec<(String, String)> {
        command.build();
        let mut pages = vec![(command.get_name().to_owned(), command.render_long_help().to_string())];
        for verb in command.get_subcommands() {
            pages.extend(pages_of(verb.clone()));
        }
        pages
    }

    fn pages_of(mut command: Command) -> Vec<(String, String)> {
        let name = command.get_bin_name().unwrap_or_default().to_owned();
        let mut pages = vec![
            (format!("{name} -h"), command.render_help().to_string()),
            (name, command.render_long_help().to_string()),
        ];
        pages.extend(command.get_subcommands().cloned().flat_map(pages_of));
        pages
    }

    #[test]
    fn the_types_are_consistent() {
        Cli::command().debug_assert();
        OldDaemon::command().debug_assert();
        OldPivot::command().debug_assert();
    }

    #[test]
    fn help_fits_80_columns() {
        for command in [Cli::command(), OldDaemon::command(), OldPivot::command()] {
            for (name, page) in pages(command) {
                for line in page.lines() {
                    assert!(line.chars().count() <= 80, "{name}: {} columns: {line}", line.chars().count());
                }
            }
        }
    }

    #[test]
    fn help_of_each_verb() {
        let all: Vec<String> = [Cli::command(), OldDaemon::command(), OldPivot::command()]
            .into_iter()
            .flat_map(pages)
            .filter(|(name, _)| !name.ends_with("-h"))
            .map(|(name, page)| format!("$ {name} --help\n{page}"))
            .collect();
        insta::assert_snapshot!("help", all.join("\n"));
    }
}
