//! The host's policies: the built-in ones and `/etc/mcd/policy.d`.

use std::io::Read as _;

use anyhow::{Context as _, Result};
use cap_std_ext::RootDir;
use cap_std_ext::cap_std::fs::{Dir, File};
use fn_error_context::context;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::error::Fault;
use crate::model::policy::{POLICY_FOLDER, Policies};

/// A policy file is a few kilobytes; a larger one is something else.
const LARGEST: u64 = 1 << 20;

/// Reads them below a root: every `*.yaml` and `*.yml`, in the order of their names.
///
/// # Errors
///
/// A [`Fault`] that names file and field: a policy file with a mistake is never left out in silence,
/// for what it says might be "do not reboot".
#[context("Reading the disruption policy")]
pub fn policies(root: &Dir) -> Result<Policies> {
    let mut policies = Policies::built_in();
    for name in names(root)? {
        let bytes = read(root, &name).map_err(|error| refused(&name, format!("{error:#}")))?;
        policies.add(&name, &bytes).map_err(|invalid| refused(&name, invalid.to_string()))?;
    }
    Ok(policies)
}

fn names(root: &Dir) -> Result<Vec<String>> {
    let folder = match RootDir::new(root, ".")?.read_dir(POLICY_FOLDER) {
        Ok(folder) => folder,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("Listing /{POLICY_FOLDER}")),
    };
    let mut names = Vec::new();
    for entry in folder {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let is_policy = !name.starts_with('.') && (name.ends_with(".yaml") || name.ends_with(".yml"));
        if is_policy {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn read(root: &Dir, name: &str) -> Result<Vec<u8>> {
    // A FIFO of that name must not stop mcd.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(root, format!("{POLICY_FOLDER}/{name}"), flags, Mode::empty(), resolve)?;
    let file = File::from_std(file.into());
    anyhow::ensure!(file.metadata()?.is_file(), "it is no file");
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(bytes.len() as u64 <= LARGEST, "it is larger than a policy can be");
    Ok(bytes)
}

fn refused(name: &str, why: String) -> Fault {
    Fault::refused(format!("/{POLICY_FOLDER}/{name} cannot be used"))
        .why(why)
        .next("correct it, or move it out of the folder")
}

#[cfg(test)]
mod tests {
    use camino::Utf8Path;
    use cap_std_ext::cap_std::ambient_authority;

    use super::*;
    use crate::error::{ExitKind, to_fault};
    use crate::model::policy::{Action, Origin};

    fn root() -> (tempfile::TempDir, Dir) {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Dir::open_ambient_dir(folder.path(), ambient_authority()).expect("it is there");
        (folder, root)
    }

    fn with(files: &[(&str, &str)]) -> (tempfile::TempDir, Dir) {
        let (folder, root) = root();
        root.create_dir_all(POLICY_FOLDER).expect("a folder");
        for (name, text) in files {
            root.write(format!("{POLICY_FOLDER}/{name}"), text).expect("a file");
        }
        (folder, root)
    }

    fn one(action: &str) -> String {
        format!("files: [{{path: /etc/a, actions: [{{type: {action}}}]}}]\n")
    }

    #[test]
    fn without_a_folder_the_defaults_hold() {
        assert_eq!(policies(&root().1).expect("no error"), Policies::built_in());
    }

    #[test]
    fn files_are_read_by_name_and_later_ones_replace() {
        let (_folder, root) = with(&[
            ("30-b.yaml", &one("Drain")),
            ("20-a.yaml", &one("Reboot")),
            ("9-first.yml", &one("DaemonReload")),
            (".40-hidden.yaml", "no: policy"),
            ("50-c.yaml.bak", "no: policy"),
            ("README", "no: policy"),
        ]);
        let policies = policies(&root).expect("no error");
        let (_, policy) = policies.of_path(Utf8Path::new("/etc/a")).expect("it has one");
        assert_eq!(policy.actions, [Action::DaemonReload], "9 comes after 3: names, not numbers");
        assert_eq!(policy.origin, Origin::File("9-first.yml".to_owned()));
    }

    #[test]
    fn a_mistake_names_file_and_field() {
        let (_folder, root) = with(&[("10-good.yaml", &one("None")), ("20-bad.yaml", &one("Nothing"))]);
        let fault = to_fault(&policies(&root).expect_err("it is wrong"));
        assert_eq!(fault.kind, ExitKind::Refused);
        assert_eq!(fault.what, "/etc/mcd/policy.d/20-bad.yaml cannot be used");
        assert!(fault.why.expect("why").starts_with("20-bad.yaml: files[0].actions[0].type: must be one of"));
    }

    #[test]
    fn what_cannot_be_read_is_refused_and_links_stay_inside() {
        let (_folder, root) = with(&[]);
        root.symlink("/etc/elsewhere", format!("{POLICY_FOLDER}/10-x.yaml").as_str()).expect_err("absolute");
        rustix::fs::symlinkat("/etc/elsewhere.yaml", &root, format!("{POLICY_FOLDER}/10-x.yaml"))
            .expect("a link");
        assert!(policies(&root).is_err(), "the link leads nowhere");
        root.write("etc/elsewhere.yaml", one("None")).expect("a file");
        policies(&root).expect("an absolute link leads to a file of the same root");

        let fifo = format!("{POLICY_FOLDER}/20-fifo.yaml");
        rustix::fs::mknodat(&root, &fifo, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .expect("a FIFO");
        assert!(policies(&root).is_err());
        root.remove_file(&fifo).expect("it is there");
        root.create_dir(format!("{POLICY_FOLDER}/30-folder.yaml")).expect("a folder");
        assert!(policies(&root).is_err());
        root.remove_dir(format!("{POLICY_FOLDER}/30-folder.yaml")).expect("it is there");
        root.write(format!("{POLICY_FOLDER}/40-large.yaml"), vec![b' '; LARGEST as usize + 1])
            .expect("a file");
        assert!(policies(&root).is_err());
    }
}
