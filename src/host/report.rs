//! The support bundle: what somebody needs who was not there. No content of a managed file is in it,
//! and every text loses what looks like a credential.

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use camino::Utf8Path;
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use fn_error_context::context;
use serde::Serialize;
use serde_json::{Value, json};

use super::child;
use super::health::last_told;
use super::now;
use super::sysroot::Host;
use super::trust::redact;
use crate::error::Fault;
use crate::model::manifest::Entry;
use crate::model::records::HISTORY_MAX;
use crate::model::status::DeploymentStatus;

/// Where a bundle goes that nobody named.
const FOLDER: &str = "/var/tmp";
/// Bytes of one text: its end is kept, where the newest is.
const TEXT_MAX: usize = 256 * 1024;
/// How long a program may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What programs know, and the file that it goes to.
const COMMANDS: [(&str, &[&str]); 14] = [
    ("journal-mcd.txt", &["journalctl", "--no-pager", "-n", "1500", "-o", "short-iso", "-u", "mcd-*"]),
    ("journal-mcd-program.txt", &["journalctl", "--no-pager", "-n", "1500", "-o", "short-iso", "_COMM=mcd"]),
    (
        "journal-ostree.txt",
        &[
            "journalctl",
            "--no-pager",
            "-n",
            "500",
            "-o",
            "short-iso",
            "-u",
            "ostree-finalize-staged.service",
            "-u",
            "ostree-boot-complete.service",
        ],
    ),
    (
        "journal-kubelet.txt",
        &["journalctl", "--no-pager", "-n", "200", "-o", "short-iso", "-u", "kubelet.service"],
    ),
    ("boots.txt", &["journalctl", "--no-pager", "--list-boots"]),
    ("failed-units.txt", &["systemctl", "--no-pager", "--failed", "--plain"]),
    ("jobs.txt", &["systemctl", "--no-pager", "list-jobs", "--plain"]),
    ("disk.txt", &["df", "-hT"]),
    ("inodes.txt", &["df", "-i"]),
    ("mounts.txt", &["findmnt", "--noheadings", "--list", "-o", "TARGET,SOURCE,FSTYPE,OPTIONS"]),
    ("version-ostree.txt", &["ostree", "--version"]),
    ("version-skopeo.txt", &["skopeo", "--version"]),
    ("version-systemd.txt", &["systemctl", "--version"]),
    ("version-kernel.txt", &["uname", "-srm"]),
];

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Where it is.
    pub path: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// What could not be read, and why.
    pub missing: Vec<String>,
}

/// What is collected on the way.
#[derive(Default)]
struct Bundle {
    files: Vec<(String, String)>,
    missing: Vec<String>,
}

/// Writes a bundle, readable by root only. `host` may be missing: a report is wanted most of all where
/// nothing works.
#[context("Writing the report")]
pub fn report(host: Result<Host>, output: Option<&Utf8Path>) -> Result<Report> {
    let stamp = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let named = format!("{FOLDER}/mcd-report-{stamp}-{}.tar.gz", std::process::id());
    let path = output.map_or(named.as_str(), Utf8Path::as_str);
    // First of all: a file that cannot be made is better known before half a minute of collecting.
    let file = create(Utf8Path::new(path))?;
    let mut bundle = Bundle::default();
    match host {
        Ok(host) => bundle.records(&host),
        Err(error) => bundle.missing.push(format!("the host: {error:#}")),
    }
    for (name, words) in COMMANDS {
        bundle.command(name, words);
    }
    let summary = json!({
        "version": 1,
        "mcd": env!("CARGO_PKG_VERSION"),
        "when": now(),
        "missing": bundle.missing,
    });
    bundle.json("report.json", &summary);
    let bytes = bundle.write(file)?;
    Ok(Report { path: path.to_owned(), bytes, missing: bundle.missing })
}

impl Bundle {
    fn records(&mut self, host: &Host) {
        self.result("status.json", host.status_with_config());
        self.result("boot-file.json", host.boots());
        if let Some(found) = last_told(host) {
            self.json("health.json", &serde_json::to_value(found).unwrap_or_default());
        }
        self.result("intent.json", host.intent());
        self.result("live.json", host.live().map(|live| live.map(|live| (live.id, live.state))));
        self.result(
            "history.json",
            host.history().map(|mut history| {
                let surplus = history.entries.len().saturating_sub(HISTORY_MAX);
                history.entries.split_off(surplus)
            }),
        );
        self.result("config.json", host.managed());
    }

    fn result(&mut self, name: &str, found: Result<impl Serialize>) {
        match found.and_then(|found| Ok(serde_json::to_value(found)?)) {
            Ok(value) => self.json(name, &value),
            Err(error) => self.missing.push(format!("{name}: {}", redact(&format!("{error:#}")))),
        }
    }

    fn json(&mut self, name: &str, value: &Value) {
        let mut value = value.clone();
        scrub_json(&mut value);
        let text = serde_json::to_string_pretty(&value).unwrap_or_default();
        // Scrubbed leaf by leaf: as a text, a quote would end what is hidden too early.
        self.files.push((name.to_owned(), text));
    }

    fn command(&mut self, name: &str, words: &[&str]) {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1");
        let ended = child::run(&mut command, TIMEOUT, &|| false);
        if !ended.passed {
            self.missing.push(format!("{name}: {}: {}", words[0], ended.said));
        }
        self.files.push((name.to_owned(), scrub(&ended.output)));
    }

    fn write(&self, file: cap_std_ext::cap_std::fs::File) -> Result<u64> {
        let mut archive =
            tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::default()));
        for (name, text) in &self.files {
            let text = end_of(text);
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(u64::try_from(now()).unwrap_or_default());
            archive.append_data(&mut header, format!("mcd-report/{name}"), text.as_bytes())?;
        }
        let mut file = archive.into_inner()?.finish()?;
        file.flush()?;
        file.sync_all()?;
        Ok(file.metadata()?.len())
    }
}

impl Host {
    /// What is managed on each deployment: where, not what.
    fn managed(&self) -> Result<Vec<Value>> {
        // Not the digest: that of a short secret tells it.
        let told = |entry: &Entry| {
            let node = serde_json::to_value(&entry.node).unwrap_or_default();
            json!({"path": entry.path, "source": entry.source, "kind": node["kind"], "mode": node["mode"]})
        };
        let of_one = |one: &DeploymentStatus| {
            let entries: Vec<Value> = self.configured(one)?.manifest.entries.iter().map(told).collect();
            Ok(json!({"deployment": one.name, "entries": entries}))
        };
        self.status()?.deployments.iter().map(of_one).collect()
    }
}

fn create(path: &Utf8Path) -> Result<cap_std_ext::cap_std::fs::File> {
    let refuse = |why: String| {
        Fault::failed(format!("the report cannot be written to {path}"))
            .why(why)
            .next("name another file, which does not exist yet: `mcd report --output FILE`")
    };
    let name = path.file_name().ok_or_else(|| refuse("that is no name of a file".to_owned()))?;
    let folder = path.parent().filter(|folder| !folder.as_str().is_empty()).unwrap_or(Utf8Path::new("."));
    let folder =
        Dir::open_ambient_dir(folder, ambient_authority()).map_err(|error| refuse(error.to_string()))?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    Ok(folder.open_with(name, &options).map_err(|error| refuse(error.to_string()))?)
}

/// The end of a text that is too long.
fn end_of(text: &str) -> &str {
    let mut start = text.len().saturating_sub(TEXT_MAX);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

fn scrub_json(value: &mut Value) {
    match value {
        Value::String(text) => *text = scrub(text),
        Value::Array(values) => values.iter_mut().for_each(scrub_json),
        Value::Object(fields) => fields.values_mut().for_each(scrub_json),
        _ => {}
    }
}

/// `text` without credentials: what the redaction of messages finds, private keys, and tokens that
/// stand alone.
fn scrub(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut is_key = false;
    for line in redact(text).split_inclusive('\n') {
        if line.contains("-----BEGIN") && line.contains("PRIVATE KEY") {
            is_key = true;
            clean.push_str("<private key hidden>\n");
        }
        if !is_key {
            let words = line.split_inclusive([' ', '\t', '"', '\'', '\n']).map(hide_token);
            clean.extend(words);
        }
        is_key = is_key && !line.contains("-----END");
    }
    clean
}

/// A JSON web token begins with the base64 of `{"`.
fn hide_token(word: &str) -> String {
    match word.find("eyJ") {
        Some(at) if word.len() - at > 30 && word[at..].contains('.') => format!("{}<hidden> ", &word[..at]),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_at_home() {
        let text = "one\n-----BEGIN RSA PRIVATE KEY-----\ns3cr3t\n-----END RSA PRIVATE KEY-----\ntwo password=s3cr3t1\n\
                    got eyJhbGciOiJSUzI1NiJ9.s3cr3ts3cr3ts3cr3t.abc from it\n";
        let clean = scrub(text);
        assert!(!clean.contains("s3cr3t"), "{clean}");
        assert!(clean.contains("one\n") && clean.contains("two") && clean.contains("from it"), "{clean}");
        let mut value = json!({"a": ["https://joe:s3cr3t@r.example/v2"]});
        scrub_json(&mut value);
        assert!(!value.to_string().contains("s3cr3t"), "{value}");
    }

    #[test]
    fn it_works_where_nothing_does_and_replaces_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(scratch.path()).unwrap().join("bundle.tar.gz");
        let broken = || Err(Fault::failed("this is not an OSTree host").into());
        let done = report(broken(), Some(&path)).unwrap();
        assert!(done.missing[0].contains("not an OSTree host"), "{done:?}");
        assert!(done.bytes > 0);
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o777, 0o600);
        let listed = Command::new("tar").arg("-tzf").arg(&path).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(
            listed.contains("mcd-report/report.json") && listed.contains("mcd-report/disk.txt"),
            "{listed}"
        );
        let again = report(broken(), Some(&path)).unwrap_err();
        assert!(crate::error::to_fault(&again).what.contains("cannot be written"), "{again:#}");
    }
}
