//! The parser of image references. Every refusal says which part is wrong and why.
//!
//! Grammars: the distribution spec (repository names, tags), the reference grammar of the container
//! tools (hosts), the OCI image spec's `org.opencontainers.image.ref.name` (names in a layout), and
//! `containers-transports(5)` (prefixes). What may be a password is never repeated.

use std::str::FromStr;

use super::{ImageReference, InvalidReference, OsImage, Transport, Verification};
use crate::model::digest::Digest;

/// `HOST/NAME` together: the limit that the distribution spec names for clients.
const NAME_LENGTH_MAX: usize = 255;
/// Distribution spec: one character and up to 127 more.
const TAG_LENGTH_MAX: usize = 128;
/// Longest path that Linux opens, in bytes; also keeps messages within reason.
const PATH_LENGTH_MAX: usize = 4096;
/// What a digest starts with, also one that will be refused: anything else after an `@` may be the
/// host after a password.
const DIGEST_ALGORITHMS: [&str; 3] = ["sha256:", "sha384:", "sha512:"];
/// Transports of skopeo that hold no OS image, or none that can be read layer by layer.
const FOREIGN_TRANSPORTS: [&str; 9] =
    ["dir", "docker-archive", "docker-daemon", "atomic", "ostree", "sif", "tarball", "http", "https"];
const TRANSPORTS: &str = "docker://, oci:, oci-archive: or containers-storage:";
const OSTREE_SPELLINGS: &str = "ostree-unverified-registry:, ostree-unverified-image:, ostree-image-signed:, \
                                ostree-remote-registry:REMOTE: or ostree-remote-image:REMOTE:";

/// A refusal: the part and why.
type Part<T> = Result<T, String>;

impl FromStr for OsImage {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        guarded(text, os_image)
    }
}

impl FromStr for ImageReference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        guarded(text, bare_image)
    }
}

/// Refuses what must not even be repeated, then parses.
fn guarded<T>(text: &str, parse: fn(&str) -> Part<T>) -> Result<T, InvalidReference> {
    let refuse = |text: String, reason: String| Err(InvalidReference { text, reason });
    if text.is_empty() {
        return refuse(String::new(), "it is empty".to_owned());
    }
    if let Some((shown, reason)) = hide_credential(text) {
        return refuse(printable(&shown), reason.to_owned());
    }
    if text.chars().any(char::is_control) {
        return refuse(printable(text), "it holds a control character".to_owned());
    }
    if text.len() > PATH_LENGTH_MAX {
        let start: String = text.chars().take(60).collect();
        return refuse(format!("{start}…"), format!("it is longer than {PATH_LENGTH_MAX} bytes"));
    }
    parse(text).or_else(|reason| refuse(text.to_owned(), reason))
}

/// Control characters made harmless for a terminal.
fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().take(PATH_LENGTH_MAX).map(escape).collect()
}

/// Where an `@` is not followed by a digest, what stands before it may be a credential: the text
/// without that, and the reason.
fn hide_credential(text: &str) -> Option<(String, &'static str)> {
    let body = match text.split_once(':') {
        Some((head, rest)) if head.starts_with("ostree-remote-") => {
            rest.split_once(':').map_or(rest, |(_, body)| body)
        }
        Some((head, rest)) if head.starts_with("ostree-") => rest,
        _ => text,
    };
    let paths = [Transport::OciDir, Transport::OciArchive, Transport::ContainersStorage];
    if paths.iter().any(|transport| body.starts_with(transport.prefix())) {
        return None;
    }
    let is_digest = |tail: &str| DIGEST_ALGORITHMS.iter().any(|name| tail.starts_with(name));
    let (last, _) = body.match_indices('@').rfind(|(at, _)| !is_digest(&body[at + 1..]))?;
    // Only a scheme before the first `@` may stay.
    let first = body.find('@').unwrap_or(last);
    let keep = body[..first].find("://").map_or(0, |at| at + "://".len());
    let reason = if body[keep..last].contains('/') && !body[keep..last].contains(':') {
        "digest: what follows '@' must be sha256: and 64 hex digits"
    } else {
        "host: a user name or password does not belong in a reference; give it with --authfile"
    };
    let head = &text[..text.len() - body.len()];
    Some((format!("{head}{}…{}", &body[..keep], &body[last..]), reason))
}

fn os_image(text: &str) -> Part<OsImage> {
    let Some((head, rest)) = text.split_once(':').filter(|(head, _)| head.starts_with("ostree-")) else {
        return Ok(bare_image(text)?.into());
    };
    let (verification, image) = match head {
        "ostree-unverified-registry" => (Verification::PolicyOnly, registry_only(rest)?),
        "ostree-unverified-image" => (Verification::PolicyOnly, with_transport(rest)?),
        "ostree-image-signed" => (Verification::Signed, with_transport(rest)?),
        "ostree-remote-registry" => {
            let (remote, rest) = remote(rest)?;
            (Verification::OstreeRemote(remote), registry_only(rest)?)
        }
        "ostree-remote-image" => {
            let (remote, rest) = remote(rest)?;
            (Verification::OstreeRemote(remote), with_transport(rest)?)
        }
        // A registry's host may be called so: `ostree-mirror:5000/os`.
        _ if rest.starts_with(|c: char| c.is_ascii_digit()) => return Ok(bare_image(text)?.into()),
        _ => {
            return Err(format!(
                "transport '{head}:' is unknown; the OSTree spellings are {OSTREE_SPELLINGS}"
            ));
        }
    };
    Ok(OsImage { verification, image })
}

/// `REMOTE:REST`, for an OSTree remote's name.
fn remote(text: &str) -> Part<(String, &str)> {
    let Some((name, rest)) = text.split_once(':') else {
        return Err(format!("remote '{text}': expected REMOTE:IMAGE, with the name of an OSTree remote"));
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(allowed) || name.starts_with(['-', '.']) {
        return Err(format!(
            "remote '{name}': a name of an OSTree remote is letters, digits, '_', '-' and '.'"
        ));
    }
    Ok((name.to_owned(), rest))
}

/// What follows `ostree-…-registry:`. Older tools left `docker://` in it.
fn registry_only(text: &str) -> Part<ImageReference> {
    registry(text.strip_prefix("docker://").unwrap_or(text))
}

/// What follows `ostree-…-image:` or `ostree-image-signed:`: the transport must be written.
fn with_transport(text: &str) -> Part<ImageReference> {
    // Older tools' own name of the registry transport.
    if let Some(name) = text.strip_prefix("registry:") {
        return registry(name);
    }
    match known_transport(text)? {
        Some((transport, rest)) => of_transport(transport, rest),
        None => Err(format!("transport: none is written before '{text}'; expected {TRANSPORTS}")),
    }
}

/// An image as container tools spell it; without a transport it is in a registry.
fn bare_image(text: &str) -> Part<ImageReference> {
    match known_transport(text)? {
        Some((transport, rest)) => of_transport(transport, rest),
        None => registry(text),
    }
}

/// The transport that is written, if one is; an error for one that cannot be used.
fn known_transport(text: &str) -> Part<Option<(Transport, &str)>> {
    let known = [Transport::Registry, Transport::OciDir, Transport::OciArchive, Transport::ContainersStorage];
    for transport in known {
        if let Some(rest) = text.strip_prefix(transport.prefix()) {
            return Ok(Some((transport, rest)));
        }
    }
    let Some((head, rest)) = text.split_once(':') else {
        return Ok(None);
    };
    if head == "docker" {
        return Err("transport 'docker:' is written docker://".to_owned());
    }
    if FOREIGN_TRANSPORTS.contains(&head) || rest.starts_with("//") {
        return Err(format!("transport '{head}:' holds no OS image; expected {TRANSPORTS}"));
    }
    Ok(None)
}

fn of_transport(transport: Transport, rest: &str) -> Part<ImageReference> {
    match transport {
        Transport::Registry => registry(rest),
        Transport::OciDir | Transport::OciArchive => layout(transport, rest),
        Transport::ContainersStorage => storage(rest),
    }
}

/// `host[:port]/name[:tag][@digest]`.
fn registry(text: &str) -> Part<ImageReference> {
    let (text, digest) = split_digest(text)?;
    let Some((host, path)) = text.split_once('/') else {
        return Err(short_name(text));
    };
    if host.is_empty() {
        return Err("host: there is none before the first '/'".to_owned());
    }
    if !host.contains(['.', ':']) && host != "localhost" {
        return Err(short_name(host));
    }
    check_host(host)?;
    let (path, tag) = split_tag(path)?;
    path.split('/').try_for_each(check_component)?;
    let location = format!("{host}/{path}");
    check_length(&location)?;
    Ok(ImageReference { transport: Transport::Registry, location, tag, digest })
}

fn short_name(text: &str) -> String {
    format!(
        "host: '{text}' is not a registry's host (no '.', no port, not localhost), and short names are \
         ambiguous; write REGISTRY/NAME"
    )
}

/// `…@digest`, at most one.
fn split_digest(text: &str) -> Part<(&str, Option<Digest>)> {
    match text.split_once('@') {
        None => Ok((text, None)),
        Some((rest, digest)) => Ok((rest, Some(digest.parse().map_err(|error| format!("{error}"))?))),
    }
}

/// `…:tag` after the last `/`.
fn split_tag(path: &str) -> Part<(&str, Option<String>)> {
    let last = path.rfind('/').map_or(0, |at| at + 1);
    let Some(colon) = path[last..].find(':') else {
        return Ok((path, None));
    };
    let tag = &path[last + colon + 1..];
    check_tag(tag)?;
    Ok((&path[..last + colon], Some(tag.to_owned())))
}

fn check_tag(tag: &str) -> Part<()> {
    if tag.is_empty() {
        return Err("tag: it is empty".to_owned());
    }
    if tag.len() > TAG_LENGTH_MAX {
        return Err(format!("tag: it is longer than {TAG_LENGTH_MAX} characters"));
    }
    if tag.starts_with(['.', '-']) {
        return Err(format!("tag '{tag}': it may not start with '.' or '-'"));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    match tag.chars().find(|&c| !allowed(c)) {
        Some(c) => Err(format!("tag '{tag}': '{c}' is not allowed; letters, digits, '_', '.' and '-' are")),
        None => Ok(()),
    }
}

fn check_host(text: &str) -> Part<()> {
    let (host, port) = if let Some(inside) = text.strip_prefix('[') {
        let Some((address, after)) = inside.split_once(']') else {
            return Err(format!("host '{text}': the ']' of the IPv6 address is missing"));
        };
        if address.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("host '{text}': '{address}' is not an IPv6 address"));
        }
        match after.strip_prefix(':') {
            None if after.is_empty() => return Ok(()),
            None => return Err(format!("host '{text}': only ':PORT' may follow the ']'")),
            port => (None, port),
        }
    } else {
        match text.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(text), None),
        }
    };
    if let Some(host) = host {
        host.split('.').try_for_each(|label| check_label(host, label))?;
    }
    match port {
        Some(port) => check_port(port),
        None => Ok(()),
    }
}

fn check_label(host: &str, label: &str) -> Part<()> {
    if label.is_empty() {
        return Err(format!("host '{host}': one of its parts is empty"));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(format!("host '{host}': '{label}' starts or ends with '-'"));
    }
    match label.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
        Some(c) => Err(format!("host '{host}': '{c}' is not allowed; letters, digits, '-' and '.' are")),
        None => Ok(()),
    }
}

fn check_port(port: &str) -> Part<()> {
    let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if !is_number || !port.parse::<u16>().is_ok_and(|number| number > 0) {
        return Err(format!("port '{port}': expected a number from 1 to 65535"));
    }
    Ok(())
}

/// Lower-case letters and digits, with `.`, `_`, `__` or dashes between them.
fn check_component(component: &str) -> Part<()> {
    let refuse = |why: String| Err(format!("name component '{component}': {why}"));
    if component.is_empty() {
        return refuse("it is empty (two '/' in a row, or one at the end)".to_owned());
    }
    if component.chars().any(|c| c.is_ascii_uppercase()) {
        return refuse("upper-case letters are not allowed in a name".to_owned());
    }
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if let Some(c) = component.chars().find(|&c| !is_word(c) && !matches!(c, '.' | '_' | '-')) {
        return refuse(format!("'{c}' is not allowed; lower-case letters, digits, '.', '_' and '-' are"));
    }
    if !component.starts_with(is_word) || !component.ends_with(is_word) {
        return refuse("it must start and end with a letter or digit".to_owned());
    }
    let separators = component.split(is_word).filter(|separator| !separator.is_empty());
    for separator in separators {
        if !matches!(separator, "." | "_" | "__") && !separator.bytes().all(|b| b == b'-') {
            return refuse(format!("'{separator}' cannot stand between letters; '.', '_', '__' or '-' can"));
        }
    }
    Ok(())
}

fn check_length(name: &str) -> Part<()> {
    if name.len() > NAME_LENGTH_MAX {
        let length = name.len();
        return Err(format!(
            "name: host and name are {length} characters long, at most {NAME_LENGTH_MAX} work"
        ));
    }
    Ok(())
}

/// `PATH[:name][@digest]`.
fn layout(transport: Transport, text: &str) -> Part<ImageReference> {
    let (text, digest) = match text.rsplit_once("@sha256:") {
        Some((rest, hex)) => {
            (rest, Some(format!("sha256:{hex}").parse().map_err(|error| format!("{error}"))?))
        }
        None => (text, None),
    };
    let (path, tag) = match text.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (text, None),
    };
    if path.is_empty() {
        return Err(format!("path: there is none after '{transport}'"));
    }
    if path.trim() != path {
        return Err(format!("path '{path}': it starts or ends with white space"));
    }
    if let Some(tag) = tag {
        check_layout_tag(tag)?;
    }
    Ok(ImageReference { transport, location: path.to_owned(), tag: tag.map(str::to_owned), digest })
}

/// OCI image spec, annotation `org.opencontainers.image.ref.name`: words of letters and digits,
/// with one of `-._:@+`, or `--`, between them, in components parted by `/`.
fn check_layout_tag(tag: &str) -> Part<()> {
    let refuse = |why: &str| Err(format!("tag '{tag}': {why}"));
    if tag.is_empty() {
        return Err("tag: it is empty".to_owned());
    }
    let is_word = |c: char| c.is_ascii_alphanumeric();
    for component in tag.split('/') {
        if !component.starts_with(is_word) || !component.ends_with(is_word) {
            return refuse("each part of a name in a layout starts and ends with a letter or digit");
        }
        let mut separators = component.split(is_word).filter(|separator| !separator.is_empty());
        let known = ["-", ".", "_", ":", "@", "+", "--"];
        if separators.any(|separator| !known.contains(&separator)) {
            return refuse(
                "between letters and digits only one of '-', '.', '_', ':', '@', '+', or '--', may stand",
            );
        }
    }
    Ok(())
}

/// `[STORE]NAME[:tag][@digest]`. Names are local here, so short ones are unambiguous.
fn storage(text: &str) -> Part<ImageReference> {
    let (store, name) = match text.strip_prefix('[') {
        None => ("", text),
        Some(inside) => match inside.find(']') {
            None => return Err("path: the ']' that ends the store is missing".to_owned()),
            Some(0) => return Err("path: the store between '[' and ']' is empty".to_owned()),
            Some(end) => text.split_at(end + 2),
        },
    };
    let (name, digest) = split_digest(name)?;
    if name.is_empty() {
        return Err("name component: there is no name".to_owned());
    }
    let (name, tag) = split_tag(name)?;
    let path = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => {
            check_host(host)?;
            path
        }
        _ => name,
    };
    path.split('/').try_for_each(check_component)?;
    check_length(name)?;
    let transport = Transport::ContainersStorage;
    Ok(ImageReference { transport, location: format!("{store}{name}"), tag, digest })
}
