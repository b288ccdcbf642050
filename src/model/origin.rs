//! What a deployment's origin file tells: where the deployment comes from.
//!
//! The file is a key file beside the deployment. Keys of other tools: group `origin`,
//! `container-image-reference` (ostree-ext, rpm-ostree, bootc), or `refspec` / `baserefspec` for a
//! deployment that comes from a plain OSTree remote, or `custom-url` where a tool named a source of
//! its own (`pivot://IMAGE@DIGEST` is the old pivot's); libostree keeps its pin in
//! `libostree-transient`. Ours are in the group `mcd`; other tools copy groups that they do not
//! know, so a deployment that they make still carries our id.
//!
//! Nothing here reads or writes a file: the caller gives a look-up of keys.

use super::digest::Digest;
use super::image_ref::OsImage;

/// The group that OSTree tools share.
pub const GROUP_ORIGIN: &str = "origin";
/// The image, as [`OsImage`] prints it.
pub const KEY_IMAGE: &str = "container-image-reference";
/// The group of ours.
pub const GROUP_MCD: &str = "mcd";
/// The id of the change that made the deployment; records name it.
pub const KEY_ID: &str = "id";
/// The digest that was asked for, where it is not the manifest's: that of an index.
pub const KEY_ASKED_DIGEST: &str = "asked-digest";
/// The digest of the manifest that was imported.
pub const KEY_MANIFEST_DIGEST: &str = "manifest-digest";
/// libostree's own group, not copied to the next deployment.
pub const GROUP_TRANSIENT: &str = "libostree-transient";
/// `true` in [`GROUP_TRANSIENT`]: the deployment is pinned.
pub const KEY_PINNED: &str = "pinned";

/// Sources that are no container image, the most telling first.
const KEYS_OTHER: [&str; 3] = ["custom-url", "refspec", "baserefspec"];
/// How the old pivot spelled an image in `custom-url`.
const PIVOT_SCHEME: &str = "pivot://";

/// What an origin tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The image, if one is named in a way that can be read.
    pub image: Option<OsImage>,
    /// What it says instead of an image, as it stands there: a refspec, another tool's source, an
    /// image reference that cannot be read.
    pub other: Option<String>,
    /// Our id of the change that made the deployment.
    pub id: Option<String>,
    /// The digest that was asked for.
    pub asked_digest: Option<Digest>,
    /// The digest of the manifest that was imported. Only ours name it; for another tool's
    /// deployment the commit's metadata does.
    pub digest: Option<Digest>,
    /// Whether libostree keeps the deployment until it is unpinned.
    pub pinned: bool,
}

impl Origin {
    /// Reads an origin through a look-up of (group, key). Never fails: what cannot be read is
    /// shown in [`Self::other`], or absent.
    pub fn from_keys(get: impl Fn(&str, &str) -> Option<String>) -> Self {
        let text = |group: &str, key: &str| {
            get(group, key).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let digest = |key: &str| text(GROUP_MCD, key)?.parse::<Digest>().ok();
        let written = text(GROUP_ORIGIN, KEY_IMAGE);
        let (image, other) = match written {
            Some(written) => match written.parse::<OsImage>() {
                Ok(image) => (Some(image), None),
                // Not as written: it may hold a password.
                Err(invalid) => (None, Some(invalid.text)),
            },
            None => {
                let other = KEYS_OTHER.iter().find_map(|key| text(GROUP_ORIGIN, key));
                let pivoted = other.as_deref().and_then(|other| other.strip_prefix(PIVOT_SCHEME));
                (pivoted.and_then(|pullspec| pullspec.parse().ok()), other)
            }
        };
        let written_digest = image.as_ref().and_then(|image| image.image.digest.clone());
        Self {
            asked_digest: digest(KEY_ASKED_DIGEST).or(written_digest),
            digest: digest(KEY_MANIFEST_DIGEST),
            id: text(GROUP_MCD, KEY_ID),
            pinned: text(GROUP_TRANSIENT, KEY_PINNED).as_deref() == Some("true"),
            image,
            other,
        }
    }

    /// Whether the deployment is what this digest asks for: it was asked for so, or resolved to it.
    pub fn has_digest(&self, digest: &Digest) -> bool {
        [&self.asked_digest, &self.digest].into_iter().flatten().any(|own| own == digest)
    }

    /// The keys of the group [`GROUP_MCD`] and their values, to be written. Absent ones are to be
    /// removed.
    pub fn own_keys(&self) -> [(&'static str, Option<String>); 3] {
        [
            (KEY_ID, self.id.clone()),
            (KEY_ASKED_DIGEST, self.asked_digest.as_ref().map(ToString::to_string)),
            (KEY_MANIFEST_DIGEST, self.digest.as_ref().map(ToString::to_string)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn origin(keys: &[(&str, &str, &str)]) -> Origin {
        Origin::from_keys(|group, key| {
            let found = keys.iter().find(|(own_group, own_key, _)| (*own_group, *own_key) == (group, key));
            found.map(|(_, _, value)| (*value).to_owned())
        })
    }

    fn digest(number: u8) -> Digest {
        Digest::from_raw([number; 32])
    }

    #[test]
    fn ours() {
        let (asked, resolved) = (digest(1), digest(2));
        let seen = origin(&[
            ("origin", "container-image-reference", "ostree-image-signed:docker://quay.io/os:1"),
            ("mcd", "id", "20261130-1"),
            ("mcd", "asked-digest", asked.as_str()),
            ("mcd", "manifest-digest", resolved.as_str()),
            ("libostree-transient", "pinned", "true"),
        ]);
        assert_eq!(seen.image.as_ref().unwrap().to_string(), "ostree-image-signed:docker://quay.io/os:1");
        assert_eq!((seen.id.as_deref(), seen.pinned), (Some("20261130-1"), true));
        assert!(seen.has_digest(&asked) && seen.has_digest(&resolved) && !seen.has_digest(&digest(3)));
        let own: Vec<String> = seen.own_keys().into_iter().filter_map(|(_, value)| value).collect();
        assert_eq!(own, ["20261130-1", asked.as_str(), resolved.as_str()]);
    }

    #[test]
    fn of_other_tools() {
        let written = format!("ostree-unverified-registry:quay.io/os@{}", digest(1));
        let seen = origin(&[("origin", "container-image-reference", &written)]);
        assert!(seen.has_digest(&digest(1)) && seen.id.is_none() && seen.other.is_none() && !seen.pinned);

        let seen = origin(&[("origin", "refspec", "debian:12/x86_64/standard")]);
        assert_eq!((seen.image, seen.other.as_deref()), (None, Some("debian:12/x86_64/standard")));

        let url = format!("pivot://quay.io/os@{}", digest(2));
        let seen = origin(&[("origin", "custom-url", &url), ("origin", "refspec", "0011")]);
        assert!(seen.has_digest(&digest(2)));
        assert_eq!((seen.image.unwrap().image.location.as_str(), seen.other), ("quay.io/os", Some(url)));
    }

    #[test]
    fn what_cannot_be_read_is_shown_or_absent() {
        let seen = origin(&[
            ("origin", "container-image-reference", "ostree-unverified-image:dir:/srv/os"),
            ("mcd", "manifest-digest", "latest"),
            ("mcd", "id", " "),
            ("libostree-transient", "pinned", "false"),
        ]);
        let expected =
            Origin { other: Some("ostree-unverified-image:dir:/srv/os".to_owned()), ..Origin::default() };
        assert_eq!(seen, expected);
        let seen = origin(&[("origin", "container-image-reference", "docker://me:s3cret@quay.io/os")]);
        assert_eq!(seen.other.as_deref(), Some("docker://…@quay.io/os"));
        assert_eq!(origin(&[]), Origin::default());
    }

    proptest! {
        #[test]
        fn written_keys_are_read_again(id in "[a-z0-9-]{1,12}", asked in any::<Option<[u8; 32]>>(), resolved in any::<[u8; 32]>()) {
            let written = Origin {
                id: Some(id),
                asked_digest: asked.map(Digest::from_raw),
                digest: Some(Digest::from_raw(resolved)),
                ..Origin::default()
            };
            let keys = written.own_keys();
            let read = Origin::from_keys(|group, key| {
                let own = keys.iter().find(|(name, _)| group == GROUP_MCD && *name == key);
                own.and_then(|(_, value)| value.clone())
            });
            prop_assert_eq!(read, written);
        }
    }
}
