//! Contents of files: data URLs (RFC 2397), gzip, and the hash that they must have.
//!
//! A data URL is all data after its first comma. A general URL parser would cut it at the first `#`
//! (a shell script has one in its first line) and drop what it cannot decode, so it is taken apart
//! here.

use std::io::Read;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use flate2::read::MultiGzDecoder;

use super::document::Value;
use super::field::{Field, Object, Report};
use crate::model::config::{Blob, ContentHash, Contents};
use crate::model::digest::Digest;

/// The largest file that a config may bring: what gzip unpacks must end somewhere.
pub const CONTENT_MAX: u64 = 64 << 20;
/// All contents of a request together.
pub const CONTENTS_MAX: u64 = 256 << 20;

/// Padding may be left out, and the bits after the last byte may be anything, as in Go.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Ignition's resource: `source`, `compression`, `verification`. None where no source is written, or
/// where something is wrong.
pub(super) fn resource(value: Option<&Value<'_>>, at: &Field<'_>, report: &mut Report) -> Option<Contents> {
    let mut object = Object::read(value, at, report)?;
    let source = object.text("source", at, report);
    let compression = object.text("compression", at, report);
    let hash = object.object("verification", at, report).and_then(|mut verification| {
        let at = at.name("verification");
        let hash = verification.text("hash", &at, report).filter(|text| !text.is_empty());
        verification.end(&at, report);
        let hash = hash?.parse::<ContentHash>();
        hash.map_err(|reason| report.refuse(at.name("hash"), reason)).ok()
    });
    object.refuse(
        "httpHeaders",
        "headers are not sent; put the content itself here as a data URL",
        at,
        report,
    );
    object.end(at, report);
    let gzip = match compression {
        None | Some("") => false,
        Some("gzip") => true,
        Some(_) => {
            report.refuse(at.name("compression"), "only gzip is known; pack it so, or leave it plain");
            return None;
        }
    };
    contents(source?, gzip, hash, at, report)
}

fn contents(
    source: &str,
    gzip: bool,
    hash: Option<ContentHash>,
    at: &Field<'_>,
    report: &mut Report,
) -> Option<Contents> {
    let at_source = at.name("source");
    // Ignition's way to say that a file is empty.
    let scheme = if source.is_empty() { "data" } else { source.split(':').next().unwrap_or_default() };
    if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") {
        return remote(source, gzip, hash, &at_source, report);
    }
    if !scheme.eq_ignore_ascii_case("data") {
        let message = "it must be a data URL (data:,text or data:;base64,…), or http(s) with a hash";
        report.refuse(at_source, message);
        return None;
    }
    let packed = match source.is_empty() {
        true => Ok(Vec::new()),
        false => data_url(source),
    };
    let bytes = match packed {
        Ok(packed) if gzip && !packed.is_empty() => unpack(&packed, report),
        other => other,
    };
    let bytes = bytes.map_err(|reason| report.refuse(at_source, reason)).ok()?;
    if !within(bytes.len() as u64, &at_source, report) {
        return None;
    }
    if hash.is_some_and(|hash| !hash.fits(&bytes)) {
        report.refuse(at.name("verification").name("hash"), "the content does not have this hash");
        return None;
    }
    Some(Contents::Inline(bytes.into()))
}

fn remote(
    url: &str,
    gzip: bool,
    hash: Option<ContentHash>,
    at: &Field<'_>,
    report: &mut Report,
) -> Option<Contents> {
    if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        report.refuse(at, "an address holds no blanks and no line ends");
        return None;
    }
    if !has_host(url) {
        report.refuse(at, "an address is https://HOST/PATH or https://HOST:PORT/PATH");
        return None;
    }
    let Some(hash) = hash else {
        let message = "what is fetched must be known before: add verification.hash (sha256-HEX or \
                       sha512-HEX), or put the content itself here as a data URL";
        report.refuse(at, message);
        return None;
    };
    Some(Contents::Remote { url: url.to_owned(), hash, gzip })
}

/// Whether the part between `//` and the path names a host, and a port at most.
fn has_host(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let place = authority.rsplit('@').next().unwrap_or_default();
    // An IPv6 address has colons of its own, within brackets.
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let is_letter = |c: char| c.is_ascii_alphanumeric() || ".-_[]:".contains(c);
    !host.is_empty() && host.chars().all(is_letter) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Counts the bytes of all contents; says once that they are too many.
fn within(bytes: u64, at: &Field<'_>, report: &mut Report) -> bool {
    let before = report.unpacked;
    report.unpacked = before.saturating_add(bytes);
    if before <= CONTENTS_MAX && report.unpacked > CONTENTS_MAX {
        report.refuse(at, format!("all contents together are more than {} MiB", CONTENTS_MAX >> 20));
    }
    report.unpacked <= CONTENTS_MAX
}

fn unpack(packed: &[u8], report: &Report) -> Result<Vec<u8>, String> {
    let left = CONTENTS_MAX.saturating_sub(report.unpacked);
    gunzip(packed, CONTENT_MAX.min(left))
}

/// What gzip packed, in one or more members, if it is no more than `limit` bytes.
pub fn gunzip(packed: &[u8], limit: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut reader = MultiGzDecoder::new(packed).take(limit + 1);
    reader.read_to_end(&mut bytes).map_err(|_| {
        "it is not what gzip wrote, or it is cut off; drop compression or pack it anew".to_owned()
    })?;
    if bytes.len() as u64 > limit {
        return Err(format!("it unpacks to more than {} MiB", limit >> 20));
    }
    bytes.shrink_to_fit();
    Ok(bytes)
}

/// The data of a `data:` URL, whatever its media type says.
fn data_url(url: &str) -> Result<Vec<u8>, String> {
    let rest = url.get("data:".len()..).unwrap_or_default();
    let Some((kind, data)) = rest.split_once(',') else {
        return Err("a data URL has a comma before its data: data:,text or data:;base64,…".to_owned());
    };
    let is_base64 = kind.rsplit(';').next().is_some_and(|last| last.trim().eq_ignore_ascii_case("base64"));
    if !is_base64 {
        if data.bytes().any(|byte| byte.is_ascii_control()) {
            return Err("a data URL holds no line ends or other control characters: \
                        write them as %0A, or use base64"
                .to_owned());
        }
        return percent_decoded(data);
    }
    let plain = !data.bytes().any(|byte| byte == b'%' || byte.is_ascii_whitespace());
    let decoded = if plain {
        BASE64.decode(data)
    } else {
        let mut text = percent_decoded(data)?;
        text.retain(|byte| !byte.is_ascii_whitespace());
        BASE64.decode(text)
    };
    decoded.map_err(|_| "the data is not base64".to_owned())
}

/// `%41` is `A`; a plus sign is a plus sign.
fn percent_decoded(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("after a percent sign there must be two hex digits; \
                        the sign itself is %25"
                .to_owned());
        };
        bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
    }
    bytes.shrink_to_fit();
    Ok(bytes)
}

impl std::str::FromStr for ContentHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || "a hash is sha256- and 64 hex digits, or sha512- and 128".to_owned();
        let (kind, hex) = text.split_once('-').ok_or_else(refuse)?;
        let hex = hex.to_ascii_lowercase();
        let is_hex = |length| hex.len() == length && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        match kind {
            "sha256" if is_hex(64) => {
                format!("sha256:{hex}").parse::<Digest>().map(Self::Sha256).map_err(|_| refuse())
            }
            "sha512" if is_hex(128) => Ok(Self::Sha512(hex)),
            _ => Err(refuse()),
        }
    }
}

impl ContentHash {
    /// Whether these bytes have it.
    pub fn fits(&self, bytes: &[u8]) -> bool {
        use sha2::Digest as _;
        match self {
            Self::Sha256(digest) => Digest::of(bytes) == *digest,
            Self::Sha512(hex) => hex::encode(sha2::Sha512::digest(bytes)) == *hex,
        }
    }
}

/// Text that is written in place: units and drop-ins.
pub(super) fn unit_text(text: &str, at: &Field<'_>, report: &mut Report) -> Option<Blob> {
    if text.contains('\0') {
        report.refuse(at, "a unit holds no NUL");
        return None;
    }
    within(text.len() as u64, at, report).then(|| text.as_bytes().to_vec().into())
}
