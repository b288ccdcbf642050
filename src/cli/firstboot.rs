//! The command lines of a first boot, and of the doctor that it calls.

use std::path::PathBuf;

use clap::Args;

use super::{FetchArgs, RebootArg};

/// `mcd firstboot`
#[derive(Debug, Args)]
pub struct FirstbootArgs {
    /// Read the MachineConfig in FILE, and leave FILE as it is
    ///
    /// Without it: /etc/ignition-machine-config-encapsulated.json, which Ignition leaves on a
    /// cluster's machine, else /etc/mcd/firstboot.yaml. That file is renamed when the machine is
    /// what it asks for.
    #[arg(long, value_name = "FILE")]
    pub machineconfig_file: Option<PathBuf>,
    /// Try once, and end with the error
    ///
    /// Otherwise it tries again until the machine is what is asked for: kubelet waits behind it.
    #[arg(long)]
    pub once: bool,
    /// How to reboot: auto (the default), full, soft or never
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub reboot: RebootArg,
    /// Run again what was carried out or rolled back; override inhibitors
    #[arg(long)]
    pub force: bool,
    /// Fetching.
    #[command(flatten)]
    pub fetch: FetchArgs,
    /// Print JSON on stdout: one line per event
    #[arg(long)]
    pub json: bool,
}

/// `machine-config-daemon firstboot-complete-machineconfig`
#[derive(Debug, Args)]
pub struct OldFirstbootArgs {
    /// Read the MachineConfig in FILE
    #[arg(long, value_name = "FILE")]
    pub machineconfig_file: Option<PathBuf>,
    /// Accepted without effect: the host's own root is meant
    #[arg(long, hide = true, value_name = "DIR")]
    pub root_mount: Option<PathBuf>,
    /// Accepted without effect, and said: names of network interfaces are left to the OS
    #[arg(long, hide = true)]
    pub persist_nics: bool,
}

/// `mcd doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The OS image, spelled as for pivot; else the one that runs
    #[arg(value_name = "IMAGE")]
    pub image: Option<String>,
    /// Fetching.
    #[command(flatten)]
    pub fetch: FetchArgs,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}
