//! Which `containers-auth.json(5)` a registry is asked with.
//!
//! `--authfile`, else the first of [`PLACES`] that holds anything, else nobody's: anonymous. Root's
//! home is never looked at, neither here nor by skopeo: what an administrator logged in to by hand
//! must not decide what a machine can update from. skopeo 1.9.3 goes on to `$HOME` and `$XDG_…` even
//! after a file that it was given, hence [`super::skopeo::command`] gives it no home at all.
//!
//! A place counts as empty, and the next one is looked at, when there is no file, a link that leads
//! nowhere, 0 bytes, or no entry in it (`{}`, `{"auths":{}}`): removed pull secrets look like each
//! of these. A file that is broken or too large is passed by with a warning: a file that nobody can
//! use must not stop an update that may need none, and if one was needed, the registry's 401 comes
//! right after the warning that explains it. No content of these files is ever printed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Result;
use cap_std::fs::Dir;
use containers_image_proxy::ImageProxyConfig;
use rustix::fs::{CWD, Mode, OFlags};
use serde_json::Value;

use crate::error::Fault;
use crate::model::event::{Event, EventSink};

/// Where a host keeps credentials, most specific first: OSTree's own (rpm-ostree and bootc look in
/// both), what `podman login` of root writes, the node's pull secret.
pub const PLACES: [&str; 4] = [
    "/run/ostree/auth.json",
    "/etc/ostree/auth.json",
    "/run/containers/0/auth.json",
    "/var/lib/kubelet/config.json",
];

/// The largest file that is read: the API server takes no larger secret.
const MAX_SIZE: u64 = 1 << 20;

/// With whose credentials registries are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Nobody's.
    Anonymous,
    /// Those in this file.
    File(PathBuf),
}

/// What an auth file is good for.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    Usable,
    /// Nothing is in it.
    Empty,
    /// It is not what it should be, in words without any of its content.
    Broken(String),
}

impl Credentials {
    /// The credentials to use: `explicit` (from the command line), or the first usable of [`PLACES`]
    /// below `root`, which is that of the running machine.
    ///
    /// An explicit file that is missing or broken is an error; one without entries means anonymous.
    pub fn find(explicit: Option<&Path>, root: &Dir, sink: &dyn EventSink) -> Result<Self> {
        if let Some(path) = explicit {
            return Ok(Self::explicit(path)?);
        }
        for place in PLACES {
            let content = match super::read_small(root, place.trim_start_matches('/'), MAX_SIZE) {
                Ok(content) => judge(&content),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    continue;
                }
                Err(error) => Content::Broken(format!("it cannot be used: {error}")),
            };
            match content {
                Content::Usable => return Ok(Self::File(PathBuf::from(place))),
                Content::Empty => {}
                Content::Broken(why) => sink.event(Event::Warning {
                    message: format!("credentials in {place} are passed by: {why}"),
                }),
            }
        }
        Ok(Self::Anonymous)
    }

    /// Those in this file; none: anonymous. What [`Credentials::into_path`] gave.
    pub fn from_authfile(authfile: Option<PathBuf>) -> Self {
        authfile.map_or(Self::Anonymous, Self::File)
    }

    /// The file, if there is one.
    pub fn authfile(&self) -> Option<&Path> {
        match self {
            Self::Anonymous => None,
            Self::File(path) => Some(path),
        }
    }

    /// The file, if there is one.
    pub fn into_path(self) -> Option<PathBuf> {
        match self {
            Self::Anonymous => None,
            Self::File(path) => Some(path),
        }
    }

    /// Has a proxy use these credentials and no others.
    pub fn configure(&self, config: &mut ImageProxyConfig) {
        config.auth_data = None;
        config.authfile = self.authfile().map(Path::to_owned);
        config.auth_anonymous = config.authfile.is_none();
    }

    fn explicit(path: &Path) -> Result<Self, Fault> {
        let refuse = |why: String| {
            Fault::usage(format!("the credentials in {} cannot be used", path.display())).why(why).next(
                "give --authfile a file as `podman login --authfile` writes it; one that holds \
                     {} means anonymous",
            )
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|error| refuse(io::Error::from(error).to_string()))?;
        let content =
            super::read_limited(File::from(file), MAX_SIZE).map_err(|error| refuse(error.to_string()))?;
        match judge(&content) {
            Content::Usable => Ok(Self::File(path.to_owned())),
            Content::Empty => Ok(Self::Anonymous),
            Content::Broken(why) => Err(refuse(why)),
        }
    }
}

fn judge(content: &[u8]) -> Content {
    if content.trim_ascii().is_empty() {
        return Content::Empty;
    }
    // Only the position is told: serde_json's own words may quote what it found.
    let json = match serde_json::from_slice::<Value>(content) {
        Ok(json) => json,
        Err(error) => {
            return Content::Broken(format!(
                "broken JSON at line {}, column {}",
                error.line(),
                error.column()
            ));
        }
    };
    let Value::Object(fields) = json else {
        return Content::Broken("it is not a JSON object".to_owned());
    };
    let mut found = false;
    for name in ["auths", "credHelpers", "credsStore"] {
        match fields.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Object(entries)) if name != "credsStore" => found |= !entries.is_empty(),
            Some(Value::String(helper)) if name == "credsStore" => found |= !helper.is_empty(),
            Some(_) => return Content::Broken(format!("\"{name}\" is not of the kind that it should be")),
        }
    }
    if found { Content::Usable } else { Content::Empty }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use cap_std::ambient_authority;

    use super::*;
    use crate::error::{ExitKind, to_fault};

    /// Nothing that has this in it may be printed.
    const SECRET: &str = "am9lOnMzY3IzdA==";

    #[derive(Default)]
    struct Warnings(Mutex<Vec<String>>);

    impl EventSink for Warnings {
        fn event(&self, event: Event) {
            if let Event::Warning { message } = event {
                self.0.lock().unwrap().push(message);
            }
        }
    }

    /// Files of a root, and the place that is chosen.
    type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);

    fn usable() -> String {
        format!("{{\"auths\":{{\"r.example\":{{\"auth\":\"{SECRET}\"}}}}}}")
    }

    /// What is found in a root that has these files; a content `-> TARGET` makes a link.
    fn found(files: &[(&str, &str)]) -> (Credentials, Vec<String>) {
        let temp = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
        for (path, content) in files {
            let path = path.trim_start_matches('/');
            root.create_dir_all(Path::new(path).parent().unwrap()).unwrap();
            match content.strip_prefix("-> ") {
                Some(target) => root.symlink_contents(target, path).unwrap(),
                None => root.write(path, content).unwrap(),
            }
        }
        let warnings = Warnings::default();
        let credentials = Credentials::find(None, &root, &warnings).unwrap();
        (credentials, warnings.0.into_inner().unwrap())
    }

    #[test]
    fn the_first_usable_place_wins() {
        let good = usable();
        let (run, etc, podman, kubelet) = (PLACES[0], PLACES[1], PLACES[2], PLACES[3]);
        let table: [Case<'_>; 10] = [
            (&[], None),
            (&[(run, &good), (etc, &good)], Some(run)),
            (&[(etc, &good), (kubelet, &good)], Some(etc)),
            (&[(run, "-> /nowhere"), (etc, ""), (podman, "{}"), (kubelet, &good)], Some(kubelet)),
            (&[(run, "{\"auths\":{}}"), (podman, &good)], Some(podman)),
            (&[(run, " \n"), (etc, "{\"auths\":null}")], None),
            (&[(run, "{\"credHelpers\":{\"r.example\":\"ecr\"}}")], Some(run)),
            (&[(run, "{\"credsStore\":\"secretservice\"}")], Some(run)),
            // An absolute link stays in the root.
            (&[(etc, "-> /var/lib/kubelet/config.json"), (kubelet, &good)], Some(etc)),
            // A file where a folder should be is as good as nothing.
            (&[("/run/ostree", ""), (kubelet, &good)], Some(kubelet)),
        ];
        for (files, expected) in table {
            let (credentials, warnings) = found(files);
            assert_eq!(credentials.authfile(), expected.map(Path::new), "{files:?}");
            assert_eq!(warnings, Vec::<String>::new(), "{files:?}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_passed_by_with_a_warning() {
        let good = usable();
        let large = format!("{{\"auths\":{{\"x\":\"{}\"}}}}", "y".repeat(1 << 20));
        for (content, part) in [
            (format!("{{\"auths\": {SECRET}"), "broken JSON at line 1, column"),
            (format!("\"{SECRET}\""), "not a JSON object"),
            (format!("{{\"auths\":\"{SECRET}\"}}"), "\"auths\""),
            (large, "larger than 1024 KiB"),
            ("-> auth.json".to_owned(), "it cannot be used"),
        ] {
            let (credentials, warnings) = found(&[(PLACES[0], &content), (PLACES[3], &good)]);
            assert_eq!(credentials, Credentials::File(PLACES[3].into()));
            let [warning] = &warnings[..] else { panic!("{warnings:?}") };
            assert!(warning.contains(PLACES[0]) && warning.contains(part), "{warning}");
            assert!(!warning.contains(SECRET), "{warning}");
        }
    }

    #[test]
    fn a_pipe_does_not_hang() {
        let temp = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
        root.create_dir_all("run/ostree").unwrap();
        rustix::fs::mknodat(&root, "run/ostree/auth.json", rustix::fs::FileType::Fifo, Mode::RUSR, 0)
            .unwrap();
        let warnings = Warnings::default();
        assert_eq!(Credentials::find(None, &root, &warnings).unwrap(), Credentials::Anonymous);
        assert!(warnings.0.into_inner().unwrap()[0].contains("not a regular file"));
    }

    #[test]
    fn an_explicit_file_is_used_or_refused() {
        let temp = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
        root.create_dir_all("etc/ostree").unwrap();
        root.write("etc/ostree/auth.json", usable()).unwrap();
        root.write("good", usable()).unwrap();
        root.write("none", "{}").unwrap();
        root.write("bad", format!("{{{SECRET}")).unwrap();
        let find = |name: &str| {
            Credentials::find(Some(&temp.path().join(name)), &root, &crate::model::event::Silent)
        };
        assert_eq!(find("good").unwrap(), Credentials::File(temp.path().join("good")));
        assert_eq!(find("none").unwrap(), Credentials::Anonymous);
        for name in ["missing", "bad", "."] {
            let fault = to_fault(&find(name).unwrap_err());
            assert_eq!(fault.kind, ExitKind::Usage);
            assert!(fault.what.contains(name) && !fault.to_string().contains(SECRET), "{fault:?}");
        }
    }

    #[test]
    fn a_proxy_gets_exactly_these() {
        let mut config = ImageProxyConfig::default();
        Credentials::File("/a".into()).configure(&mut config);
        assert_eq!((config.authfile.as_deref(), config.auth_anonymous), (Some(Path::new("/a")), false));
        Credentials::Anonymous.configure(&mut config);
        assert_eq!((config.authfile, config.auth_anonymous), (None, true));
    }
}
