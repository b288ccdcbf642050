//! Any bytes as a layer: an error will do, a panic will not.

#![no_main]

use std::sync::OnceLock;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use libfuzzer_sys::fuzz_target;
use ostree::gio;

/// A repo that lives as long as the fuzzer.
fn repo() -> &'static Dir {
    static REPO: OnceLock<Dir> = OnceLock::new();
    REPO.get_or_init(|| {
        let path = tempfile::tempdir().expect("a temporary folder").keep();
        let repo = ostree::Repo::new_for_path(&path);
        repo.create(ostree::RepoMode::Bare, gio::Cancellable::NONE).expect("a repo");
        Dir::open_ambient_dir(&path, ambient_authority()).expect("the repo's folder")
    })
}

fuzz_target!(|data: &[u8]| {
    let _ = mcd::host::pull::fuzzing::read_layer(repo(), data);
});
