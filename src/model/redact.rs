//! Takes credentials out of texts of other programs before a person or a log sees them.
//!
//! skopeo prints requests and answers of registries in its errors: user and password within an
//! address, headers, tokens, signed addresses of a content network. It is better to hide too much
//! than too little; names of hosts, images, digests and status codes stay.

/// Stands where something was hidden.
const HIDDEN: &str = "<hidden>";

/// Parameters of an address that are needed to understand an error and are never secret.
const HARMLESS_PARAMETERS: [&str; 4] = ["scope", "service", "ns", "digest"];

/// Words before a `:` or `=` whose value is secret, as the ends of longer names too
/// (`access_token`, `X-Registry-Auth`).
const SECRET_NAMES: [&str; 9] =
    ["password", "passwd", "passphrase", "secret", "token", "auth", "creds", "credentials", "cookie"];

/// `text` without credentials.
pub fn redact(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        clean.push_str(&redact_schemes(&redact_named(&redact_header(line))));
        clean.push_str(end);
    }
    clean
}

/// Hides all of a line that follows `Authorization`: the header's value has no certain end.
fn redact_header(line: &str) -> String {
    match find_ignoring_case(line, "authorization:").or_else(|| find_ignoring_case(line, "authorization\":"))
    {
        Some(at) => {
            let value = line[at..].find(':').map_or(line.len(), |colon| at + colon + 1);
            format!("{} {HIDDEN}", &line[..value])
        }
        None => line.to_owned(),
    }
}

/// Hides the values of `name=value`, `name: value` and `"name":"value"` with a secret name.
fn redact_named(line: &str) -> String {
    let mut clean = String::new();
    let mut rest = line;
    while let Some(at) = rest.find([':', '=']) {
        let name = rest[..at].trim_end_matches(['"', '\\', '\'']);
        let name =
            name.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default().to_ascii_lowercase();
        clean.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        if !SECRET_NAMES.iter().any(|secret| name.ends_with(secret)) {
            continue;
        }
        let start = rest.len() - rest.trim_start_matches([' ', '"', '\\', '\'']).len();
        let quoted = rest[..start].contains(['"', '\'']);
        let length = if quoted {
            rest[start..].find(['"', '\'', '\\'])
        } else {
            rest[start..].find([' ', ',', '&', ')', ']', '}'])
        };
        let length = length.unwrap_or(rest.len() - start);
        // An address or prose after a bare "auth:" is no value: what is secret in it, others find.
        let value = &rest[start..start + length];
        let prose = !quoted && (value.contains("://") || rest.starts_with(' ') && !looks_secret(value));
        if value.is_empty() || prose {
            continue;
        }
        clean.push_str(&rest[..start]);
        clean.push_str(HIDDEN);
        rest = &rest[start + length..];
    }
    clean.push_str(rest);
    clean
}

/// Hides what is secret in addresses, and tokens after `Bearer` and `Basic`.
fn redact_schemes(line: &str) -> String {
    let mut clean = String::new();
    let mut after_scheme = false;
    for word in line.split_inclusive([' ', '\t', '"', '\'', '[', ']', '(', ')', '<', ',']) {
        let end = word
            .char_indices()
            .next_back()
            .filter(|(_, c)| " \t\"'[](<,".contains(*c))
            .map_or(word.len(), |(at, _)| at);
        let (word, separator) = word.split_at(end);
        if after_scheme && looks_secret(word) {
            clean.push_str(HIDDEN);
        } else {
            clean.push_str(&redact_address(word));
        }
        after_scheme = ["bearer", "basic"].contains(&word.to_ascii_lowercase().as_str())
            || (after_scheme && word.is_empty());
        clean.push_str(separator);
    }
    clean
}

/// Whether a word is no word of a language: tokens have digits, capitals within, or padding.
fn looks_secret(word: &str) -> bool {
    let within = word.get(1..).unwrap_or_default();
    word.len() >= 6
        && !word.contains("realm=")
        && word.bytes().any(|b| b.is_ascii_digit() || b"=+._-".contains(&b))
        || (word.len() >= 6 && within.bytes().any(|b| b.is_ascii_uppercase()))
}

/// Hides user, password and all but harmless parameters of `scheme://…`.
fn redact_address(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    // Where the question mark is in a password, what follows is no query.
    let query_at = if has_password(rest) { rest.rfind('@').unwrap_or(0) } else { 0 };
    let query_at = rest[query_at..].find('?').map(|at| query_at + at);
    let (place, query) = query_at.map_or((rest, None), |at| (&rest[..at], Some(&rest[at + 1..])));
    let mut clean = format!("{scheme}://");
    match user_end(scheme, place) {
        Some(at) => {
            clean.push_str(HIDDEN);
            clean.push_str(&place[at..]);
        }
        None => clean.push_str(place),
    }
    if let Some(query) = query {
        clean.push('?');
        let parameters: Vec<String> = query.split('&').map(redact_parameter).collect();
        clean.push_str(&parameters.join("&"));
    }
    clean
}

/// Whether what should be `host[:port]` may be `user:password`. A port and a password of digits look
/// alike: then a name with `@` in the query costs the sight of the host, not a password.
fn has_password(rest: &str) -> bool {
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    host.contains([':', '@'])
}

/// Where `@host` begins. In an image reference `@` is also what stands before a digest.
fn user_end(scheme: &str, place: &str) -> Option<usize> {
    let searched = if scheme.ends_with("http") || scheme.ends_with("https") {
        // A password may hold an unescaped slash; no path of the registry protocol holds an `@`.
        place
    } else {
        place.split('/').next().unwrap_or(place)
    };
    searched.rfind('@').filter(|at| !place[at + 1..].starts_with("sha256:"))
}

fn redact_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((name, _)) if !HARMLESS_PARAMETERS.contains(&name) => format!("{name}={HIDDEN}"),
        _ => parameter.to_owned(),
    }
}

/// ASCII only, so that the place found is one in `text` itself.
fn find_ignoring_case(text: &str, wanted: &str) -> Option<usize> {
    text.to_ascii_lowercase().find(wanted)
}

#[cfg(test)]
mod tests {
    use super::redact;

    /// Every secret in the table has this in it.
    const SECRET: &str = "s3cr3t";

    #[test]
    fn secrets_go_and_facts_stay() {
        let table = [
            (
                "pinging container registry https://joe:s3cr3t@r.example:5000/v2/: 401",
                "r.example:5000/v2/: 401",
            ),
            ("Get \"http://joe:pa/s3cr3t@r.example/v2/\": EOF", "r.example/v2/\": EOF"),
            ("docker://joe:s3cr3t@r.example/os:1 is bad", "@r.example/os:1 is bad"),
            ("> Authorization: Basic czNjs3cr3tDpy", "Authorization:"),
            ("headers map[Authorization:[Bearer eyJs3cr3t.x.y] Accept:[a]]", "Authorization:"),
            ("sent Bearer eyJ0s3cr3t.eyJ.abc, got 403", "got 403"),
            (
                "Www-Authenticate: Bearer realm=\"https://a.example/t\",service=\"r\"",
                "realm=\"https://a.example/t\",service=\"r\"",
            ),
            (
                "Get \"https://cdn.example/b?X-Amz-Signature=s3cr3t&X-Amz-Date=1\": 403 Forbidden",
                "X-Amz-Date=<hidden>\": 403 Forbidden",
            ),
            (
                "Get \"https://a.example/token?account=s3cr3t&scope=repository%3Aos%3Apull&service=r\": 401",
                "scope=repository%3Aos%3Apull&service=r\": 401",
            ),
            ("body {\"auths\":{\"r.example\":{\"auth\":\"am9lOnM=s3cr3t\"}}}", "r.example"),
            ("body {\\\"access_token\\\":\\\"s3cr3t\\\",\\\"x\\\":1}", "x"),
            ("refresh_token=s3cr3t&x=1", "x=1"),
            ("password: s3cr3t", "password:"),
            ("https://joe:?s3cr3t@r.example/v2/: EOF", "@r.example/v2/: EOF"),
        ];
        for (text, kept) in table {
            let clean = redact(text);
            assert!(!clean.contains(SECRET), "{text}\n -> {clean}");
            assert!(!clean.contains("joe"), "{text}\n -> {clean}");
            assert!(clean.contains(kept), "{text}\n -> {clean}");
        }
    }

    #[test]
    fn harmless_text_is_left_alone() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for text in [
            format!("reading manifest {digest} in r.example:5000/ns/os: manifest unknown"),
            format!("Error initializing source docker://r.example:5000/os@{digest}: EOF"),
            format!("Error initializing source docker://os@{digest}: EOF"),
            "unable to retrieve auth token: invalid username/password: unauthorized".to_owned(),
            "Source image rejected: A signature was required, but no signature exists".to_owned(),
            "Get \"http://127.0.0.1:5000/v2/\": dial tcp 127.0.0.1:5000: connect: connection refused"
                .to_owned(),
            "basic authentication is required\nsecond line\n".to_owned(),
            "é: ü".to_owned(),
        ] {
            assert_eq!(redact(&text), text);
        }
    }
    proptest::proptest! {
        #[test]
        fn any_text_is_taken(text in ".*") {
            redact(&text);
        }

        #[test]
        fn no_password_of_an_address_stays(
            user in "[a-z]{1,8}",
            password in "[a-z?][A-Za-z0-9!$%*+._~:/?-]{0,8}s3cr3t[A-Za-z0-9!$%*+._~:/?-]{0,8}",
            before in "[ -~]{0,20}",
            after in "[ -~]{0,20}",
        ) {
            let clean = redact(&format!("{before} \"https://{user}:{password}@r.example/v2/\": {after}"));
            proptest::prop_assert!(!clean.contains(SECRET), "{}", clean);
            let clean = redact(&format!("{before} {{\"auth\":\"{password}\"}} {after}"));
            proptest::prop_assert!(!clean.contains(SECRET), "{}", clean);
        }
    }
}
