//! What lies between this machine and a registry, tried step by step: route, clock, proxy, name, connection.
//!
//! What the container tools do beyond that (TLS, credentials, policy) is theirs to say; their words are
//! judged with what is found here by [`crate::plan::doctor`].

use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::Result;

use super::config_files::proxy_for;
use super::health::default_route;
use super::now;
use super::sysroot::Host;
use super::trust::registries::configured_candidates;
use crate::model::image_ref::{ImageReference, Transport};
use crate::plan::doctor::{Part, Tried};

/// For a connection to one address: one that is there answers sooner.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

impl Host {
    /// Tries the way to everywhere that an image may come from; nothing for one that is no registry's.
    pub fn try_the_way(&self, image: &ImageReference) -> Result<Vec<Tried>> {
        if image.transport != Transport::Registry {
            return Ok(Vec::new());
        }
        let configured = configured_candidates(&self.running_root()?, image);
        let own = configured.location.as_deref().unwrap_or(&image.location);
        let mut places: Vec<(&str, bool)> =
            configured.mirrors.iter().map(|mirror| (host_of(mirror), true)).collect();
        places.push((host_of(own), false));
        let mut tried = vec![tried(Part::Link, "default route", false, default_route())];
        tried.push(self.try_the_clock()?);
        for (place, mirror) in places {
            try_place(place, mirror, &mut tried);
        }
        Ok(tried)
    }

    /// The clock is wrong if it is before something that is over: the making of the image that runs, the
    /// last change of this host.
    fn try_the_clock(&self) -> Result<Tried> {
        let image = self
            .status()?
            .booted()
            .map(|booted| (i64::try_from(booted.timestamp).unwrap_or(0), "the running image was made"));
        let change = self.history()?.entries.last().map(|entry| (entry.when, "this host was changed last"));
        let newest = image.into_iter().chain(change).max();
        let clock = now();
        let found = match newest {
            Some((when, what)) if when > clock => {
                let time = |when| jiff::Timestamp::from_second(when).map(|time| time.to_string());
                Err(format!("it says {}, but {what} on {}", time(clock)?, time(when)?))
            }
            _ => Ok(String::new()),
        };
        Ok(tried(Part::Clock, "clock", false, found))
    }
}

fn tried(part: Part, target: &str, mirror: bool, found: Result<String, String>) -> Tried {
    Tried { part, target: target.to_owned(), mirror, why: found.err() }
}

/// `host:port/name` as `host:port`.
fn host_of(location: &str) -> &str {
    location.split('/').next().unwrap_or_default()
}

fn try_place(place: &str, mirror: bool, all: &mut Vec<Tried>) {
    match proxy_for(place) {
        // Behind a proxy, names and connections are the proxy's business.
        Ok(Some(proxy)) => all.push(tried(Part::Proxy, &proxy, mirror, connect(&proxy, 3128, TIMEOUT))),
        Err(why) => all.push(tried(Part::Proxy, place, mirror, Err(why))),
        Ok(None) => match look_up(place, 443) {
            Err(why) => all.push(tried(Part::Dns, place, mirror, Err(why))),
            Ok(_) => {
                all.push(tried(Part::Dns, place, mirror, Ok(String::new())));
                all.push(tried(Part::Registry, place, mirror, connect(place, 443, TIMEOUT)));
            }
        },
    }
}

fn look_up(place: &str, port: u16) -> Result<Vec<std::net::SocketAddr>, String> {
    let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let place = if has_port { place.to_owned() } else { format!("{place}:{port}") };
    let found: Vec<_> =
        place.to_socket_addrs().map_err(|error| format!("it cannot be looked up: {error}"))?.collect();
    if found.is_empty() { Err("it has no address".to_owned()) } else { Ok(found) }
}

/// Whether something takes a connection there; `port` where the place names none.
pub(super) fn connect(place: &str, port: u16, timeout: Duration) -> Result<String, String> {
    let mut why = String::new();
    for address in look_up(place, port)?.into_iter().take(ADDRESSES_MAX) {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(_) => return Ok(String::new()),
            Err(error) => why = format!("no connection to {address}: {error}"),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_the_way_is_told() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let mut all = Vec::new();
        try_place(&place, true, &mut all);
        assert!(all.iter().all(|one| one.why.is_none() && one.mirror), "{all:?}");
        drop(listener);
        all.clear();
        try_place(&place, false, &mut all);
        let last = all.last().unwrap();
        assert_eq!((last.part, last.target.as_str()), (Part::Registry, place.as_str()));
        assert!(last.why.as_deref().unwrap().contains("refused"), "{last:?}");
        all.clear();
        try_place("no-such-name.invalid", false, &mut all);
        assert_eq!(all.iter().map(|one| one.part).collect::<Vec<_>>(), [Part::Dns]);
        assert!(all[0].why.is_some());
    }

    #[test]
    fn a_place_is_host_and_port() {
        assert_eq!(host_of("r.example:5000/a/b"), "r.example:5000");
        assert_eq!(host_of("r.example"), "r.example");
    }
}
