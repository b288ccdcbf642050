use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::model::config::{Input, read};

/// Answers each request with the next of these; the last one again and again.
fn serve(replies: Vec<Vec<u8>>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines {
                if line.unwrap_or_default().is_empty() {
                    break;
                }
            }
            let index = counted.fetch_add(1, Ordering::SeqCst).min(replies.len() - 1);
            let _ = stream.write_all(&replies[index]);
        }
    });
    (address.to_string(), count)
}

fn reply(status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A config with a file at this address, and one that is the same again.
fn config(address: &str, rest: &str, body: &str) -> Config {
    let hash = crate::model::digest::Digest::of(body.as_bytes());
    let contents = format!(
        "{{source: 'http://me:topsecret@{address}/x?sig=topsecret', {rest}verification: {{hash: sha256-{}}}}}",
        hash.hex()
    );
    let text = format!(
        "ignition: {{version: 3.4.0}}\nstorage: {{files: [{{path: /etc/x, contents: {contents}}}, \
         {{path: /etc/y, append: [{{source: 'data:,a'}}, {contents}]}}]}}"
    );
    read(vec![Input { name: "x.yaml".to_owned(), bytes: text.into_bytes() }]).unwrap()
}

fn fetch(config: &mut Config) -> Result<(), Fault> {
    fetch_remote(config, &CancellationToken::new()).map_err(|error| error.downcast().unwrap())
}

fn bodies(config: &Config) -> Vec<String> {
    let entries = config.managed.as_ref().unwrap().entries.values();
    entries
        .flat_map(all)
        .map(|contents| match contents {
            Contents::Inline(blob) => String::from_utf8_lossy(blob.bytes()).into_owned(),
            Contents::Remote { .. } => "elsewhere".to_owned(),
        })
        .collect()
}

#[test]
fn contents_are_fetched_once_and_put_in_place() {
    let (address, count) = serve(vec![reply("200 OK", b"hello")]);
    let mut config = config(&address, "", "hello");
    fetch(&mut config).unwrap();
    assert_eq!(bodies(&config), ["hello", "a", "hello"]);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn what_is_packed_is_unpacked() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(b"hello").unwrap();
    let (address, _) = serve(vec![reply("200 OK", &packer.finish().unwrap())]);
    let mut config = config(&address, "compression: gzip, ", "hello");
    fetch(&mut config).unwrap();
    assert_eq!(bodies(&config), ["hello", "a", "hello"]);
}

#[test]
fn what_may_pass_is_tried_again() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe".to_vec();
    let (address, count) = serve(vec![reply("503 Busy", b""), cut, reply("200 OK", b"hello")]);
    let mut config = config(&address, "", "hello");
    fetch(&mut config).unwrap();
    assert_eq!(bodies(&config)[0], "hello");
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[test]
fn what_fails_is_told_without_credentials_and_changes_nothing() {
    for (answer, why) in [
        (reply("404 Not Found", b"topsecret"), "the server says 404"),
        (reply("200 OK", b"other"), "what is there does not have the hash in verification.hash"),
        (b"topsecret\r\n\r\n".to_vec(), "the server does not speak HTTP as expected"),
    ] {
        let (address, _) = serve(vec![answer]);
        let mut config = config(&address, "", "hello");
        let before = config.clone();
        let fault = fetch(&mut config).unwrap_err();
        assert_eq!(fault.what, format!("x.yaml: storage.files[0]: http://{address}/x cannot be fetched"));
        assert_eq!(fault.why.as_deref(), Some(why));
        assert!(!format!("{fault:?}").contains("topsecret"));
        assert_eq!(config, before);
    }
}

#[test]
fn what_has_no_end_is_cut_off() {
    let (address, _) = serve(vec![[b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 65 << 20]].concat()]);
    let fault = fetch(&mut config(&address, "", "hello")).unwrap_err();
    assert_eq!(fault.why.as_deref(), Some("it is larger than 64 MiB"));
}

#[test]
fn the_proxy_of_the_environment_is_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heads = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut heads = Vec::new();
        for answer in [b"HTTP/1.1 200 Connected\r\n\r\n".to_vec(), reply("200 OK", b"hello")] {
            let head: Vec<String> =
                lines.by_ref().map_while(Result::ok).take_while(|it| !it.is_empty()).collect();
            heads.push(head.into_iter().next().unwrap_or_default());
            stream.write_all(&answer).unwrap();
        }
        heads
    });
    let mut config = config("files.example", "", "hello");
    let variable = |name: &str| (name == "http_proxy").then(|| format!("http://me:topsecret@{address}"));
    fetch_all(&mut config, &CancellationToken::new(), variable).unwrap();
    assert_eq!(bodies(&config)[0], "hello");
    assert_eq!(heads.join().unwrap(), ["CONNECT files.example:80 HTTP/1.1", "GET /x?sig=topsecret HTTP/1.1"]);
}

#[test]
fn somebody_who_asks_to_stop_is_heard() {
    let (address, count) = serve(vec![reply("503 Busy", b"")]);
    let stop = CancellationToken::new();
    stop.cancel();
    let error = fetch_remote(&mut config(&address, "", "hello"), &stop).unwrap_err();
    assert_eq!(error.downcast::<Fault>().unwrap().why.as_deref(), Some("it was asked to stop"));
    assert!(count.load(Ordering::SeqCst) <= 1);
}

#[test]
fn an_address_is_shown_without_what_is_secret() {
    for (url, expected) in [
        ("https://host.example/a/b", "https://host.example/a/b"),
        ("HTTPS://me:pw@host.example:8443/a?sig=x@y#z", "https://host.example:8443/a"),
        ("http://host", "http://host"),
    ] {
        assert_eq!(shown(url), expected);
    }
}
