//! What a command line means: plain options, validated, without clap.
//!
//! A wrong value is a [`Fault`] of kind usage that names it; what this version cannot do is refused
//! here, before anything is opened.

pub mod config;
mod daemon;
mod firstboot;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser as _;

pub use self::daemon::{ControllerOptions, DaemonOptions};
pub use self::firstboot::{DoctorOptions, FirstbootOptions};

use crate::cli::{self, Cli, OldDaemon, OldDaemonVerb, OldPivot, Verb};
use crate::error::{ExitKind, Fault};
use crate::model::image_ref::OsImage;
use crate::model::kargs::KargEdit;
use crate::model::status::{DeploymentName, DeploymentStatus, HostStatus};

/// A whole command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// How often `-v` was given.
    pub verbosity: u8,
    /// `--json`: stdout is for a machine.
    pub json: bool,
    /// What to do.
    pub request: Request,
}

/// Why there is nothing to run.
#[derive(Debug)]
pub enum Stop {
    /// Clap's own: help, version, or a malformed command line.
    Clap(clap::Error),
    /// A value that clap cannot judge.
    Fault(Fault),
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// `pivot`.
    Pivot(PivotOptions),
    /// A verb of configuration.
    Config(config::ConfigRequest),
    /// `pull`.
    Pull(PullOptions),
    /// `status`.
    Status(Target),
    /// `health`.
    Health(HealthOptions),
    /// `report`.
    Report(Option<PathBuf>),
    /// `rollback`.
    Rollback(RollbackOptions),
    /// `pin` and `unpin`.
    Pin(PinOptions),
    /// `cancel`.
    Cancel(Target),
    /// `cleanup`.
    Cleanup(CleanupOptions),
    /// `history`.
    History(HistoryOptions),
    /// `firstboot`.
    Firstboot(FirstbootOptions),
    /// `doctor`.
    Doctor(DoctorOptions),
    /// `daemon`.
    Daemon(DaemonOptions),
    /// `controller`.
    Controller(ControllerOptions),
    /// `generate`.
    Generate(GenerateOptions),
    /// `serve-request`.
    Serve(ServeOptions),
    /// `hold` and `release`.
    Hold(HoldOptions),
    /// Print this line: the version in the words of the old daemon.
    Version(String),
}

/// Which host, and what to do when somebody else is at work on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// A sysroot that is not booted; absent means the running host.
    pub sysroot: Option<PathBuf>,
    /// Whether to wait for locks.
    pub wait: bool,
}

/// How an image is fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchOptions {
    /// Credentials named by the user; absent means looked for in the usual places.
    pub authfile: Option<PathBuf>,
    /// Take any certificate, and plain HTTP.
    pub insecure_skip_tls_verification: bool,
    /// Bytes a second.
    pub rate_limit: Option<u64>,
    /// Idle I/O and CPU priority.
    pub background: bool,
}

/// Which image a pivot goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// This one.
    Image(OsImage),
    /// What the files of the old host API say.
    HostApi,
    /// What `--until prepared` left: the one there is, or the one with this id.
    Resume(Option<String>),
    /// What was committed and got lost.
    Lost,
}

/// Whether a change may be followed by a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reboot {
    /// No.
    Never,
    /// The cheapest that serves.
    Auto,
    /// Of user space only, or a refusal.
    Soft,
    /// A reboot of the machine.
    Full,
}

/// `pivot`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PivotOptions {
    /// The host.
    pub target: Target,
    /// The image.
    pub asked: Asked,
    /// Kernel argument edits: deletes, replaces, appends, each kind as typed.
    pub kargs: Vec<KargEdit>,
    /// Fetching.
    pub fetch: FetchOptions,
    /// Only print the plan.
    pub dry_run: bool,
    /// Stop when prepared.
    pub until_prepared: bool,
    /// Reboot when something changed.
    pub reboot: Reboot,
    /// Run again what failed or was rolled back; override inhibitors.
    pub force: bool,
    /// Exit code 77 when there is nothing to do.
    pub unchanged_exit_77: bool,
}

/// `pull`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullOptions {
    /// The host.
    pub target: Target,
    /// The image.
    pub image: OsImage,
    /// Fetching.
    pub fetch: FetchOptions,
    /// Only print the sizes.
    pub dry_run: bool,
}

/// `health`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthOptions {
    /// Until the verdict, and act on it.
    pub judge: bool,
}

/// `rollback`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollbackOptions {
    /// The host.
    pub target: Target,
    /// A deployment by name; absent means the one before.
    pub to: Option<DeploymentName>,
    /// Only say what would go back.
    pub dry_run: bool,
    /// Reboot when something changed.
    pub reboot: Reboot,
    /// Override inhibitors.
    pub force: bool,
}

/// `pin` and `unpin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinOptions {
    /// The host.
    pub target: Target,
    /// Which deployment.
    pub which: Which,
    /// `pin`, not `unpin`.
    pub pinned: bool,
}

/// `cleanup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleanupOptions {
    /// The host.
    pub target: Target,
    /// Only say what would go.
    pub dry_run: bool,
    /// Run by the unit at the first boot of a deployment.
    pub after_boot: bool,
}

/// `history`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryOptions {
    /// The host.
    pub target: Target,
    /// Only the newest.
    pub limit: Option<usize>,
}

/// `generate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GenerateOptions {
    /// Manual pages into this folder.
    Man(PathBuf),
    /// Completions into this folder.
    Completions(PathBuf),
}

/// `serve-request`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// The host.
    pub target: Target,
    /// Where requests and replies are, instead of `/run/mcd`.
    pub spool: Option<PathBuf>,
    /// What to serve.
    pub what: Served,
}

/// What is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// The request with this id.
    Request(String),
    /// How the host is.
    Status,
}

/// `hold` and `release`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldOptions {
    /// Place a hold.
    Hold {
        /// How long; none: until it is released.
        seconds: Option<i64>,
        /// Why.
        why: String,
    },
    /// Lift it.
    Release,
}

/// A deployment as a person names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The number that status shows.
    Index(usize),
    /// The one that runs.
    Booted,
    /// The one that a rollback goes to.
    Rollback,
    /// Its whole name.
    Name(DeploymentName),
    /// The first hex digits of its commit.
    Checksum(String),
}

/// Digits of a commit below which a prefix is refused: shorter ones are taken for numbers and
/// collide too easily.
const SHORTEST_CHECKSUM: usize = 6;

/// Reads a command line. The first word decides which of the three programs is meant.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Invocation, Stop> {
    let words: Vec<OsString> = words.into_iter().collect();
    let program = words.first().map(Path::new).and_then(Path::file_name).and_then(|name| name.to_str());
    let meant = match program {
        Some("machine-config-daemon") => old_daemon(OldDaemon::try_parse_from(words).map_err(Stop::Clap)?),
        Some("pivot") => old_pivot(OldPivot::try_parse_from(words).map_err(Stop::Clap)?),
        _ => ours(Cli::try_parse_from(words).map_err(Stop::Clap)?),
    };
    meant.map_err(Stop::Fault)
}

fn ours(cli: Cli) -> Result<Invocation, Fault> {
    let json = wants_json(&cli.verb);
    let request = match cli.verb {
        Verb::Pivot(args) => Request::Pivot(pivot(args)?),
        Verb::Config(verb) => Request::Config(config::read(verb)?),
        Verb::Pull(args) => Request::Pull(pull(args)?),
        Verb::Status(args) => Request::Status(target(args.target, true)),
        Verb::Health(args) => Request::Health(HealthOptions { judge: args.judge }),
        Verb::Report(args) => Request::Report(args.output),
        Verb::Rollback(args) => Request::Rollback(rollback(args)?),
        Verb::Pin(args) => Request::Pin(pin(args, true)?),
        Verb::Unpin(args) => Request::Pin(pin(args, false)?),
        Verb::Cancel(args) => Request::Cancel(target(args.target, !args.wait.no_wait)),
        Verb::Cleanup(args) => Request::Cleanup(CleanupOptions {
            target: target(args.target, !args.wait.no_wait),
            dry_run: args.dry_run,
            after_boot: args.after_boot,
        }),
        Verb::History(args) => {
            if args.limit == Some(0) {
                return Err(Fault::usage("--limit 0: nothing would be shown").next("give a number from 1"));
            }
            Request::History(HistoryOptions { target: target(args.target, true), limit: args.limit })
        }
        Verb::Hold(args) => Request::Hold(HoldOptions::Hold {
            seconds: args.time.as_deref().map(parse_time).transpose()?,
            why: args.reason,
        }),
        Verb::Release => Request::Hold(HoldOptions::Release),
        Verb::ServeRequest(args) => Request::Serve(ServeOptions {
            target: Target { sysroot: args.sysroot, wait: true },
            spool: args.spool,
            what: args.id.map_or(Served::Status, Served::Request),
        }),
        Verb::Firstboot(args) => Request::Firstboot(firstboot::firstboot(args)?),
        Verb::Doctor(args) => Request::Doctor(firstboot::doctor(args)?),
        Verb::Daemon(args) => Request::Daemon(daemon::daemon(args, daemon::variable())?),
        Verb::Controller(args) => Request::Controller(daemon::controller(args)?),
        Verb::Generate(args) => Request::Generate(match args.what {
            cli::GenerateVerb::Man { dir } => GenerateOptions::Man(dir),
            cli::GenerateVerb::Completions { dir } => GenerateOptions::Completions(dir),
        }),
    };
    // A pod's log is its journal.
    let least = u8::from(matches!(request, Request::Daemon(_) | Request::Controller(_)));
    Ok(Invocation { verbosity: cli.verbose.max(least), json, request })
}

fn wants_json(verb: &Verb) -> bool {
    match verb {
        Verb::Pivot(args) => args.target.json,
        Verb::Config(verb) => verb.wants_json(),
        Verb::Pull(args) => args.target.json,
        Verb::Status(args) => args.target.json,
        Verb::Health(args) => args.json,
        Verb::Report(args) => args.json,
        Verb::Rollback(args) => args.target.json,
        Verb::Pin(args) | Verb::Unpin(args) => args.target.json,
        Verb::Cancel(args) => args.target.json,
        Verb::Cleanup(args) => args.target.json,
        Verb::History(args) => args.target.json,
        Verb::Firstboot(args) => args.json,
        Verb::Doctor(args) => args.json,
        Verb::Daemon(_)
        | Verb::Controller(_)
        | Verb::Generate(_)
        | Verb::Hold(_)
        | Verb::Release
        | Verb::ServeRequest(_) => false,
    }
}

fn pivot(args: cli::PivotArgs) -> Result<PivotOptions, Fault> {
    let asked = match (args.image, args.resume) {
        _ if args.resume_lost => Asked::Lost,
        (_, Some(id)) => Asked::Resume(id),
        (Some(text), None) => Asked::Image(image(&text)?),
        (None, None) => Asked::HostApi,
    };
    Ok(PivotOptions {
        target: target(args.target, !args.wait.no_wait),
        asked,
        kargs: kargs(args.kargs)?,
        fetch: fetch(args.fetch, false)?,
        dry_run: args.dry_run,
        until_prepared: args.until == Some(cli::UntilArg::Prepared),
        reboot: reboot(args.reboot.reboot)?,
        force: args.reboot.force,
        unchanged_exit_77: args.unchanged_exit_77,
    })
}

fn pull(args: cli::PullArgs) -> Result<PullOptions, Fault> {
    Ok(PullOptions {
        target: target(args.target, !args.wait.no_wait),
        image: image(&args.image)?,
        fetch: fetch(args.fetch, args.background)?,
        dry_run: args.dry_run,
    })
}

fn rollback(args: cli::RollbackArgs) -> Result<RollbackOptions, Fault> {
    let to = args.to.map(|text| text.parse().map_err(Fault::usage)).transpose()?;
    Ok(RollbackOptions {
        target: target(args.target, !args.wait.no_wait),
        to,
        dry_run: args.dry_run,
        reboot: reboot(args.reboot.reboot)?,
        force: args.reboot.force,
    })
}

fn pin(args: cli::PinArgs, pinned: bool) -> Result<PinOptions, Fault> {
    Ok(PinOptions {
        target: target(args.target, !args.wait.no_wait),
        which: parse_which(&args.which)?,
        pinned,
    })
}

fn old_daemon(old: OldDaemon) -> Result<Invocation, Fault> {
    match old.verb {
        OldDaemonVerb::Pivot { args, from_etc_pullspec } => old_request(args, from_etc_pullspec, false),
        OldDaemonVerb::Version => Ok(Invocation {
            verbosity: 0,
            json: false,
            request: Request::Version(format!("MachineConfigDaemon {}", env!("CARGO_PKG_VERSION"))),
        }),
        OldDaemonVerb::Start(args) => daemon::old_start(*args),
        OldDaemonVerb::FirstbootCompleteMachineconfig(args) => Ok(firstboot::old(args)),
    }
}

fn old_pivot(old: OldPivot) -> Result<Invocation, Fault> {
    old_request(old.args, false, old.unchanged_exit_77)
}

/// The old programs said `systemctl reboot`: a full one, and only when something changed.
fn old_request(
    args: cli::OldPivotArgs,
    from_etc_pullspec: bool,
    unchanged_exit_77: bool,
) -> Result<Invocation, Fault> {
    let asked = match args.image {
        Some(text) if !from_etc_pullspec => Asked::Image(image(&text)?),
        _ => Asked::HostApi,
    };
    let options = PivotOptions {
        target: Target { sysroot: None, wait: true },
        asked,
        kargs: Vec::new(),
        fetch: FetchOptions::default(),
        dry_run: false,
        until_prepared: false,
        reboot: if args.reboot { Reboot::Full } else { Reboot::Never },
        force: false,
        unchanged_exit_77,
    };
    Ok(Invocation { verbosity: 0, json: false, request: Request::Pivot(options) })
}

fn target(args: cli::TargetArgs, wait: bool) -> Target {
    Target { sysroot: args.sysroot, wait }
}

fn fetch(args: cli::FetchArgs, background: bool) -> Result<FetchOptions, Fault> {
    Ok(FetchOptions {
        authfile: args.authfile,
        insecure_skip_tls_verification: args.insecure_skip_tls_verification,
        rate_limit: args.rate_limit.as_deref().map(parse_rate).transpose()?,
        background,
    })
}

/// What can be judged without knowing the present arguments is judged here, before anything is fetched.
fn kargs(args: cli::KargArgs) -> Result<Vec<KargEdit>, Fault> {
    let deletes = args.karg_delete.into_iter().map(KargEdit::Delete);
    let replaces = args.karg_replace.into_iter().map(KargEdit::Replace);
    let appends = args.karg_append.into_iter().map(KargEdit::Append);
    let edits: Vec<KargEdit> = deletes.chain(replaces).chain(appends).collect();
    for edit in &edits {
        edit.check().map_err(|invalid| {
            Fault::usage(format!("kernel argument '{}' is malformed", invalid.text)).why(invalid.reason)
        })?;
    }
    Ok(edits)
}

fn image(text: &str) -> Result<OsImage, Fault> {
    text.parse::<OsImage>().map_err(|invalid| {
        Fault::usage(format!("image reference '{}' is malformed", invalid.text))
            .why(invalid.reason)
            .next("write HOST/NAME[:TAG][@DIGEST] or oci:PATH[:TAG]; `mcd pivot --help` lists all spellings")
    })
}

fn reboot(arg: cli::RebootArg) -> Result<Reboot, Fault> {
    match arg {
        cli::RebootArg::Never => Ok(Reboot::Never),
        cli::RebootArg::Auto => Ok(Reboot::Auto),
        cli::RebootArg::Full => Ok(Reboot::Full),
        cli::RebootArg::Soft => Ok(Reboot::Soft),
    }
}

/// `2h` in seconds.
fn parse_time(text: &str) -> Result<i64, Fault> {
    let seconds = text.parse::<jiff::SignedDuration>().ok().map(|time| time.as_secs());
    seconds.filter(|seconds| *seconds > 0).ok_or_else(|| {
        Fault::usage(format!("--for {text}: no time"))
            .next("write 30m, 2h or 1h30m; leave it out to hold until `mcd release`")
    })
}

/// `10M` is ten times 1024 × 1024 bytes a second.
fn parse_rate(text: &str) -> Result<u64, Fault> {
    let refuse = |why: &str| {
        Fault::usage(format!("--rate-limit={text}: not a rate"))
            .why(why)
            .next("write bytes a second, such as 500K or 10M")
    };
    let (digits, shift) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 10),
        Some('m' | 'M') => (&text[..text.len() - 1], 20),
        Some('g' | 'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refuse("expected a whole number, perhaps followed by K, M or G"));
    }
    let rate = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    match rate {
        Some(0) => Err(refuse("nothing would ever arrive")),
        Some(rate) => Ok(rate),
        None => Err(refuse("the number is too large")),
    }
}

fn parse_which(text: &str) -> Result<Which, Fault> {
    let hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match text {
        "booted" => return Ok(Which::Booted),
        "rollback" => return Ok(Which::Rollback),
        _ => {}
    }
    if let Ok(name) = text.parse() {
        return Ok(Which::Name(name));
    }
    if text.len() < SHORTEST_CHECKSUM
        && let Ok(index) = text.parse()
    {
        return Ok(Which::Index(index));
    }
    if (SHORTEST_CHECKSUM..=64).contains(&text.len()) && hex(text) {
        return Ok(Which::Checksum(text.to_owned()));
    }
    Err(Fault::usage(format!("'{text}' names no deployment"))
        .why(format!(
            "expected a number, booted, rollback, CSUM.SERIAL, or at least {SHORTEST_CHECKSUM} hex digits of CSUM"
        ))
        .next("`mcd status` shows the numbers and names"))
}

impl Which {
    /// The deployment that is meant, on this host.
    pub fn resolve<'a>(&self, status: &'a HostStatus) -> Result<&'a DeploymentStatus, Fault> {
        let deployments = &status.deployments;
        let found: Vec<&DeploymentStatus> = match self {
            Self::Index(index) => deployments.iter().filter(|one| one.index == *index).collect(),
            Self::Booted => deployments.iter().filter(|one| one.booted).collect(),
            Self::Rollback => deployments.iter().filter(|one| one.rollback).collect(),
            Self::Name(name) => deployments.iter().filter(|one| one.name == *name).collect(),
            Self::Checksum(start) => {
                deployments.iter().filter(|one| one.name.checksum.starts_with(start)).collect()
            }
        };
        match found.as_slice() {
            [one] => Ok(one),
            [] => Err(self.fault("names no deployment of this host")),
            _ => Err(self.fault(&format!("names {} deployments", found.len()))),
        }
    }

    fn fault(&self, problem: &str) -> Fault {
        Fault::new(ExitKind::Usage, format!("'{self}' {problem}"))
            .next("`mcd status` shows the numbers and names")
    }
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Booted => f.write_str("booted"),
            Self::Rollback => f.write_str("rollback"),
            Self::Name(name) => write!(f, "{name}"),
            Self::Checksum(start) => f.write_str(start),
        }
    }
}

#[cfg(test)]
mod tests;
