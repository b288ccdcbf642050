//! What every story begins with: the installed host, its registry, a machine.

use std::path::Path;
use std::sync::OnceLock;

use mcd_test_support::registry::Registry;
use mcd_test_support::vm::agent::Said;
use mcd_test_support::vm::installation::Installation;
use mcd_test_support::vm::machine::Machine;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mcd");
const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// The host of the program under test; the first caller makes it.
pub(super) fn installation() -> &'static Installation {
    static INSTALLATION: OnceLock<Installation> = OnceLock::new();
    INSTALLATION.get_or_init(|| Installation::find_or_make(Path::new(PROGRAM), Path::new(SOURCE)).unwrap())
}

/// A machine with version 1, off, and a registry that has version 2.
pub(super) struct World {
    pub(super) machine: Machine,
    registry: Registry,
}

impl World {
    pub(super) fn new() -> Self {
        let installation = installation();
        Self { machine: Machine::install(installation).unwrap(), registry: installation.registry().unwrap() }
    }

    /// What the guest calls an image.
    pub(super) fn image(&self, name: &str) -> String {
        Installation::seen_by_guest(&self.registry, name)
    }

    /// What this machine calls it.
    pub(super) fn local_image(&self, name: &str) -> String {
        self.registry.image(name)
    }

    /// `mcd pivot` to an image, with more arguments. The registry speaks plain HTTP.
    #[track_caller]
    pub(super) fn pivot(&mut self, name: &str, arguments: &str) -> Said {
        let image = self.image(name);
        self.does(&format!("mcd pivot {image} --insecure-skip-tls-verification {arguments}"))
    }

    /// Runs a command, which must succeed.
    #[track_caller]
    pub(super) fn does(&mut self, command: &str) -> Said {
        let said = self.machine.run(command).unwrap();
        assert_eq!(said.code, 0, "{command}: {}{}", said.stdout, said.stderr);
        said
    }

    /// What `mcd status --json` says.
    #[track_caller]
    pub(super) fn status(&mut self) -> Value {
        serde_json::from_str(&self.does("mcd status --json").stdout).unwrap()
    }

    /// The version of the OS that runs, as its os-release says.
    #[track_caller]
    pub(super) fn version(&mut self) -> String {
        self.does(". /etc/os-release; echo -n $VERSION_ID").stdout
    }

    /// No unit has failed.
    #[track_caller]
    pub(super) fn nothing_failed(&mut self) {
        let failed = self.does("systemctl list-units --failed --plain --no-legend").stdout;
        assert_eq!(failed, "", "{}", self.machine.console());
    }
}
