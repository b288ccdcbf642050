//! The proxy that the environment names, as Go and curl read it: `http_proxy` or `https_proxy` by the
//! scheme of the address, `all_proxy` otherwise, and `no_proxy` for what is reached directly.

use std::net::IpAddr;

use ureq::Proxy;

/// The proxy for an address; none where there is none to use.
///
/// # Errors
///
/// The variable that is no address of a proxy.
pub(super) fn choose(variable: impl Fn(&str) -> Option<String>, url: &str) -> Result<Option<Proxy>, String> {
    let either = |name: &str| {
        [name.to_owned(), name.to_ascii_uppercase()]
            .into_iter()
            .find_map(|name| Some((variable(&name).filter(|value| !value.is_empty())?, name)))
    };
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let own = if scheme.eq_ignore_ascii_case("https") { "https_proxy" } else { "http_proxy" };
    let Some((proxy, name)) = either(own).or_else(|| either("all_proxy")) else { return Ok(None) };
    if either("no_proxy").is_some_and(|(exceptions, _)| is_exception(&exceptions, host(rest))) {
        return Ok(None);
    }
    Proxy::new(&proxy).map(Some).map_err(|_| format!("{name} in the environment is no address of a proxy"))
}

/// The host of what follows `://`.
fn host(rest: &str) -> &str {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let place = authority.rsplit('@').next().unwrap_or_default();
    match place.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => place.split(':').next().unwrap_or_default(),
    }
}

/// Whether `no_proxy` names the host: `*`, an address, a network, or a domain, with or without a dot
/// before it, which stands for all below it too.
fn is_exception(exceptions: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    exceptions.split(',').map(str::trim).filter(|one| !one.is_empty()).any(|one| {
        let one = one.to_ascii_lowercase();
        if one == "*" || one == host {
            return true;
        }
        match (address, one.split_once('/')) {
            (Some(address), Some((network, length))) => is_within(address, network, length),
            (Some(_), None) => false,
            (None, _) => {
                let domain = one.trim_start_matches('*').trim_start_matches('.');
                host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
            }
        }
    })
}

/// Whether an address is in a network such as `10.0.0.0/8`.
fn is_within(address: IpAddr, network: &str, length: &str) -> bool {
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else { return false };
    let same = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) if length <= 32 => {
            (one.to_bits() ^ other.to_bits()).leading_zeros().min(32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) if length <= 128 => {
            (one.to_bits() ^ other.to_bits()).leading_zeros().min(128)
        }
        _ => return false,
    };
    same >= length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(environment: &[(&str, &str)], url: &str) -> Result<Option<String>, String> {
        let variable = |name: &str| {
            environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Ok(choose(variable, url)?.map(|proxy| format!("{}:{}", proxy.host(), proxy.port())))
    }

    #[test]
    fn the_scheme_of_the_address_chooses() {
        let both = [("http_proxy", "http://a:1"), ("HTTPS_PROXY", "http://b:2")];
        assert_eq!(chosen(&both, "http://host/x"), Ok(Some("a:1".to_owned())));
        assert_eq!(chosen(&both, "HTTPS://host/x"), Ok(Some("b:2".to_owned())));
        assert_eq!(chosen(&[("https_proxy", "http://b:2")], "http://host/x"), Ok(None));
        assert_eq!(chosen(&[("ALL_PROXY", "http://c:3")], "http://host/x"), Ok(Some("c:3".to_owned())));
        assert_eq!(chosen(&[("http_proxy", "")], "http://host/x"), Ok(None));
        assert_eq!(chosen(&[], "http://host/x"), Ok(None));
        assert_eq!(
            chosen(&[("http_proxy", "ftp://me:topsecret@x")], "http://host/x"),
            Err("http_proxy in the environment is no address of a proxy".to_owned())
        );
    }

    #[test]
    fn exceptions_are_reached_directly() {
        for (exceptions, url, direct) in [
            ("*", "http://host/", true),
            ("host", "http://host:80/", true),
            ("host", "http://me:pw@host/x", true),
            ("other, host", "http://HOST./", true),
            ("example.com", "http://a.example.com/", true),
            (".example.com", "http://a.example.com/", true),
            ("*.example.com", "http://a.example.com/", true),
            ("example.com", "http://notexample.com/", false),
            ("10.0.0.0/8", "http://10.1.2.3/", true),
            ("10.0.0.0/8", "http://11.1.2.3/", false),
            ("10.0.0.0/33", "http://10.1.2.3/", false),
            ("0.0.0.0/0", "http://10.1.2.3/", true),
            ("fd00::/8", "http://[fd00::1]:80/", true),
            ("fd00::/8", "http://[fe00::1]/", false),
            ("10.1.2.3", "http://10.1.2.3/", true),
            ("2.3", "http://10.1.2.3/", false),
            ("10.0.0.0/8", "http://host/", false),
            ("", "http://host/", false),
        ] {
            let environment = [("http_proxy", "http://p:1"), ("no_proxy", exceptions)];
            assert_eq!(chosen(&environment, url).unwrap().is_none(), direct, "{exceptions} {url}");
        }
    }
}
