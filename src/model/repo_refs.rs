//! Names of refs in the host's OSTree repo, shared with the other tools that store OS images there.
//!
//! * `ostree/container/blob/KEY`: one layer, by the digest of its (compressed) blob.
//! * `ostree/container/image/KEY`: one image, by transport and name as skopeo spells them.
//!
//! A key is escaped so that any text is a valid ref: ASCII letters, digits and `-` stand for
//! themselves, `_` is doubled, a `/` stays where a letter or digit is before it and something is
//! after it, and everything else is `_HEX_`, the code point in upper-case hex of two or more digits.
//! Source: the on-disk contract of ostree-ext, which rpm-ostree and bootc follow.

use super::digest::Digest;
use super::image_ref::ImageReference;

/// Before the escaped digest of a layer's blob.
pub const BLOB_PREFIX: &str = "ostree/container/blob/";
/// Before the escaped transport and name of an image.
pub const IMAGE_PREFIX: &str = "ostree/container/image/";
/// Before refs that other tools set to protect the base of a build; their images are never pruned.
pub const BASE_IMAGE_PREFIX: &str = "ostree/container/baseimage/";
/// Before every ref of ours: they hold the commits that our records name.
pub const OWN_PREFIX: &str = "mcd/";

/// The ref that holds a layer.
pub fn blob_ref(digest: &Digest) -> String {
    format!("{BLOB_PREFIX}{}", escape_ref(digest.as_str()))
}

/// The ref that holds an image's merge commit.
pub fn image_ref(image: &ImageReference) -> String {
    format!("{IMAGE_PREFIX}{}", escape_ref(&image.ref_key()))
}

/// The layer that a ref holds; nothing for any other ref.
pub fn blob_of_ref(name: &str) -> Option<Digest> {
    unescape_ref(name.strip_prefix(BLOB_PREFIX)?)?.parse().ok()
}

/// The image that a ref holds; nothing for any other ref, or one whose image cannot be spelled
/// (another tool's transport).
pub fn image_of_ref(name: &str) -> Option<ImageReference> {
    unescape_ref(name.strip_prefix(IMAGE_PREFIX)?)?.parse().ok()
}

/// Escapes a key. The empty text stays empty, which is no ref: no digest or image is empty.
pub fn escape_ref(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len() * 2);
    let mut after_word = false;
    let mut rest = key.chars().peekable();
    while let Some(c) = rest.next() {
        let is_last = rest.peek().is_none();
        let is_word = c.is_ascii_alphanumeric();
        match c {
            _ if is_word || c == '-' => escaped.push(c),
            '_' => escaped.push_str("__"),
            '/' if after_word && !is_last => escaped.push(c),
            _ => escaped.push_str(&format!("_{:02X}_", u32::from(c))),
        }
        after_word = is_word;
    }
    escaped
}

/// The inverse of [`escape_ref`]; nothing for a text that it cannot have made.
pub fn unescape_ref(escaped: &str) -> Option<String> {
    let mut key = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '_' {
            key.push(c);
            continue;
        }
        let (hex, after) = rest.split_once('_')?;
        rest = after;
        if hex.is_empty() {
            key.push('_');
        } else {
            key.push(char::from_u32(u32::from_str_radix(hex, 16).ok()?)?);
        }
    }
    // What is escaped in another way than ours (lower-case hex, a letter in hex) names nothing: a
    // ref that is found must be the one that would be written.
    (escape_ref(&key) == escaped).then_some(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_as_other_tools_write_them() {
        for (key, escaped) in [
            ("docker://host/os:tag", "docker_3A__2F__2F_host/os_3A_tag"),
            ("docker://quay.io/a-b/c_d:1", "docker_3A__2F__2F_quay_2E_io/a-b/c__d_3A_1"),
            ("docker://h:5/o@sha256:ab", "docker_3A__2F__2F_h_3A_5/o_40_sha256_3A_ab"),
            ("oci:/srv/os", "oci_3A__2F_srv/os"),
            ("oci:/srv/os/", "oci_3A__2F_srv/os_2F_"),
            ("a//b", "a/_2F_b"),
            ("a-/b", "a-_2F_b"),
            ("ä€", "_E4__20AC_"),
            ("😀", "_1F600_"),
            ("_5F_", "__5F__"),
        ] {
            assert_eq!(escape_ref(key), escaped);
            assert_eq!(unescape_ref(escaped).as_deref(), Some(key));
        }
    }

    #[test]
    fn refs_of_layers_and_images() {
        let digest = Digest::from_raw([0xab; 32]);
        let blob = blob_ref(&digest);
        assert_eq!(blob, format!("ostree/container/blob/sha256_3A_{}", "ab".repeat(32)));
        assert_eq!(blob_of_ref(&blob), Some(digest));
        let image: ImageReference = "quay.io/os:1".parse().unwrap();
        let name = image_ref(&image);
        assert_eq!(name, "ostree/container/image/docker_3A__2F__2F_quay_2E_io/os_3A_1");
        assert_eq!(image_of_ref(&name), Some(image));
        for other in ["ostree/container/blob/x", "ostree/0/1/0", "ostree/container/image/dir_3A__2F_x", &blob]
        {
            assert_eq!(image_of_ref(other), None, "{other}");
        }
        assert_eq!(blob_of_ref(&name), None);
    }

    #[test]
    fn what_cannot_have_been_written_is_refused() {
        for escaped in ["_", "a_3A", "_3a_", "_61_", "_110000_", "_D800_", "_+3A_", "/a", "a/", "ä", "_5F_"]
        {
            assert_eq!(unescape_ref(escaped), None, "{escaped}");
        }
    }

    proptest! {
        #[test]
        fn unescape_is_the_inverse(key in any::<String>()) {
            let escaped = escape_ref(&key);
            prop_assert!(escaped.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/')));
            prop_assert_eq!(unescape_ref(&escaped), Some(key));
        }

        #[test]
        fn two_keys_never_share_a_ref(one in "[a_/:5F]{0,6}", other in "[a_/:5F]{0,6}") {
            prop_assert_eq!(escape_ref(&one) == escape_ref(&other), one == other);
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = unescape_ref(&text);
        }
    }
}
