//! The fixtures are right if the other implementation of the format says so.
//!
//! Needs root (a `bare` repo keeps owners) and the oracle, which `tests/oracle.sh` builds once.

#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::process::Command;

use mcd_test_support::compress::Compression;
use mcd_test_support::encapsulate::XattrStyle;
use mcd_test_support::entry::Entry;
use mcd_test_support::image::{Format, Image, Written, resolve};
use mcd_test_support::tree::{Tree, create_repo};

/// The oracle's program.
fn oracle() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oracle.sh");
    let output = Command::new(script).output().expect("tests/oracle.sh runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

fn run(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

struct Pulled {
    repo: PathBuf,
    _scratch: tempfile::TempDir,
}

/// Lets the oracle import `image` into a fresh repo.
fn pull(image: &Written) -> Result<Pulled, String> {
    let scratch = tempfile::tempdir().unwrap();
    let repo = scratch.path().join("repo");
    create_repo(&repo, ostree::RepoMode::Bare).unwrap();
    let as_dir = || image.copy_to_dir(&scratch.path().join("dir")).unwrap();
    let transport = if image.media_type.contains("docker") { as_dir() } else { image.reference() };
    let reference = format!("ostree-unverified-image:{transport}");
    run(&oracle(), &["container", "image", "pull", repo.to_str().unwrap(), &reference, "--quiet"])?;
    run(Path::new("ostree"), &["fsck", "--quiet", &format!("--repo={}", repo.display())])?;
    Ok(Pulled { repo, _scratch: scratch })
}

fn source() -> (tempfile::TempDir, ostree::Repo) {
    let scratch = tempfile::tempdir().unwrap();
    let repo = create_repo(&scratch.path().join("source"), ostree::RepoMode::Archive).unwrap();
    Tree::v1().commit(&repo, "fixture/1").unwrap();
    Tree::v2().commit(&repo, "fixture/2").unwrap();
    (scratch, repo)
}

/// `ostree ls -R -X -C` of the only image in a repo: every path with its mode, owner, attributes
/// and content checksum.
fn listing(repo: &Path, rev: &str) -> String {
    run(Path::new("ostree"), &["ls", "-R", "-X", "-C", &format!("--repo={}", repo.display()), rev]).unwrap()
}

fn image_ref(repo: &Path) -> String {
    let refs = run(Path::new("ostree"), &["refs", &format!("--repo={}", repo.display())]).unwrap();
    refs.lines().find(|name| name.starts_with("ostree/container/image/")).expect("an image ref").to_owned()
}

#[test]
fn root_every_honest_base_image_gives_the_tree_back() {
    let (scratch, repo) = source();
    let commit = resolve(&repo, "fixture/1").unwrap();
    let wanted = listing(&scratch.path().join("source"), &commit);
    let of = || Image::of(&repo, &commit);
    // Left out: several gzip members, of which the oracle reads the first only.
    let cases: Vec<(&str, Image)> = vec![
        ("single", of()),
        ("chunked", of().chunks(4)),
        ("zstd", of().chunks(3).compression(Compression::Zstd)),
        ("plain tar", of().chunks(2).compression(Compression::None)),
        ("zstd frames", of().chunks(2).compression(Compression::ZstdChunked)),
        ("inline attributes", of().chunks(2).xattrs(XattrStyle::Inline)),
        ("docker", of().chunks(2).format(Format::Docker)),
        ("empty chunk", of().chunk_by(|_| Some(0)).chunks(2)),
    ];
    for (name, image) in cases {
        let written = image.write(&scratch.path().join(name.replace(' ', "-")), "v1").unwrap();
        let pulled = pull(&written).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(listing(&pulled.repo, &image_ref(&pulled.repo)), wanted, "{name}");
    }
}

#[test]
fn root_a_derived_image_is_taken() {
    let (scratch, repo) = source();
    let written = Image::of(&repo, &resolve(&repo, "fixture/1").unwrap())
        .chunks(2)
        .derived(vec![
            Entry::dir("etc"),
            Entry::file("etc/motd", "hello\n"),
            Entry::whiteout("etc/fixture.conf"),
            Entry::dir("usr/lib/fixture/private"),
            Entry::opaque("usr/lib/fixture/private"),
            Entry::file("usr/lib/fixture/名", "x"),
            Entry::hard_link("usr/lib/fixture/名-again", "usr/lib/fixture/名"),
        ])
        .derived(vec![Entry::file("var/lib/thing/x", "state\n")])
        .write(&scratch.path().join("oci"), "v1")
        .unwrap();
    let pulled = pull(&written).unwrap();
    let seen = listing(&pulled.repo, &image_ref(&pulled.repo));
    for (path, is_there) in [
        ("/usr/etc/motd", true),
        ("/usr/etc/fixture.conf", false),
        ("/usr/lib/fixture/private/key", false),
        ("/usr/lib/fixture/名-again", true),
        ("/usr/share/factory/var/lib/thing/x", true),
    ] {
        assert_eq!(seen.lines().any(|line| line.ends_with(path)), is_there, "{path}\n{seen}");
    }
}

#[test]
fn root_lies_are_refused() {
    use mcd_test_support::layer::Lie;
    let (scratch, repo) = source();
    let commit = resolve(&repo, "fixture/1").unwrap();
    for lie in
        [Lie::WrongDigest, Lie::Corrupt(5000), Lie::Missing, Lie::TarEnds(200_000), Lie::StreamEnds(500)]
    {
        let dir = scratch.path().join("lie");
        let written = Image::of(&repo, &commit).lie(0, lie.clone()).write(&dir, "v1").unwrap();
        assert!(pull(&written).is_err(), "{lie:?}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}

/// What a reader sees of a gzip layer: names, links, modes, owners and data, in order.
fn entries_of(layout: &Path, blob: &str) -> Vec<String> {
    let file = std::fs::File::open(layout.join("blobs").join(blob.replace(':', "/"))).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let read = |entry: std::io::Result<tar::Entry<_>>| {
        use std::io::Read as _;
        let mut entry = entry.unwrap();
        let mut data = Vec::new();
        entry.read_to_end(&mut data).unwrap();
        let header = entry.header();
        format!(
            "{:?} {:o} {}:{} {} {:?} -> {:?} {}",
            header.entry_type(),
            header.mode().unwrap(),
            header.uid().unwrap(),
            header.gid().unwrap(),
            header.mtime().unwrap(),
            String::from_utf8(entry.path_bytes().to_vec()).unwrap(),
            entry.link_name_bytes().map(|link| String::from_utf8(link.to_vec()).unwrap()),
            mcd_test_support::layout::digest_of(&data),
        )
    };
    archive.entries().unwrap().map(read).collect()
}

#[test]
fn root_a_layer_reads_as_the_oracle_writes_it() {
    let (scratch, repo) = source();
    let ours = Image::of(&repo, &resolve(&repo, "fixture/1").unwrap())
        .write(&scratch.path().join("ours"), "v1")
        .unwrap();
    let theirs = scratch.path().join("theirs");
    let from = format!("--repo={}", scratch.path().join("source").display());
    let to = format!("oci:{}:v1", theirs.display());
    run(&oracle(), &["container", "encapsulate", &from, "fixture/1", &to]).unwrap();
    let read = |digest: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(theirs.join("blobs").join(digest.replace(':', "/"))).unwrap())
            .unwrap()
    };
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(theirs.join("index.json")).unwrap()).unwrap();
    let manifest = read(index["manifests"][0]["digest"].as_str().unwrap());
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(layers.len(), ours.layers.len());
    let wanted = entries_of(&theirs, layers[0]["digest"].as_str().unwrap());
    let seen = entries_of(&ours.dir, &ours.layers[0].digest);
    for (number, (seen, wanted)) in seen.iter().zip(&wanted).enumerate() {
        assert_eq!(seen, wanted, "entry {number}");
    }
    assert_eq!(seen.len(), wanted.len());
}

#[test]
fn root_a_legacy_image_holds_a_sound_repo() {
    let (scratch, repo) = source();
    let image = Image::legacy(&repo, &["fixture/1", "fixture/2"]).unwrap();
    let written = image.write(&scratch.path().join("oci"), "legacy").unwrap();
    let root = scratch.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let blob = written.dir.join("blobs").join(written.layers[0].digest.replace(':', "/"));
    run(Path::new("tar"), &["-xzf", blob.to_str().unwrap(), "-C", root.to_str().unwrap()]).unwrap();
    let unpacked = format!("--repo={}", root.join("srv/repo").display());
    run(Path::new("ostree"), &["fsck", "--quiet", &unpacked]).unwrap();
    let refs = run(Path::new("ostree"), &["refs", &unpacked]).unwrap();
    assert_eq!(refs.lines().count(), 2, "{refs}");
    let config: serde_json::Value = {
        let read = |digest: &str| -> serde_json::Value {
            let path = written.dir.join("blobs").join(digest.replace(':', "/"));
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
        };
        read(read(&written.digest)["config"]["digest"].as_str().unwrap())
    };
    let commit = resolve(&repo, "fixture/1").unwrap();
    assert_eq!(config["config"]["Labels"]["com.coreos.ostree-commit"], commit.as_str());
}
