//! Random trees in random packings come out as they went in.

use mcd_test_support::compress::Compression;
use mcd_test_support::encapsulate::XattrStyle;
use mcd_test_support::entry::{Entry, TarStyle};
use mcd_test_support::process::run;
use mcd_test_support::sysroot::ostree;
use mcd_test_support::tree::{Tree, noise};
use proptest::prelude::*;

use super::{Host, puller};

/// Few in `make test`; `PROPTEST_CASES=500 make test T=random_trees` for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(8)
}

/// An entry somewhere. Files begin with `f`, folders with `d`, so that no path is both.
#[derive(Debug, Clone)]
struct Item {
    folders: Vec<String>,
    name: String,
    kind: u8,
    mode: u32,
    owner: (u32, u32),
    size: usize,
    seed: u64,
    xattr: Option<Vec<u8>>,
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-zA-Z0-9_.+ -]{0,12}",
        1 => "[éß名файл—~#]{1,20}",
        1 => "[a-z]{90,240}",
    ]
}

fn item() -> impl Strategy<Value = Item> {
    let folders = prop::collection::vec("[a-c]|[é名]{1,3}|[a-z]{40,60}", 0..4);
    let size = prop_oneof![3 => 0..2000_usize, 1 => Just(0_usize), 1 => 250_000..600_000_usize];
    let xattr = prop::option::of(prop::collection::vec(any::<u8>(), 0..200));
    let mode = prop_oneof![3 => Just(0o644_u32), 1 => 0..0o10000_u32];
    let owner = prop_oneof![2 => Just((0, 0)), 1 => (0..70_000_u32, 0..70_000_u32)];
    (folders, name(), 0..10_u8, mode, owner, size, 0..6_u64, xattr).prop_map(
        |(folders, name, kind, mode, owner, size, seed, xattr)| Item {
            folders: folders.into_iter().map(|name| format!("d{name}")).collect(),
            name,
            kind,
            mode,
            owner,
            size,
            seed,
            xattr,
        },
    )
}

impl Item {
    fn entry(&self, top: &str) -> Entry {
        let mut folders = vec![top.to_owned()];
        folders.extend(self.folders.iter().cloned());
        let path = |letter: char| format!("{}/{letter}{}", folders.join("/"), self.name);
        let entry = match self.kind {
            0 => {
                return Entry::symlink(
                    path('f'),
                    format!("{}/é{}", "../x".repeat(self.size % 60), self.seed),
                );
            }
            1 => Entry::dir(path('d')).mode(self.mode | 0o100),
            // Equal content at several places is one object.
            2 => Entry::file(path('f'), "a line of text\n".repeat(self.size / 50)).mode(self.mode),
            _ => Entry::file(path('f'), noise(self.seed, self.size)).mode(self.mode),
        };
        let entry = entry.owner(self.owner.0, self.owner.1);
        match &self.xattr {
            Some(value) => entry.xattr("user.fixture", value),
            None => entry,
        }
    }
}

#[derive(Debug, Clone)]
struct Case {
    base: Vec<Item>,
    upper: Vec<Item>,
    /// Which of the base's files the upper layer takes away.
    removed: Vec<prop::sample::Index>,
    chunks: usize,
    compressions: Vec<Compression>,
    xattrs: XattrStyle,
    style: TarStyle,
}

fn case() -> impl Strategy<Value = Case> {
    let compression = prop::sample::select(vec![
        Compression::None,
        Compression::Gzip,
        Compression::GzipMembers,
        Compression::Zstd,
        Compression::ZstdChunked,
    ]);
    (
        prop::collection::vec(item(), 1..40),
        prop::collection::vec(item(), 0..12),
        prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        0..6_usize,
        prop::collection::vec(compression, 8),
        prop::sample::select(vec![XattrStyle::Shared, XattrStyle::Inline]),
        prop::sample::select(vec![TarStyle::Pax, TarStyle::Gnu]),
    )
        .prop_map(|(base, upper, removed, chunks, compressions, xattrs, style)| Case {
            base,
            upper,
            removed,
            chunks,
            compressions,
            xattrs,
            style,
        })
}

fn listing(repo: &str, rev: &str) -> String {
    let output = run(ostree().args(["ls", "-R", "-X", "-C", rev]).arg(format!("--repo={repo}"))).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// libostree does not see empty values when it reads a file, so no commit of a real tree has one.
fn drop_empty_attributes(entry: &mut Entry) {
    if !matches!(entry.node, mcd_test_support::entry::Node::Dir) {
        entry.xattrs.retain(|(_, value)| !value.is_empty());
    }
}

fn check(source: &Host, case: &Case) {
    let mut tree = Tree::v2();
    let mut base: Vec<Entry> = case.base.iter().map(|item| item.entry("usr/random")).collect();
    base.iter_mut().for_each(drop_empty_attributes);
    for entry in &base {
        tree = tree.with(entry.clone());
    }
    let mut image = source.image_of(&tree).chunks(case.chunks).xattrs(case.xattrs);
    for (layer, compression) in case.compressions.iter().take(case.chunks + 2).enumerate() {
        image = image.layer_compression(layer, *compression);
    }
    let mut layer = Vec::new();
    for index in &case.removed {
        let entry = index.get(&base);
        let (name, is_dir) = (entry.name(), matches!(entry.node, mcd_test_support::entry::Node::Dir));
        if !is_dir && !layer.iter().any(|other: &Entry| other.path == Entry::whiteout(&name).path) {
            layer.push(Entry::whiteout(&name));
            tree = tree.without(&name);
        }
    }
    // The upper layer's own folder: what it implies there is root's, 0755.
    let mut upper = std::collections::BTreeMap::new();
    for entry in case.upper.iter().map(|item| item.entry("usr/upper")) {
        upper.insert(entry.name(), entry);
    }
    for entry in upper.into_values() {
        layer.push(entry.clone());
        let mut entry = entry;
        drop_empty_attributes(&mut entry);
        tree = tree.with(entry);
    }
    let layered = !layer.is_empty();
    if layered {
        image = image.derived_in(case.style, layer);
    }
    let dir = tempfile::tempdir_in(source.scratch.path()).unwrap();
    let written = image.write(dir.path(), "v").unwrap();
    let wanted = tree.commit(&source.repo, "wanted").unwrap();
    let host = puller();
    host.mcd(&["pull", &written.reference()]).ok();
    let repo = host.sysroot.path().join("ostree/repo").to_str().unwrap().to_owned();
    let seen = listing(&repo, &host.image_refs()[0]);
    let wanted = listing(source.scratch.join("source").to_str().unwrap(), &wanted);
    // Folders that only whiteouts emptied stay: they are compared by what both trees have.
    let differing: Vec<_> = wanted.lines().filter(|line| !seen.lines().any(|other| other == *line)).collect();
    if case.removed.is_empty() {
        assert!(seen == wanted, "{differing:#?}\n{seen}\n{wanted}");
    } else {
        let files = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('d')).map(str::to_owned).collect()
        };
        assert_eq!(files(&seen), files(&wanted), "{differing:#?}");
    }
    host.sysroot.fsck().unwrap();
}

#[test]
fn root_random_trees_come_out_as_they_went_in() {
    let source = puller();
    let config = ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() };
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { max_shrink_iters: 60, ..config });
    runner
        .run(&case(), |case| {
            check(&source, &case);
            Ok(())
        })
        .unwrap();
}
