use proptest::prelude::*;

use super::*;

fn hex() -> String {
    format!("sha256:{}", "0f".repeat(32))
}

fn parse(text: &str) -> OsImage {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_spelling_and_its_origin_form() {
    let digest = hex();
    let table = [
        ("quay.io/os/base".to_owned(), "ostree-unverified-registry:quay.io/os/base".to_owned()),
        ("quay.io/os:1".to_owned(), "ostree-unverified-registry:quay.io/os:1".to_owned()),
        (format!("quay.io/os@{digest}"), format!("ostree-unverified-registry:quay.io/os@{digest}")),
        (format!("localhost/os:1@{digest}"), format!("ostree-unverified-registry:localhost/os:1@{digest}")),
        (
            "docker://Reg.Example.com:5000/a/b_c/d__e/f-g--h.i:V1_".to_owned(),
            "ostree-unverified-registry:Reg.Example.com:5000/a/b_c/d__e/f-g--h.i:V1_".to_owned(),
        ),
        ("127.0.0.1:5000/os".to_owned(), "ostree-unverified-registry:127.0.0.1:5000/os".to_owned()),
        ("[::1]:5000/os:1".to_owned(), "ostree-unverified-registry:[::1]:5000/os:1".to_owned()),
        ("[fd00::1]/os".to_owned(), "ostree-unverified-registry:[fd00::1]/os".to_owned()),
        (
            "ostree-mirror:5000/os:1".to_owned(),
            "ostree-unverified-registry:ostree-mirror:5000/os:1".to_owned(),
        ),
        ("oci:/srv/os".to_owned(), "ostree-unverified-image:oci:/srv/os".to_owned()),
        ("oci:./os dir:v1".to_owned(), "ostree-unverified-image:oci:./os dir:v1".to_owned()),
        (
            "oci:/srv/os:quay.io/os:1".to_owned(),
            "ostree-unverified-image:oci:/srv/os:quay.io/os:1".to_owned(),
        ),
        (format!("oci:/srv/os:1@{digest}"), format!("ostree-unverified-image:oci:/srv/os:1@{digest}")),
        (
            format!("oci:/srv/user@home@{digest}"),
            format!("ostree-unverified-image:oci:/srv/user@home@{digest}"),
        ),
        (
            "oci-archive:/srv/os.tar:1".to_owned(),
            "ostree-unverified-image:oci-archive:/srv/os.tar:1".to_owned(),
        ),
        (
            "containers-storage:localhost/os:1".to_owned(),
            "ostree-unverified-image:containers-storage:localhost/os:1".to_owned(),
        ),
        ("containers-storage:os".to_owned(), "ostree-unverified-image:containers-storage:os".to_owned()),
        (
            format!("containers-storage:[overlay@/var/lib/s+/run/s]quay.io:443/os:1@{digest}"),
            format!(
                "ostree-unverified-image:containers-storage:[overlay@/var/lib/s+/run/s]quay.io:443/os:1@{digest}"
            ),
        ),
        (
            "ostree-unverified-registry:docker://quay.io/os".to_owned(),
            "ostree-unverified-registry:quay.io/os".to_owned(),
        ),
        (
            "ostree-unverified-image:docker://quay.io/os:1".to_owned(),
            "ostree-unverified-registry:quay.io/os:1".to_owned(),
        ),
        (
            "ostree-image-signed:docker://quay.io/os:1".to_owned(),
            "ostree-image-signed:docker://quay.io/os:1".to_owned(),
        ),
        (
            "ostree-image-signed:registry:quay.io/os:1".to_owned(),
            "ostree-image-signed:docker://quay.io/os:1".to_owned(),
        ),
        ("ostree-image-signed:oci:/srv/os:1".to_owned(), "ostree-image-signed:oci:/srv/os:1".to_owned()),
        (
            "ostree-remote-registry:fedora:quay.io/os:1".to_owned(),
            "ostree-remote-registry:fedora:quay.io/os:1".to_owned(),
        ),
        (
            "ostree-remote-image:fedora:docker://quay.io:443/os:1".to_owned(),
            "ostree-remote-registry:fedora:quay.io:443/os:1".to_owned(),
        ),
        (
            "ostree-remote-image:my_re-mote.1:registry:quay.io/os".to_owned(),
            "ostree-remote-registry:my_re-mote.1:quay.io/os".to_owned(),
        ),
        (
            "ostree-remote-image:fedora:oci-archive:/srv/os.tar".to_owned(),
            "ostree-remote-image:fedora:oci-archive:/srv/os.tar".to_owned(),
        ),
    ];
    for (text, origin) in table {
        let image = parse(&text);
        assert_eq!(image.to_string(), origin, "{text}");
        assert_eq!(parse(&origin), image, "{text}");
        let json = serde_json::to_string(&image).unwrap();
        assert_eq!(serde_json::from_str::<OsImage>(&json).unwrap(), image, "{text}");
    }
}

#[test]
fn parts_of_a_registry_reference() {
    let digest = hex();
    let image = parse(&format!("reg.example.com:5000/a/os:1@{digest}")).image;
    assert_eq!(image.transport, Transport::Registry);
    assert_eq!(image.location, "reg.example.com:5000/a/os");
    assert_eq!(image.tag.as_deref(), Some("1"));
    assert_eq!(image.digest.as_ref().map(Digest::as_str), Some(digest.as_str()));
    assert_eq!(image.registry_host(), Some("reg.example.com:5000"));
    assert_eq!(image.ref_key(), format!("docker://reg.example.com:5000/a/os:1@{digest}"));
    assert_eq!(image.plain(), format!("reg.example.com:5000/a/os:1@{digest}"));
    assert_eq!(image.to_skopeo(), format!("docker://reg.example.com:5000/a/os@{digest}"));

    let image = parse("quay.io/os").image;
    assert_eq!((image.tag.as_deref(), image.effective_tag()), (None, Some("latest")));
    assert_eq!(image.ref_key(), "docker://quay.io/os");
    let image = parse("oci:/srv/os:a:b").image;
    assert_eq!((image.location.as_str(), image.tag.as_deref()), ("/srv/os", Some("a:b")));
    assert_eq!(image.plain(), "oci:/srv/os:a:b");
}

#[test]
fn refusals_name_the_part() {
    let long_tag = format!("quay.io/os:{}", "a".repeat(129));
    let long_name = format!("quay.io/{}", "a/".repeat(124) + "a");
    let long_path = format!("oci:/{}", "a".repeat(4096));
    let table = [
        ("", "it is empty"),
        ("os", "host: 'os' is not a registry's host"),
        ("os:1", "write REGISTRY/NAME"),
        ("library/os:1", "host: 'library' is not a registry's host"),
        ("docker://library/os", "host: 'library'"),
        ("ostree-unverified-registry:os", "host: 'os'"),
        ("/os", "host: there is none"),
        ("docker:///os", "host: there is none"),
        ("quay..io/os", "host 'quay..io': one of its parts is empty"),
        ("-quay.io/os", "host '-quay.io': '-quay' starts or ends"),
        ("qu_ay.io/os", "host 'qu_ay.io': '_' is not allowed"),
        ("quäy.io/os", "host 'quäy.io': 'ä' is not allowed"),
        ("quay .io/os", "host 'quay .io': ' ' is not allowed"),
        (" quay.io/os", "host ' quay.io': ' ' is not allowed"),
        ("[::1/os", "host '[::1': the ']'"),
        ("[::g]/os", "'::g' is not an IPv6"),
        ("[::1]5000/os", "only ':PORT' may follow"),
        ("quay.io:/os", "port '': expected a number"),
        ("quay.io:0/os", "port '0'"),
        ("quay.io:65536/os", "port '65536'"),
        ("quay.io:+5/os", "port '+5'"),
        ("[::1]:x/os", "port 'x'"),
        ("quay.io/", "name component '': it is empty"),
        ("quay.io//os", "name component '': it is empty"),
        ("quay.io/os/", "name component '': it is empty"),
        ("quay.io/OS", "name component 'OS': upper-case"),
        ("quay.io/ös", "name component 'ös': 'ö' is not allowed"),
        ("quay.io/o s", "name component 'o s': ' ' is not allowed"),
        ("quay.io/os?tag=1", "'?' is not allowed"),
        ("quay.io/a:1/os", "name component 'a:1': ':' is not allowed"),
        ("quay.io/.os", "must start and end with a letter or digit"),
        ("quay.io/os-", "must start and end with a letter or digit"),
        ("quay.io/o..s", "'..' cannot stand between letters"),
        ("quay.io/o___s", "'___' cannot stand between letters"),
        ("quay.io/o._s", "'._' cannot stand between letters"),
        (&long_name, "name: host and name are 257 characters long"),
        ("quay.io/os:", "tag: it is empty"),
        ("quay.io/os:.1", "tag '.1': it may not start with"),
        ("quay.io/os:1:2", "tag '1:2': ':' is not allowed"),
        ("quay.io/os:ü", "tag 'ü': 'ü' is not allowed"),
        (&long_tag, "tag: it is longer than 128"),
        ("quay.io/os@sha256:12", "digest 'sha256:12': expected 64 hex digits"),
        ("quay.io/os@sha512:12", "digest 'sha512:12': only sha256"),
        ("quay.io/os@latest", "digest: what follows '@' must be sha256:"),
        ("quay.io/os@", "digest: what follows '@' must be sha256:"),
        ("docker:quay.io/os", "transport 'docker:' is written docker://"),
        ("dir:/srv/os", "transport 'dir:' holds no OS image"),
        ("docker-archive:/srv/os.tar", "transport 'docker-archive:'"),
        ("https://quay.io/os", "transport 'https:' holds no OS image"),
        ("ftp://quay.io/os", "transport 'ftp:'"),
        ("ostree-verified:quay.io/os", "transport 'ostree-verified:' is unknown"),
        ("ostree-unverified-image:quay.io/os", "transport: none is written before 'quay.io/os'"),
        ("ostree-image-signed:quay.io/os", "transport: none is written"),
        ("ostree-remote-registry:quay.io/os", "remote 'quay.io/os': expected REMOTE:IMAGE"),
        ("ostree-remote-registry::quay.io/os", "remote '': a name"),
        ("ostree-remote-image:a/b:docker://quay.io/os", "remote 'a/b': a name"),
        ("ostree-remote-image:-a:docker://quay.io/os", "remote '-a': a name"),
        ("oci:", "path: there is none after 'oci:'"),
        ("oci-archive::1", "path: there is none after 'oci-archive:'"),
        ("oci: /srv/os", "path ' /srv/os': it starts or ends with white space"),
        ("oci:/srv/os:", "tag: it is empty"),
        ("oci:/srv/os:-1", "tag '-1': each part"),
        ("oci:/srv/os:a//b", "tag 'a//b': each part"),
        ("oci:/srv/os:a..b", "tag 'a..b': between letters"),
        ("oci:/srv/os@sha256:12", "digest 'sha256:12': expected 64"),
        (&long_path, "longer than 4096 bytes"),
        ("oci:/srv/o\ns", "control character"),
        ("quay.io/o\u{1b}[31ms", "control character"),
        ("containers-storage:", "name component: there is no name"),
        ("containers-storage:[/srv", "path: the ']' that ends the store"),
        ("containers-storage:[]os", "path: the store between '[' and ']' is empty"),
        ("containers-storage:[/srv]", "name component: there is no name"),
        ("containers-storage:OS", "name component 'OS': upper-case"),
        ("containers-storage:localhost:x/os", "port 'x'"),
        ("containers-storage:os@12", "digest '12': it has no algorithm"),
    ];
    for (text, part) in table {
        let error = text.parse::<OsImage>().expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(!error.contains(['\n', '\u{1b}']), "{text:?}: {error:?}");
    }
}

#[test]
fn a_bare_image_has_no_ostree_prefix() {
    let error = "ostree-unverified-registry:quay.io/os".parse::<ImageReference>().unwrap_err();
    assert!(error.reason.starts_with("port 'quay.io'"), "{error}");
}

#[test]
fn credentials_are_refused_and_not_repeated() {
    let digest = hex();
    for text in [
        "me:s3cret@quay.io/os:1",
        "me:s3cret@quay.io:5000/os:1",
        "docker://me:s3cret@quay.io/os:1",
        "https://me:s3cret@quay.io/os:1",
        "me:s3cret@quay.io",
        "me:s3cret@host:5000",
        "me:s3/cret@quay.io/os",
        "me:s3@cret@quay.io/os",
        "ostree-unverified-registry:me:s3cret@quay.io/os:1",
        "ostree-unverified-image:docker://me:s3cret@quay.io/os:1",
        "ostree-image-signed:registry:me:s3cret@quay.io/os:1",
        "ostree-remote-registry:fedora:me:s3cret@quay.io/os:1",
        "ostree-remote-image:fedora:docker://me:s3cret@quay.io/os:1",
        "ostree-remote-image:me:s3cret@quay.io/os:1",
        "ostree-nonsense:me:s3cret@quay.io/os",
        "me:s3cret\n@quay.io/os",
        &format!("me:s3cret@quay.io/os@{digest}"),
    ] {
        let error = text.parse::<OsImage>().unwrap_err();
        for shown in [error.to_string(), format!("{error:?}"), format!("{:?}", Fault::from(error.clone()))] {
            assert!(!shown.contains("s3") && !shown.contains("cret@"), "{text}: {shown}");
        }
        assert!(error.reason.contains("--authfile"), "{text}: {error}");
    }
    let error = "quay.io/os@latest".parse::<OsImage>().unwrap_err();
    assert_eq!(error.text, "…@latest");
}

#[test]
fn malformed_references_are_usage_errors() {
    let fault = Fault::from("os:1".parse::<OsImage>().unwrap_err());
    assert_eq!(fault.kind.code(), 2);
    assert!(fault.why.unwrap().contains("short names are ambiguous"));
}

fn component() -> impl Strategy<Value = String> {
    "[a-z0-9]{1,8}((\\.|_|__|-{1,3})[a-z0-9]{1,4}){0,2}"
}

fn host() -> impl Strategy<Value = String> {
    "(localhost|[A-Za-z0-9]([a-zA-Z0-9-]{0,6}[a-z0-9])?(\\.[a-z0-9]{1,6}){1,2}|\\[fd00::[1-9a-f]\\])(:[1-9][0-9]{0,3})?"
}

fn digest() -> impl Strategy<Value = Option<Digest>> {
    proptest::option::of(any::<[u8; 32]>().prop_map(Digest::from_raw))
}

fn registry_image() -> impl Strategy<Value = ImageReference> {
    let path = proptest::collection::vec(component(), 1..4);
    let tag = proptest::option::of("[A-Za-z0-9_][A-Za-z0-9._-]{0,20}");
    (host(), path, tag, digest()).prop_map(|(host, path, tag, digest)| ImageReference {
        transport: Transport::Registry,
        location: format!("{host}/{}", path.join("/")),
        tag,
        digest,
    })
}

fn layout_image() -> impl Strategy<Value = ImageReference> {
    let transport = prop_oneof![Just(Transport::OciDir), Just(Transport::OciArchive)];
    let path = "/?[a-zA-Z0-9._-]{1,8}(/[a-zA-Z0-9._ @äß-]{0,8}[a-z0-9]){0,3}";
    let tag = proptest::option::of("[A-Za-z0-9]{1,8}([-._:@+][a-z0-9]{1,4}){0,2}(/[a-z0-9]{1,4})?");
    (transport, path, tag, digest()).prop_map(|(transport, location, tag, digest)| ImageReference {
        transport,
        location,
        tag,
        digest,
    })
}

fn storage_image() -> impl Strategy<Value = ImageReference> {
    let store = prop_oneof![Just(String::new()), "\\[overlay@/[a-z/+:=,]{1,12}\\]"];
    // An IPv6 host right after the prefix would be read as the store.
    let image = registry_image().prop_filter("IPv6", |image| !image.location.starts_with('['));
    (store, image).prop_map(|(store, image)| ImageReference {
        transport: Transport::ContainersStorage,
        location: format!("{store}{}", image.location),
        ..image
    })
}

fn os_image() -> impl Strategy<Value = OsImage> {
    let verification = prop_oneof![
        Just(Verification::PolicyOnly),
        Just(Verification::Signed),
        "[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}".prop_map(Verification::OstreeRemote),
    ];
    let image = prop_oneof![registry_image(), layout_image(), storage_image()];
    (verification, image).prop_map(|(verification, image)| OsImage { verification, image })
}

proptest! {
    #[test]
    fn parse_is_the_inverse_of_display(image in os_image()) {
        let text = image.to_string();
        prop_assert_eq!(text.parse::<OsImage>().map_err(|error| error.to_string()), Ok(image.clone()));
        let bare = image.image.to_string();
        prop_assert_eq!(bare.parse::<ImageReference>().map_err(|error| error.to_string()), Ok(image.image));
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        let _ = text.parse::<OsImage>();
    }

    #[test]
    fn what_parses_prints_and_parses_again(text in "(ostree-(unverified|image|remote)-(registry|image|signed):)?([a-z]{1,3}:)?(oci:|docker://|registry:)?[a-zA-Z0-9.:@/_-]{1,24}") {
        if let Ok(image) = text.parse::<OsImage>() {
            prop_assert_eq!(image.to_string().parse::<OsImage>(), Ok(image));
        }
    }
}
