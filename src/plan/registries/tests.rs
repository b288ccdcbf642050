use super::*;

/// Compares, and makes sure that the comparison with itself says `Same`.
fn meaning(old: &str, new: &str) -> Meaning {
    for text in [old, new] {
        if text.parse::<Table>().is_ok() {
            assert_eq!(compare(Some(text.as_bytes()), Some(text.as_bytes())), Meaning::Same);
        }
    }
    compare(Some(old.as_bytes()), Some(new.as_bytes()))
}

#[track_caller]
fn is_safe(old: &str, new: &str) {
    assert_eq!(meaning(old, new), Meaning::Safe, "{old}\n->\n{new}");
}

#[track_caller]
fn is_unsafe(old: &str, new: &str, why: &str) {
    assert_eq!(meaning(old, new), Meaning::Unsafe(why.to_owned()), "{old}\n->\n{new}");
}

/// A registry with these lines and mirrors: name, and a line about it.
fn registry(location: &str, lines: &str, mirrors: &[(&str, &str)]) -> String {
    let mut text = format!("[[registry]]\nlocation = \"{location}\"\n{lines}\n");
    for (location, line) in mirrors {
        text.push_str(&format!("[[registry.mirror]]\nlocation = \"{location}\"\n{line}\n"));
    }
    text
}

const BY_DIGEST: &str = "pull-from-mirror = \"digest-only\"";
const BY_TAG: &str = "pull-from-mirror = \"tag-only\"";

#[test]
fn spelling_is_no_change() {
    let old = "unqualified-search-registries = ['a', 'b']\nshort-name-mode = ''\n";
    let new =
        "# comment\nshort-name-mode = \"\"\n\nunqualified-search-registries = [\n  \"a\",\n  \"b\",\n]\n";
    assert_eq!(meaning(old, new), Meaning::Same);
    assert_eq!(compare(None, Some(b"# nothing\n")), Meaning::Same);
    // Where a list of tables is only in another order, CRI-O reads it again, without a drain.
    let (a, b) = (registry("a", "", &[]), registry("b", "", &[]));
    is_safe(&format!("{a}{b}"), &format!("{b}{a}"));
    is_safe(&registry("a", "", &[]), &registry("a", "blocked = false\nprefix = \"a/\"", &[]));
}

#[test]
fn short_names() {
    let list = |names: &str| format!("unqualified-search-registries = [{names}]\n");
    is_safe(&list("'a'"), &list("'a', 'b'"));
    is_safe("", &list("'a'"));
    let elsewhere = "short image names may be looked up elsewhere";
    is_unsafe(&list("'a', 'b'"), &list("'b', 'a'"), elsewhere);
    is_unsafe(&list("'a', 'b'"), &list("'a'"), elsewhere);
    is_unsafe(&list("'a'"), &list("'b', 'a'"), elsewhere);
    is_unsafe(&list("'a'"), "", elsewhere);
    is_unsafe("", &list("1"), "unqualified-search-registries is no list of names");
}

#[test]
fn a_registry_that_goes() {
    is_unsafe(&registry("a/b", "", &[]), "", "registry a/b goes");
    is_unsafe(&registry("a", "prefix = 'p'", &[]), &registry("a", "", &[]), "registry p goes");
}

#[test]
fn a_registry_that_is_new() {
    is_safe("", &registry("a", "mirror-by-digest-only = true", &[("m", "")]));
    is_safe("", &registry("a", "", &[("m", BY_DIGEST), ("n", BY_DIGEST)]));
    is_safe("", &registry("a", "mirror-by-digest-only = true", &[]));
    is_safe("", &registry("a", "", &[("m", &format!("{BY_DIGEST}\ninsecure = true"))]));
    is_unsafe("", &registry("a", "", &[]), "new registry a has no mirrors");
    is_unsafe("", &registry("a", "", &[("m", BY_DIGEST), ("n", "")]), "new registry a is asked for tags");
    is_unsafe("", &registry("a", "", &[("m", BY_TAG)]), "new registry a is asked for tags");
}

#[test]
fn a_registry_that_changes() {
    let old = registry("a", "", &[("m", BY_DIGEST)]);
    for (lines, why) in [
        ("blocked = true", "registry a: blocked changes"),
        ("insecure = true", "registry a: insecure changes"),
    ] {
        is_unsafe(&old, &registry("a", lines, &[("m", BY_DIGEST)]), why);
    }
    let prefixed = |location: &str| registry(location, "prefix = 'p'", &[]);
    is_unsafe(&prefixed("a"), &prefixed("b"), "registry p: location changes");
}

#[test]
fn mirrors() {
    let with = |mirrors: &[(&str, &str)]| registry("a", "", mirrors);
    is_safe(&with(&[]), &with(&[("m", BY_DIGEST)]));
    is_safe(&with(&[("m", "")]), &with(&[("m", BY_DIGEST)]));
    is_safe(&with(&[("m", BY_TAG)]), &with(&[("m", BY_DIGEST)]));
    is_safe(&with(&[("m", "")]), &with(&[("n", BY_DIGEST), ("m", "")]));
    is_unsafe(&with(&[("m", BY_DIGEST)]), &with(&[]), "registry a: mirror m goes");
    is_unsafe(&with(&[]), &with(&[("m", "")]), "registry a: new mirror m is asked for tags");
    is_unsafe(
        &with(&[("m", BY_DIGEST)]),
        &with(&[("m", "pull-from-mirror = 'all'")]),
        "registry a: mirror m is asked for tags",
    );
    is_unsafe(&with(&[("m", "")]), &with(&[("m", BY_TAG)]), "registry a: mirror m is asked for tags");
    let digest_only = registry("a", "mirror-by-digest-only = true", &[("m", "")]);
    is_safe(&with(&[("m", "")]), &digest_only);
    is_safe(&digest_only, &with(&[("m", BY_DIGEST)]));
    is_safe(&digest_only, &registry("a", "mirror-by-digest-only = true", &[("m", ""), ("n", "")]));
}

// What the Go daemon does not see: each of these it calls safe.

#[test]
fn blind_spot_the_flag_alone_is_taken_away() {
    is_unsafe(
        &registry("a", "mirror-by-digest-only = true", &[("m", "")]),
        &registry("a", "", &[("m", "")]),
        "registry a: mirror m is asked for tags",
    );
}

#[test]
fn blind_spot_a_new_registry_blocks_or_leads_elsewhere() {
    let mirrors = &[("m", BY_DIGEST)];
    is_unsafe("", &registry("a", "blocked = true", mirrors), "new registry a is blocked");
    is_unsafe("", &registry("a", "insecure = true", mirrors), "new registry a is insecure");
    is_unsafe("", &registry("b", "prefix = 'a'", mirrors), "new registry a leads elsewhere");
}

#[test]
fn blind_spot_a_new_registry_hides_a_wider_one() {
    let wide = registry("a", "", &[("m", BY_DIGEST)]);
    let narrow = |mirrors: &[(&str, &str)]| format!("{wide}{}", registry("a/b", "", mirrors));
    is_unsafe(&wide, &narrow(&[("n", BY_DIGEST)]), "new registry a/b takes images from a");
    is_unsafe(&wide, &narrow(&[("m", BY_DIGEST)]), "new registry a/b takes images from a");
    is_safe(&wide, &narrow(&[("m/b", BY_DIGEST), ("n", BY_DIGEST)]));
    let beside = format!("{wide}{}", registry("ab", "", &[("n", BY_DIGEST)]));
    is_safe(&wide, &beside);

    let tags = registry("a", "", &[("m", "")]);
    let below = format!("{tags}{}", registry("a/b", "", &[("m/b", BY_DIGEST)]));
    is_unsafe(&tags, &below, "new registry a/b takes images from a");

    let blocked = registry("a", "blocked = true", &[]);
    let below = format!("{blocked}{}", registry("a/b", "", &[("m", BY_DIGEST)]));
    is_unsafe(&blocked, &below, "new registry a/b takes images from a");

    let domain = "[[registry]]\nprefix = '*.example.com'\n[[registry.mirror]]\nlocation = 'm'\n";
    let below = format!("{domain}{}", registry("x.example.com/b", "", &[("m", BY_DIGEST)]));
    is_unsafe(domain, &below, "new registry x.example.com/b takes images from *.example.com");
}

#[test]
fn blind_spot_how_a_mirror_is_reached() {
    is_unsafe(
        &registry("a", "", &[("m", &format!("{BY_DIGEST}\ninsecure = true"))]),
        &registry("a", "", &[("m", BY_DIGEST)]),
        "registry a: how mirror m is reached changes",
    );
}

#[test]
fn blind_spot_the_order_of_mirrors_for_tags() {
    let order = "registry a: the order of mirrors that are asked for tags changes";
    let with = |mirrors: &[(&str, &str)]| registry("a", "", mirrors);
    is_unsafe(&with(&[("m", ""), ("n", "")]), &with(&[("n", ""), ("m", "")]), order);
    is_unsafe(&with(&[("m", BY_TAG), ("n", "")]), &with(&[("n", ""), ("m", BY_TAG)]), order);
    is_safe(&with(&[("m", BY_DIGEST), ("n", BY_DIGEST)]), &with(&[("n", BY_DIGEST), ("m", BY_DIGEST)]));
    is_safe(&with(&[("m", ""), ("n", BY_DIGEST)]), &with(&[("n", BY_DIGEST), ("m", "")]));
}

#[test]
fn blind_spot_keys_that_are_not_judged() {
    is_unsafe(
        "short-name-mode = 'permissive'\n",
        "short-name-mode = 'enforcing'\n",
        "short-name-mode changes",
    );
    is_unsafe("", "credential-helpers = ['x']\n", "credential-helpers changes");
    is_unsafe("", "[aliases]\nos = 'a/os'\n", "aliases changes");
    is_unsafe("[registries.search]\nregistries = ['a']\n", "", "registries changes");
    let strange = "registry a: a key that mcd does not know changes";
    is_unsafe(&registry("a", "", &[]), &registry("a", "new-key = 1", &[]), strange);
    is_unsafe(&registry("a", "new-key = 2", &[]), &registry("a", "new-key = 1", &[]), strange);
}

#[test]
fn blind_spot_a_registry_that_stands_twice() {
    let twice = format!("{}{}", registry("a", "", &[]), registry("a", "blocked = true", &[]));
    is_unsafe(&registry("a", "", &[]), &twice, "registry a stands twice, and differs");
    is_safe(&registry("a", "", &[]), &format!("{0}{0}", registry("a", "", &[])));
    let mirrors = registry("a", "", &[("m", BY_DIGEST), ("m", "")]);
    is_unsafe(&registry("a", "", &[("m", BY_DIGEST)]), &mirrors, "registry a: mirror m stands twice");
}

#[test]
fn what_cannot_be_read_is_unsafe() {
    is_unsafe("a = [", "", "the file before the change is no valid TOML");
    is_unsafe("", "a = [", "the file after the change is no valid TOML");
    assert_eq!(
        compare(Some(b"\xff"), None),
        Meaning::Unsafe("the file before the change is no text".to_owned())
    );
    is_unsafe("", "registry = 1\n", "registry is no list of tables");
    is_unsafe("", "registry = [1]\n", "registry is no list of tables");
    is_unsafe("", "[[registry]]\nblocked = true\n", "a registry has neither prefix nor location");
    is_unsafe("", &registry("a", "blocked = 1", &[]), "blocked of a registry is neither true nor false");
    is_unsafe("", &registry("a", "mirror = 1", &[]), "mirrors of a are no list of tables");
    is_unsafe(
        "",
        &registry("a", "", &[("m", "pull-from-mirror = 'x'")]),
        "mirror m: pull-from-mirror has no known value",
    );
}

proptest::proptest! {
    #[test]
    fn no_input_panics(old in ".{0,100}", new in "(\\[\\[registry\\]\\]\n(location = '.{0,5}'\n)?(mirror = .{0,5}\n)?){0,3}") {
        let _ = compare(Some(old.as_bytes()), Some(new.as_bytes()));
        let _ = compare(Some(new.as_bytes()), Some(old.as_bytes()));
    }
}
