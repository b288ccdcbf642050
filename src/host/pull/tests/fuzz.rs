//! A bounded run of the fuzz target: kept seeds, and mutations of them that are the same in each run.

use std::path::Path;

use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;
use mcd_test_support::entry::{TarStyle, write_tar};
use std::io::Write as _;

use super::*;
use crate::host::pull::fuzzing::read_layer;

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/layer");

fn seeds() -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = std::fs::read_dir(SEEDS).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    /// Another layer, made from two.
    fn mutate(&mut self, data: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(data.len());
            match self.below(7) {
                0 => data[at] ^= 1 << self.below(8),
                1 => data[at] = [0, 0xff, b'/', b'.', b'7', b' ', 0x80][self.below(7)],
                2 => data.truncate(at + 1),
                3 => {
                    let end = at + self.below((data.len() - at).min(600));
                    data.drain(at..end);
                }
                4 => {
                    let from = self.below(other.len());
                    let piece = other[from..from + self.below((other.len() - from).min(600))].to_vec();
                    data.splice(at..at, piece);
                }
                5 => {
                    // Whole tar blocks change places; then headers stay sound.
                    let blocks = data.len() / 512;
                    let (one, two) = (self.below(blocks) * 512 + 1, self.below(blocks) * 512 + 1);
                    if one.max(two) + 512 <= data.len() {
                        (0..512).for_each(|offset| data.swap(one + offset, two + offset));
                    }
                }
                _ => {
                    let block = self.below(data.len() / 512 + 1);
                    repair(data, block);
                }
            }
            if data.is_empty() {
                data.push(2);
            }
        }
    }
}

/// Changes nothing but the checksum of a tar header, so that what was changed in it is read.
fn repair(data: &mut [u8], block: usize) {
    let Some(header) = data.get_mut(1 + block * 512..1 + (block + 1) * 512) else { return };
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

#[test]
fn root_mutated_layers_are_refused_or_read() {
    let scene = Scene::new();
    let repo = Dir::open_ambient_dir(scene.path("repo"), ambient_authority()).unwrap();
    let runs = std::env::var("MCD_TEST_FUZZ_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let seeds = seeds();
    assert!(seeds.len() > 6, "there are no seeds in {SEEDS}");
    let sound = seeds.iter().filter(|seed| read_layer(&repo, seed).is_ok()).count();
    assert!(sound > 2, "only {sound} seeds are read to their end");
    let mut dice = Dice(0x6d63_6421);
    for run in 0..runs {
        let mut data = seeds[dice.below(seeds.len())].clone();
        let other = seeds[dice.below(seeds.len())].clone();
        dice.mutate(&mut data, &other);
        let result = std::panic::catch_unwind(|| read_layer(&repo, &data).is_ok());
        if result.is_err() {
            let path = Path::new(SEEDS).join(format!("panic-{run}"));
            std::fs::write(&path, &data).unwrap();
            panic!("run {run} panicked; kept as {}", path.display());
        }
    }
    assert_eq!(leftovers(&scene.target).unwrap(), Leftovers::default());
}

/// Writes the first seeds anew. Those that a fuzzer found lie beside them under other names.
#[test]
#[ignore = "changes files of the tree"]
fn write_seeds() {
    let folder = Path::new(SEEDS);
    std::fs::create_dir_all(folder).unwrap();
    let entries = [
        Entry::dir("etc"),
        Entry::file("etc/motd", "hello\n").xattr("user.x", "1").owner(3, 4),
        Entry::whiteout("etc/fixture.conf"),
        Entry::opaque("usr/lib"),
        Entry::file("usr/lib/名", "x".repeat(700)),
        Entry::hard_link("usr/lib/again", "usr/lib/名"),
        Entry::symlink("usr/lib/link", "/etc/".to_owned() + &"long/".repeat(30)),
        Entry::fifo("usr/lib/fifo"),
        Entry::file("var/lib/x", ""),
        Entry::file("d/".repeat(60) + "deep", "deep"),
    ];
    for style in [TarStyle::Pax, TarStyle::Gnu] {
        for compression in [
            Compression::None,
            Compression::Gzip,
            Compression::GzipMembers,
            Compression::Zstd,
            Compression::ZstdChunked,
        ] {
            let mut out = compression.writer(Vec::new()).unwrap();
            write_tar(&mut out, &entries, style, None).unwrap();
            let first = if compression == Compression::None { 0x80 } else { 2 };
            let seed = [vec![first], out.finish().unwrap()].concat();
            std::fs::write(folder.join(format!("plain-{style:?}-{compression:?}").to_lowercase()), seed)
                .unwrap();
        }
    }
    let scene = Scene::new();
    let tree = Tree::empty()
        .with(Entry::file("usr/a", "a").xattr("user.x", "1"))
        .with(Entry::symlink("usr/b", "a"))
        .with(Entry::file("usr/c", "").mode(0o4755));
    let commit = tree.commit(&scene.source, "tiny").unwrap();
    for style in [XattrStyle::Shared, XattrStyle::Inline] {
        let layers = mcd_test_support::encapsulate::encapsulate(
            &scene.source,
            &commit,
            1,
            &|path| path.ends_with('a').then_some(0),
            style,
        );
        for (number, layer) in layers.unwrap().into_iter().enumerate() {
            let mut entries = layer.entries;
            // Its 256 empty folders say nothing that one does not.
            entries.retain(|entry| !entry.name().contains("/objects/") || entry.name().len() > 40);
            let mut out = Vec::new();
            write_tar(&mut out, &entries, TarStyle::Ostree, Some(&scene.source)).unwrap();
            let name = format!("objects-{style:?}-{number}").to_lowercase();
            std::fs::File::create(folder.join(name))
                .unwrap()
                .write_all(&[vec![0x81 + number as u8], out].concat())
                .unwrap();
        }
    }
}
