//! What the program is made of: the part of deny.toml that needs no tool.
//!
//! cargo-deny reads the same file and more closely, but takes minutes to compile; this takes none.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const TREE: &str = env!("CARGO_MANIFEST_DIR");

fn read(name: &str) -> String {
    let tree = cap_std::fs::Dir::open_ambient_dir(Path::new(TREE), cap_std::ambient_authority()).unwrap();
    tree.read_to_string(name).unwrap()
}

/// The quoted words in the list that `head` begins: as much of TOML as deny.toml uses.
fn list(deny: &str, head: &str) -> BTreeSet<String> {
    let body = deny.split_once(head).and_then(|(_, rest)| rest.split_once("\n]")).expect(head).0;
    let words = body.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    words.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

/// What is compiled in for this machine, tests included.
fn packages() -> Vec<Value> {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(rustc.stdout).unwrap();
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--offline", "--locked", "--filter-platform", host])
        .current_dir(TREE)
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let mut metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("no list of packages: {other}"),
    }
}

/// Every part of an SPDX expression must be let in by one of its alternatives. Brackets are read in
/// the stricter way.
fn is_let_in(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let flat = expression.replace(['(', ')'], "").replace('/', " OR ");
    flat.split(" AND ").all(|part| part.split(" OR ").any(|licence| allowed.contains(licence.trim())))
}

#[test]
fn supply_chain_licences_sources_and_bans() {
    let deny = read("deny.toml");
    let (allowed, banned) = (list(&deny, "\nallow = ["), list(&deny, "\ndeny = ["));
    assert!(allowed.contains("Apache-2.0") && banned.contains("ring"), "{allowed:?} {banned:?}");

    let packages = packages();
    assert!(packages.len() > 100, "only {} packages were looked at", packages.len());
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none");
        assert!(
            is_let_in(licence, &allowed),
            "{name}: the licence '{licence}' is not on the list in deny.toml"
        );
        assert!(!banned.contains(name), "{name} is banned in deny.toml");
        // Our own packages have none; a git or a private source would say so.
        let source = package["source"].as_str().unwrap_or("registry+");
        assert!(source.starts_with("registry+"), "{name} comes from {source}");
    }
}

#[test]
fn supply_chain_expressions() {
    let allowed = ["MIT", "Apache-2.0"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0-only OR MIT", true),
        ("MIT/Apache-2.0", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", false),
        ("MIT AND Apache-2.0", true),
        ("GPL-3.0-only", false),
        ("none", false),
    ] {
        assert_eq!(is_let_in(expression, &allowed), expected, "{expression}");
    }
}
