use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn digest(number: u8) -> String {
    Digest::from_raw([number; 32]).to_string()
}

fn layer(media_type: &str, number: u8, size: u64) -> Value {
    json!({"mediaType": media_type, "digest": digest(number), "size": size})
}

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
const PLAIN: &str = "application/vnd.oci.image.layer.v1.tar";

fn manifest(layers: Vec<Value>) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest(0xcc),
            "size": 2,
        },
        "layers": layers,
    })
}

fn config(diff_ids: &[u8], labels: Value) -> Value {
    let diff_ids: Vec<String> = diff_ids.iter().map(|number| digest(*number)).collect();
    json!({
        "architecture": "amd64",
        "os": "linux",
        "created": "2026-11-30T12:00:00Z",
        "config": {"Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [],
    })
}

fn parse(manifest: &Value, config: &Value) -> Result<ImageFacts, Fault> {
    ImageFacts::parse(&serde_json::to_vec(manifest).unwrap(), &serde_json::to_vec(config).unwrap())
}

/// Three layers of the base and one derived, as ostree-ext writes them.
fn native() -> (Value, Value) {
    let mut manifest =
        manifest(vec![layer(GZIP, 1, 10), layer(ZSTD, 2, 20), layer(PLAIN, 3, 30), layer(GZIP, 4, 40)]);
    manifest["layers"][1]["annotations"] = json!({"ostree.components": "bash,coreutils"});
    manifest["layers"][2]["annotations"] = json!({"ostree.components": ""});
    let labels = json!({
        "ostree.commit": "ab".repeat(32),
        "ostree.final-diffid": digest(13),
        "ostree.bootable": "true",
        "version": "1.0",
        "org.opencontainers.image.version": "1.1",
    });
    let mut config = config(&[11, 12, 13, 14], labels);
    config["history"] = json!([
        {"created_by": "ostree export of commit ab"},
        {"created_by": "bash and friends"},
        {"created_by": "the\nrest\u{1b}[31m"},
        {"created_by": "ENV x", "empty_layer": true},
        {"created_by": "RUN touch /etc/x"},
    ]);
    (manifest, config)
}

#[test]
fn a_native_image() {
    let (manifest, config) = native();
    let facts = parse(&manifest, &config).unwrap();
    assert_eq!(facts.kind, ImageKind::Native);
    assert_eq!((facts.architecture.as_str(), facts.os.as_str()), ("amd64", "linux"));
    assert_eq!(facts.version.as_deref(), Some("1.1"));
    assert_eq!(facts.created, Some(1_796_040_000));
    assert_eq!(facts.base_commit, Some("ab".repeat(32)));
    assert_eq!(facts.config_digest.to_string(), digest(0xcc));
    assert!(facts.bootable_label && facts.has_derived_layers());
    assert_eq!(facts.compressed_size(), 100);
    let seen: Vec<_> = facts.layers.iter().map(|it| (it.kind, it.media, it.title.as_str())).collect();
    assert_eq!(
        seen,
        [
            (LayerKind::Commit, Compression::Gzip, "ostree export of commit ab"),
            (LayerKind::Component, Compression::Zstd, "bash,coreutils"),
            (LayerKind::Component, Compression::None, "the rest [31m"),
            (LayerKind::Derived, Compression::Gzip, "RUN touch /etc/x"),
        ]
    );
    assert_eq!(facts.layers[3].diff_id.to_string(), digest(14));
}

#[test]
fn an_unchunked_image_is_one_commit_layer() {
    let config = config(&[11], json!({"ostree.final-diffid": digest(11)}));
    let facts = parse(&manifest(vec![layer(GZIP, 1, 10)]), &config).unwrap();
    assert_eq!(facts.layers[0].kind, LayerKind::Commit);
    assert_eq!((facts.base_commit.as_deref(), facts.bootable_label), (None, false));
    assert!(!facts.has_derived_layers());
}

#[test]
fn docker_documents_and_their_nulls() {
    let mut manifest = manifest(vec![
        layer("application/vnd.docker.image.rootfs.diff.tar.gzip", 1, 10),
        layer("application/vnd.docker.image.rootfs.diff.tar", 2, 10),
    ]);
    manifest["mediaType"] = json!("application/vnd.docker.distribution.manifest.v2+json");
    manifest["config"]["mediaType"] = json!("application/vnd.docker.container.image.v1+json");
    manifest["annotations"] = Value::Null;
    let mut config = config(&[11, 12], Value::Null);
    config["history"] = Value::Null;
    config["container_config"] = json!({"Hostname": "x"});
    let facts = parse(&manifest, &config).unwrap();
    assert_eq!((facts.kind, facts.layers[0].media), (ImageKind::Plain, Compression::Gzip));
    assert_eq!((facts.layers[1].media, facts.layers[1].kind), (Compression::None, LayerKind::Derived));
    config["config"] = Value::Null;
    manifest.as_object_mut().unwrap().remove("mediaType");
    assert_eq!(parse(&manifest, &config).unwrap().labels.len(), 0);
}

#[test]
fn a_legacy_image_has_its_label() {
    let labels = json!({"com.coreos.ostree-commit": "cd".repeat(32), "version": "42.80"});
    let facts = parse(&manifest(vec![layer(GZIP, 1, 10)]), &config(&[11], labels)).unwrap();
    assert_eq!((facts.kind, facts.base_commit), (ImageKind::Legacy, Some("cd".repeat(32))));
    assert_eq!((facts.version.as_deref(), facts.layers[0].kind), (Some("42.80"), LayerKind::Derived));
}

#[test]
fn the_same_layer_twice_counts_once() {
    let manifest = manifest(vec![layer(GZIP, 1, 10), layer(GZIP, 2, 5), layer(GZIP, 1, 10)]);
    let facts = parse(&manifest, &config(&[11, 12, 11], json!({}))).unwrap();
    assert_eq!((facts.layers.len(), facts.compressed_size()), (3, 15));
}

#[test]
fn the_annotation_wins_over_created_and_nonsense_is_absent() {
    let mut manifest = manifest(vec![layer(GZIP, 1, 10)]);
    let mut config = config(&[11], json!({}));
    manifest["annotations"] = json!({"org.opencontainers.image.created": "1970-01-01T00:01:00+00:00"});
    assert_eq!(parse(&manifest, &config).unwrap().created, Some(60));
    manifest["annotations"] = json!({});
    for nonsense in [json!("0001-01-01T00:00:00Z"), json!("yesterday"), Value::Null] {
        config["created"] = nonsense;
        assert_eq!(parse(&manifest, &config).unwrap().created, None);
    }
}

/// Where in the documents, what to put there, what the message says.
type Spoil = (&'static str, &'static str, Value, &'static str);

#[test]
fn refusals_name_the_field() {
    let table: Vec<Spoil> = vec![
        ("manifest", "/schemaVersion", json!(3), "manifest cannot be used: schemaVersion: 3 is unknown"),
        ("manifest", "/schemaVersion", json!(1), "schemaVersion: Docker schema 1"),
        ("manifest", "/schemaVersion", json!("2"), "schemaVersion: invalid type"),
        ("manifest", "/mediaType", json!("text/html"), "mediaType: 'text/html' is not an image manifest"),
        (
            "manifest",
            "/mediaType",
            json!("application/vnd.oci.image.index.v1+json"),
            "mediaType: it is an index",
        ),
        (
            "manifest",
            "/config/mediaType",
            json!("application/vnd.oci.empty.v1+json"),
            "config.mediaType: 'application/vnd.oci.empty.v1+json' is not an image configuration",
        ),
        ("manifest", "/config/digest", json!("sha512:0"), "config.digest: digest 'sha512:0': only sha256"),
        ("manifest", "/layers", json!([]), "layers: there is none"),
        ("manifest", "/layers", json!({}), "layers: invalid type: map, expected a list of at most 1000"),
        ("manifest", "/layers/1/size", json!(-1), "layers[1].size: invalid value: integer `-1`"),
        ("manifest", "/layers/1/size", json!(1.5), "layers[1].size: invalid type: floating point"),
        ("manifest", "/layers/1/size", json!(u64::MAX), "layers[1].size: with the layers before it"),
        ("manifest", "/layers/2/digest", json!("x"), "layers[2].digest: digest 'x': it has no algorithm"),
        (
            "manifest",
            "/layers/2/mediaType",
            json!("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"),
            "layers[2].mediaType: 'application/vnd.oci.image.layer.nondistributable.v1.tar+gzip' is a foreign layer",
        ),
        (
            "manifest",
            "/layers/2/mediaType",
            json!("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"),
            "is a foreign layer",
        ),
        (
            "manifest",
            "/layers/2/mediaType",
            json!("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"),
            "is an encrypted layer",
        ),
        (
            "manifest",
            "/layers/0/mediaType",
            json!("application/x-\u{1b}[1mxz"),
            "layers[0].mediaType: 'application/x- [1mxz' is not a layer that is known",
        ),
        (
            "manifest",
            "/layers/3/digest",
            json!(digest(1)),
            "layers[3]: the same blob as layers[0], but with another size",
        ),
        (
            "config",
            "/rootfs/diff_ids",
            json!([digest(11)]),
            "rootfs.diff_ids: 1 diff ids, but the manifest has 4 layers",
        ),
        ("config", "/rootfs/diff_ids/2", json!("x"), "rootfs.diff_ids[2]: digest 'x'"),
        ("config", "/rootfs", json!({}), "rootfs: missing field `diff_ids`"),
        ("config", "/architecture", json!(""), "architecture: it is empty"),
        ("config", "/os", json!(7), "os: invalid type"),
        ("config", "/history/0/created_by", json!([]), "history[0].created_by: invalid type"),
        (
            "config",
            "/config/Labels/ostree.final-diffid",
            json!(digest(99)),
            "config.Labels.\"ostree.final-diffid\": no layer has the diff id",
        ),
        (
            "config",
            "/config/Labels/ostree.final-diffid",
            json!("latest"),
            "config.Labels.\"ostree.final-diffid\": digest 'latest'",
        ),
        (
            "config",
            "/config/Labels/ostree.commit",
            json!("AB"),
            "config.Labels.\"ostree.commit\": 'AB' is no OSTree commit",
        ),
        ("config", "/config/Labels/version", json!(1), "config.Labels.version: invalid type"),
    ];
    for (which, pointer, value, message) in table {
        let (mut manifest, mut config) = native();
        let document = if which == "manifest" { &mut manifest } else { &mut config };
        *document.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        let fault = parse(&manifest, &config).expect_err(pointer);
        assert!(fault.to_string().contains(message), "{pointer}: {fault}");
        assert!(fault.to_string().contains(&format!("image's {which} cannot")), "{pointer}: {fault}");
        assert_eq!(fault.kind.code(), 3);
    }
}

#[test]
fn one_blob_cannot_be_two_things() {
    for (second, diff_id, part) in
        [(layer(ZSTD, 1, 10), 11, "another media type"), (layer(GZIP, 1, 10), 12, "another diff id")]
    {
        let manifest = manifest(vec![layer(GZIP, 1, 10), second]);
        let fault = parse(&manifest, &config(&[11, diff_id], json!({}))).unwrap_err();
        assert!(fault.to_string().contains(part), "{fault}");
    }
}

#[test]
fn limits_are_in_the_message() {
    let layers: Vec<Value> = (0..1001).map(|_| layer(GZIP, 1, 1)).collect();
    let one = config(&[11], json!({}));
    let fault = parse(&manifest(layers), &one).unwrap_err().to_string();
    assert!(fault.contains("layers: invalid length 1001, expected a list of at most 1000"), "{fault}");

    let labels: BTreeMap<String, String> = (0..1001).map(|n| (n.to_string(), String::new())).collect();
    let fault = parse(&manifest(vec![layer(GZIP, 1, 1)]), &config(&[11], json!(labels))).unwrap_err();
    assert!(fault.to_string().contains("a map of at most 1000 texts"), "{fault}");

    let big = vec![b' '; DOCUMENT_SIZE_MAX + 1];
    let fault = ImageFacts::parse(&big, b"{}").unwrap_err().to_string();
    assert!(fault.contains("its size: 4194305 bytes, at most 4194304 are read"), "{fault}");
}

#[test]
fn broken_json_is_refused() {
    let (manifest, config) = native();
    let manifest = serde_json::to_vec(&manifest).unwrap();
    let config = serde_json::to_vec(&config).unwrap();
    let trailing = [config.as_slice(), b"x"].concat();
    for (manifest, config, part) in [
        (&manifest[..manifest.len() - 5], config.as_slice(), "image's manifest"),
        (&manifest, &config[..20], "image's config"),
        (b"", &config, "the document: EOF"),
        (b"[]", &config, "the document: "),
        (b"<html>", &config, "the document: expected value"),
        (&manifest, &trailing, "the document: trailing characters"),
        (&b"\xff\xfe"[..], &config, "the document"),
    ] {
        let fault = ImageFacts::parse(manifest, config).unwrap_err().to_string();
        assert!(fault.contains(part), "{fault}");
    }
    let deep = "[".repeat(100_000);
    assert!(ImageFacts::parse(deep.as_bytes(), &config).is_err());
}

fn index(platforms: &[(&str, &str, Option<&str>)]) -> Value {
    let entries = platforms.iter().enumerate().map(|(number, (os, architecture, variant))| {
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest(u8::try_from(number).unwrap()),
            "size": 500,
            "platform": {"os": os, "architecture": architecture, "variant": variant},
        })
    });
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": entries.collect::<Vec<_>>(),
    })
}

#[test]
fn an_index_has_one_for_this_machine() {
    let raw = index(&[
        ("windows", "amd64", None),
        ("linux", "amd64", Some("v3")),
        ("linux", "amd64", None),
        ("linux", "arm64", Some("v8")),
        ("unknown", "unknown", None),
    ]);
    let bytes = serde_json::to_vec(&raw).unwrap();
    assert!(Index::is_index(&bytes));
    let (other, _) = native();
    assert!(!Index::is_index(&serde_json::to_vec(&other).unwrap()) && !Index::is_index(b"<html>"));

    let index = Index::parse(&bytes).unwrap();
    assert_eq!(index.choose("amd64").unwrap().digest.to_string(), digest(2));
    assert_eq!(index.choose("arm64").unwrap().variant.as_deref(), Some("v8"));
    let fault = index.choose("s390x").unwrap_err();
    assert_eq!(fault.kind.code(), 3);
    assert_eq!(
        fault.to_string(),
        "the image is not made for this machine's architecture, s390x: \
         its index has windows/amd64, linux/amd64/v3, linux/amd64, linux/arm64/v8"
    );
    let fault = parse(&raw, &config(&[11], json!({}))).unwrap_err();
    assert!(fault.to_string().contains("manifests: it is an index of several images"), "{fault}");
}

#[test]
fn a_docker_list_without_platforms_and_nested_indexes() {
    let raw = json!({
        "schemaVersion": 2,
        "manifests": [
            {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest(1), "size": 5},
            {
                "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                "digest": digest(2), "size": 5, "platform": null,
            },
        ],
    });
    let index = Index::parse(&serde_json::to_vec(&raw).unwrap()).unwrap();
    assert_eq!(index.manifests.len(), 1);
    assert!(index.choose("amd64").unwrap_err().to_string().contains("its index has no platform"));
    let fault = Index::parse(br#"{"schemaVersion":2,"manifests":[{"mediaType":"x","size":1}]}"#).unwrap_err();
    assert!(
        fault.to_string().contains("index cannot be used: manifests[0]: missing field `digest`"),
        "{fault}"
    );
}

#[test]
fn machines_are_named_as_images_name_them() {
    for (machine, name) in [("x86_64", "amd64"), ("aarch64", "arm64"), ("i686", "386"), ("s390x", "s390x")] {
        assert_eq!(oci_architecture(machine), name);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(manifest in any::<Vec<u8>>(), config in any::<Vec<u8>>()) {
        let _ = ImageFacts::parse(&manifest, &config);
        let _ = Index::parse(&manifest);
    }

    #[test]
    fn the_base_ends_where_its_diff_id_is(count in 1_usize..40, end in 0_usize..40) {
        prop_assume!(end < count);
        let numbers: Vec<u8> = (0..count).map(|n| u8::try_from(n).unwrap()).collect();
        let manifest = manifest(numbers.iter().map(|n| layer(GZIP, *n, 1)).collect());
        let labels = json!({"ostree.final-diffid": digest(u8::try_from(end).unwrap())});
        let facts = parse(&manifest, &config(&numbers, labels)).unwrap();
        for (index, layer) in facts.layers.iter().enumerate() {
            let expected = match index {
                0 => LayerKind::Commit,
                _ if index <= end => LayerKind::Component,
                _ => LayerKind::Derived,
            };
            prop_assert_eq!(layer.kind, expected);
        }
    }
}
