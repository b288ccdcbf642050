//! What `registries.conf(5)` says about a registry, to name it in messages.
//!
//! skopeo obeys that file: mirrors, insecure and blocked registries. Its own error for a missing
//! image does not always say which mirrors it was sent to, nor in which file; this reads the file
//! only to tell. What cannot be read or understood is therefore left out, never an error.

use cap_std::fs::Dir;
use serde::Deserialize;

use crate::model::image_ref::ImageReference;

/// The main file, then the folder whose `*.conf` files, by name, override it.
const FILE: &str = "etc/containers/registries.conf";
const FOLDER: &str = "etc/containers/registries.conf.d";

/// Far above any real file: fleets with hundreds of mirror entries stay below 100 KiB.
const MAX_SIZE: u64 = 1 << 20;

/// Where the container tools fetch an image from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Nothing may be fetched from this registry.
    pub blocked: bool,
    /// The mirrors that are tried first, in order.
    pub mirrors: Vec<String>,
    /// The place that stands for the registry itself, if it is another.
    pub location: Option<String>,
    /// The file that says so.
    pub file: Option<String>,
}

impl Candidates {
    /// One sentence for a message, if anything is configured: "… tries a, b first".
    pub fn describe(&self) -> Option<String> {
        let file = self.file.as_ref()?;
        if self.blocked {
            return Some(format!("{file} blocks this registry"));
        }
        let told = match (&self.mirrors[..], &self.location) {
            ([], None) => return None,
            ([], Some(location)) => format!("sends this image to {location}"),
            (mirrors, None) => format!("tries {} first", mirrors.join(", ")),
            (mirrors, Some(location)) => format!("tries {} first, then {location}", mirrors.join(", ")),
        };
        Some(format!("{file} {told}"))
    }
}

#[derive(Debug, Default, Deserialize)]
struct Configuration {
    #[serde(default)]
    registry: Vec<Registry>,
}

#[derive(Debug, Deserialize)]
struct Registry {
    prefix: Option<String>,
    location: Option<String>,
    #[serde(default)]
    blocked: bool,
    #[serde(default)]
    mirror: Vec<Mirror>,
}

#[derive(Debug, Deserialize)]
struct Mirror {
    location: String,
}

impl Registry {
    /// The part of an image's name that makes this entry apply.
    fn prefix(&self) -> &str {
        self.prefix
            .as_deref()
            .filter(|prefix| !prefix.is_empty())
            .or(self.location.as_deref())
            .unwrap_or_default()
    }
}

/// What is configured for the registry of `image` on the machine whose root is `root`.
pub fn configured_candidates(root: &Dir, image: &ImageReference) -> Candidates {
    let mut found: Option<(String, Registry)> = None;
    for file in files(root) {
        let Ok(content) = super::read_small(root, &file, MAX_SIZE) else { continue };
        let Ok(text) = std::str::from_utf8(&content) else { continue };
        let configuration: Configuration = match toml::from_str(text) {
            Ok(configuration) => configuration,
            Err(error) => {
                tracing::debug!("/{file} is left out: {}", error.message());
                continue;
            }
        };
        for registry in
            configuration.registry.into_iter().filter(|registry| covers(registry.prefix(), &image.location))
        {
            // The longest prefix wins, and a later file overrides an earlier one.
            if found.as_ref().is_none_or(|(_, known)| registry.prefix().len() >= known.prefix().len()) {
                found = Some((file.clone(), registry));
            }
        }
    }
    let Some((file, registry)) = found else {
        return Candidates::default();
    };
    Candidates {
        blocked: registry.blocked,
        mirrors: registry.mirror.iter().map(|mirror| mirror.location.clone()).collect(),
        location: registry.location.clone().filter(|location| location != registry.prefix()),
        file: Some(format!("/{file}")),
    }
}

fn files(root: &Dir) -> Vec<String> {
    let mut files = Vec::new();
    if let Ok(entries) = root.read_dir(FOLDER) {
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        files.extend(names.filter(|name| name.ends_with(".conf")).map(|name| format!("{FOLDER}/{name}")));
    }
    files.sort();
    files.insert(0, FILE.to_owned());
    files
}

/// Whether an entry's prefix covers a repository: whole path components, or `*.domain`.
fn covers(prefix: &str, name: &str) -> bool {
    if let Some(domain) = prefix.strip_prefix("*.") {
        let host = name.split(['/', ':']).next().unwrap_or_default();
        return host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    }
    !prefix.is_empty()
        && name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;
    use crate::model::image_ref::Transport;

    fn candidates(files: &[(&str, &str)], location: &str) -> Candidates {
        let temp = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
        root.create_dir_all(FOLDER).unwrap();
        for (name, content) in files {
            root.write(name, content).unwrap();
        }
        let image = ImageReference {
            transport: Transport::Registry,
            location: location.to_owned(),
            tag: None,
            digest: None,
        };
        configured_candidates(&root, &image)
    }

    #[test]
    fn the_longest_prefix_and_the_last_file_win() {
        let main = "[[registry]]\nlocation = \"quay.io\"\nblocked = true\n\
                    [[registry]]\nprefix = \"quay.io/os\"\nlocation = \"quay.io/os\"\n\
                    [[registry.mirror]]\nlocation = \"m1:5000/os\"\n[[registry.mirror]]\nlocation = \"m2/os\"\ninsecure = true\n\
                    [[registry]]\nprefix = \"*.corp.example\"\nlocation = \"hub.example\"\n";
        let dropin = "[[registry]]\nlocation = \"quay.io/os\"\n[[registry.mirror]]\nlocation = \"m3/os\"\n";
        let late = format!("{FOLDER}/90.conf");
        let files = [(FILE, main), (late.as_str(), dropin)];
        assert_eq!(candidates(&files[..1], "quay.io/os/node").mirrors, ["m1:5000/os", "m2/os"]);
        assert_eq!(candidates(&files, "quay.io/os").mirrors, ["m3/os"]);
        assert_eq!(
            candidates(&files, "quay.io/os").file.as_deref(),
            Some("/etc/containers/registries.conf.d/90.conf")
        );
        assert!(candidates(&files, "quay.io/osx").blocked);
        assert_eq!(candidates(&files, "a.corp.example:5000/os").location.as_deref(), Some("hub.example"));
        assert_eq!(candidates(&files, "corp.example/os"), Candidates::default());
    }

    #[test]
    fn descriptions() {
        let of = |text: &str| candidates(&[(FILE, text)], "quay.io/os").describe();
        let entry = "[[registry]]\nlocation = \"quay.io\"\n";
        assert_eq!(of(entry), None);
        assert!(
            of(&format!("{entry}blocked = true")).unwrap().ends_with("registries.conf blocks this registry")
        );
        let mirror = "[[registry.mirror]]\nlocation = \"m/os\"\n";
        assert_eq!(
            of(&format!("{entry}{mirror}")).unwrap(),
            "/etc/containers/registries.conf tries m/os first"
        );
        let moved = "[[registry]]\nprefix = \"quay.io\"\nlocation = \"hub.example\"\n";
        assert!(of(moved).unwrap().ends_with("sends this image to hub.example"));
        assert!(of(&format!("{moved}{mirror}")).unwrap().ends_with("tries m/os first, then hub.example"));
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        assert_eq!(candidates(&[], "quay.io/os"), Candidates::default());
        assert_eq!(candidates(&[(FILE, "[[registry")], "quay.io/os"), Candidates::default());
    }
}
