//! The old host API: files with which an administrator, Ignition or an older cluster asks for a
//! change.
//!
//! * `/etc/pivot/image-pullspec`: the image; white space around it does not count.
//! * `/etc/pivot/kernel-args`: lines `ADD ARGUMENT` and `DELETE ARGUMENT`.
//! * `/run/pivot/reboot-needed`: an empty file; it is there when a reboot is wanted.
//!
//! Source: the stand-alone `pivot` (2018–2019) and the `pivot` verb of the Go daemon until 4.6.
//! Both allowed only `nosmt` on some systems and compared by substring, so that `nosmt` was taken
//! for present in `nosmt=force`; here any argument is allowed and compared as a whole.
//!
//! A request lives in `/etc`, which a rollback brings back. So it has a digest, by which the boot
//! file remembers that it was carried out.

use super::digest::Digest;
use super::image_ref::{InvalidReference, OsImage};
use super::kargs::KargEdit;

/// Holds the image, seen from the root.
pub const IMAGE_PULLSPEC: &str = "etc/pivot/image-pullspec";
/// Holds the changes of kernel arguments, seen from the root.
pub const KERNEL_ARGUMENTS: &str = "etc/pivot/kernel-args";
/// Asks for a reboot by being there, seen from the root.
pub const REBOOT_NEEDED: &str = "run/pivot/reboot-needed";
/// Largest request file that is read, in bytes. They hold a line or a few.
pub const REQUEST_SIZE_MAX: u64 = 64 * 1024;
/// Characters of a bad line that a warning repeats.
const LINE_SHOWN_MAX: usize = 80;

/// What a file of kernel arguments asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelArgumentsRequest {
    /// The changes in the order of their lines: [`KargEdit::AppendIfMissing`] and
    /// [`KargEdit::DeleteExact`] only, so that asking again changes nothing.
    pub edits: Vec<KargEdit>,
    /// What could not be used: each names its line.
    pub warnings: Vec<String>,
}

/// Reads the text of an image request.
///
/// # Errors
///
/// The reference is malformed, or there is none.
pub fn parse_image_pullspec(text: &str) -> Result<OsImage, InvalidReference> {
    text.trim().parse()
}

/// Reads the text of a kernel argument request. A line that is not understood, or asks for what is
/// refused, becomes a warning, as it always has: the others still count. Blank lines are nothing.
pub fn parse_kernel_arguments(text: &str) -> KernelArgumentsRequest {
    let mut request = KernelArgumentsRequest::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        match parse_line(line) {
            Ok(edit) => request.edits.push(edit),
            Err(reason) => {
                let shown = line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
                let shown: String = shown.take(LINE_SHOWN_MAX).collect();
                let number = index + 1;
                request.warnings.push(format!("/{KERNEL_ARGUMENTS}, line {number}: '{shown}': {reason}"));
            }
        }
    }
    request
}

fn parse_line(line: &str) -> Result<KargEdit, String> {
    let expected = "expected 'ADD ARGUMENT' or 'DELETE ARGUMENT'";
    let Some((verb, argument)) = line.split_once([' ', '\t']) else {
        return Err(expected.to_owned());
    };
    let argument = argument.trim().to_owned();
    let edit = match verb {
        "ADD" => KargEdit::AppendIfMissing(argument),
        "DELETE" => KargEdit::DeleteExact(argument),
        _ => return Err(expected.to_owned()),
    };
    edit.check().map_err(|invalid| invalid.reason)?;
    Ok(edit)
}

/// The identity of a request: the same for any spelling of the files that asks for the same.
/// Nothing where nothing is asked for.
pub fn request_digest(image_pullspec: Option<&str>, kernel_arguments: Option<&str>) -> Option<Digest> {
    let image = image_pullspec.map(str::trim).filter(|text| !text.is_empty());
    let edits = kernel_arguments.map(|text| parse_kernel_arguments(text).edits).unwrap_or_default();
    if image.is_none() && edits.is_empty() {
        return None;
    }
    let mut canonical = String::from("mcd host request 1\n");
    if let Some(image) = image {
        canonical.push_str(&format!("IMAGE {image}\n"));
    }
    for edit in edits {
        let verb = if matches!(edit, KargEdit::DeleteExact(_)) { "DELETE" } else { "ADD" };
        canonical.push_str(&format!("{verb} {}\n", edit.text()));
    }
    Some(Digest::of(canonical.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::KargEdit::{AppendIfMissing, DeleteExact};
    use super::*;
    use crate::model::kargs::KernelArguments;

    #[test]
    fn the_pullspec_is_trimmed() {
        for text in ["quay.io/os:1", "quay.io/os:1\n", "\n\t quay.io/os:1 \r\n"] {
            let image = parse_image_pullspec(text).unwrap();
            assert_eq!(image.to_string(), "ostree-unverified-registry:quay.io/os:1");
        }
        for (text, part) in
            [("\n", "it is empty"), ("a.b/c d", "' ' is not allowed"), ("://dummy", "transport")]
        {
            let error = parse_image_pullspec(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn lines_of_kernel_arguments() {
        for (text, edits) in [
            ("", vec![]),
            ("\n  \n", vec![]),
            ("ADD nosmt", vec![AppendIfMissing("nosmt".into())]),
            ("ADD  a=1 \r\nDELETE\tb=2\n", vec![AppendIfMissing("a=1".into()), DeleteExact("b=2".into())]),
            ("  DELETE nosmt\n", vec![DeleteExact("nosmt".into())]),
            ("ADD foo=\"a b\"", vec![AppendIfMissing("foo=\"a b\"".into())]),
        ] {
            let request = parse_kernel_arguments(text);
            assert_eq!((request.edits, request.warnings), (edits, Vec::<String>::new()), "{text}");
        }
    }

    #[test]
    fn bad_lines_are_named_and_the_others_count() {
        let text = "# why\nADD a\nadd b\nADD\nADDx c\nDELETE ostree=/x\nADD d\u{1b}[1m\nADD \"e\nDELETE f";
        let request = parse_kernel_arguments(text);
        assert_eq!(request.edits, [AppendIfMissing("a".into()), DeleteExact("f".into())]);
        let expected = [
            "/etc/pivot/kernel-args, line 1: '# why': expected 'ADD ARGUMENT' or 'DELETE ARGUMENT'",
            "/etc/pivot/kernel-args, line 3: 'add b': expected 'ADD ARGUMENT' or 'DELETE ARGUMENT'",
            "/etc/pivot/kernel-args, line 4: 'ADD': expected 'ADD ARGUMENT' or 'DELETE ARGUMENT'",
            "/etc/pivot/kernel-args, line 5: 'ADDx c': expected 'ADD ARGUMENT' or 'DELETE ARGUMENT'",
            "/etc/pivot/kernel-args, line 6: 'DELETE ostree=/x': 'ostree=' is set by OSTree for each deployment and cannot be changed",
            "/etc/pivot/kernel-args, line 7: 'ADD d\u{fffd}[1m': it holds a line end or another control character",
            "/etc/pivot/kernel-args, line 8: 'ADD \"e': a double quote is never closed",
        ];
        assert_eq!(request.warnings, expected);
    }

    #[test]
    fn arguments_match_as_a_whole() {
        let request = parse_kernel_arguments("ADD nosmt\nDELETE quiet");
        let before = KernelArguments::parse("nosmt=force quiet=1 quiet");
        let once = before.apply(&request.edits).unwrap();
        assert_eq!(once.to_string(), "nosmt=force quiet=1 nosmt");
        assert_eq!(once.apply(&request.edits).unwrap(), once);
    }

    #[test]
    fn the_digest_is_of_what_is_asked() {
        let one = request_digest(Some("quay.io/os:1\n"), Some("ADD a\n\nDELETE b"));
        assert_eq!(one, request_digest(Some(" quay.io/os:1"), Some("ADD  a \nDELETE b\n# x\n")));
        // Pinned: a boot file that an older release wrote must still know the request.
        assert_eq!(one.unwrap(), Digest::of(b"mcd host request 1\nIMAGE quay.io/os:1\nADD a\nDELETE b\n"));
        for other in [
            (Some("quay.io/os:2"), Some("ADD a\nDELETE b")),
            (Some("quay.io/os:1"), Some("ADD a")),
            (Some("quay.io/os:1"), Some("DELETE b\nADD a")),
            (Some("quay.io/os:1"), None),
            (None, Some("ADD a\nDELETE b")),
        ] {
            assert_ne!(
                request_digest(other.0, other.1),
                request_digest(Some("quay.io/os:1"), Some("ADD a\nDELETE b"))
            );
        }
        for nothing in [(None, None), (Some(" \n"), Some("\n")), (None, Some("nonsense"))] {
            assert_eq!(request_digest(nothing.0, nothing.1), None);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let request = parse_kernel_arguments(&text);
            prop_assert!(KernelArguments::default().apply(&request.edits).is_ok());
            let _ = parse_image_pullspec(&text);
        }

        #[test]
        fn every_line_is_an_edit_or_a_warning(lines in proptest::collection::vec("(ADD|DELETE|x)? ?[a-z\"=]{1,5}", 0..6)) {
            let request = parse_kernel_arguments(&lines.join("\n"));
            let blank = lines.iter().filter(|line| line.trim().is_empty()).count();
            prop_assert_eq!(request.edits.len() + request.warnings.len() + blank, lines.len());
        }
    }
}
