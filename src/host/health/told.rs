//! What this boot's checks found, for `mcd status` and for people who log in. Both die with the boot.

use anyhow::Result;
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::{Dir, Permissions, PermissionsExt as _};
use fn_error_context::context;

use crate::host::boot_note;
use crate::host::durable::RemoveFile as _;
use crate::host::sysroot::Host;
use crate::model::health::{HealthStatus, Verdict};

const FOLDER: &str = "mcd";
const FILE: &str = "health.json";
/// pam_motd shows what is in this folder at a login, on Debian and on Fedora alike.
const MOTD_FOLDER: &str = "motd.d";
const MOTD: &str = "50-mcd";
/// Beside it: the other one is replaced with each verdict.
const MOTD_OF_BOOT: &str = "51-mcd-boot";

/// What the checks of this boot found; none where they were not run yet.
pub fn read(host: &Host) -> Option<HealthStatus> {
    if !host.is_booted() {
        return None;
    }
    let text = run(host).ok()?.open_dir(FOLDER).ok()?.read_to_string(FILE).ok()?;
    serde_json::from_str(&text).ok()
}

/// Says it: to programs in `/run/mcd/health.json`, and to people at their login, if there is something
/// that they should know.
#[context("Writing what the health checks found to /run")]
pub fn tell(host: &Host, found: &HealthStatus, motd: Option<&str>) -> Result<()> {
    let run = run(host)?;
    put(&run, FOLDER, FILE, &serde_json::to_string(found)?)?;
    let note = found.deployment.as_ref().map(boot_note::read).unwrap_or_default();
    if found.verdict == Some(Verdict::Good) && !note.unconverged {
        // What the boot said before the verdict is over.
        run.remove_file_if_there(&format!("{MOTD_FOLDER}/{MOTD_OF_BOOT}"))?;
    }
    match motd {
        Some(text) => put(&run, MOTD_FOLDER, MOTD, text),
        None => Ok(run.remove_file_if_there(&format!("{MOTD_FOLDER}/{MOTD}")).map(drop)?),
    }
}

/// Says to people at their login why the boot went on although something is wrong.
#[context("Writing to /run/{MOTD_FOLDER}")]
pub fn tell_at_login(text: &str) -> Result<()> {
    let run = Dir::open_ambient_dir("/run", ambient_authority())?;
    put(&run, MOTD_FOLDER, MOTD_OF_BOOT, text)
}

/// What this boot found is over: the next one begins with the same `/run`.
pub fn forget(host: &Host) -> Result<()> {
    let run = run(host)?;
    run.remove_file_if_there(&format!("{MOTD_FOLDER}/{MOTD_OF_BOOT}"))?;
    Ok(run.remove_file_if_there(&format!("{FOLDER}/{FILE}")).map(drop)?)
}

fn run(host: &Host) -> Result<Dir> {
    Ok(host.running_root()?.open_dir("run")?)
}

/// Replaces a file that everybody may read.
fn put(run: &Dir, folder: &str, name: &str, text: &str) -> Result<()> {
    run.create_dir_all(folder)?;
    let folder = run.open_dir(folder)?;
    let temporary = format!(".{name}.new");
    folder.write(&temporary, text)?;
    folder.set_permissions(&temporary, Permissions::from_mode(0o644))?;
    Ok(folder.rename(&temporary, &folder, name)?)
}
