use proptest::prelude::*;

use super::KargEdit::{Append, AppendIfMissing, Delete, DeleteExact, Replace};
use super::*;

fn edit(before: &str, edits: &[KargEdit]) -> String {
    KernelArguments::parse(before).apply(edits).unwrap_or_else(|error| panic!("{error}")).to_string()
}

#[test]
fn splits_at_white_space_outside_of_quotes() {
    for (text, expected) in [
        ("", vec![]),
        (" \t\n ", vec![]),
        ("quiet", vec!["quiet"]),
        ("  a=1\tb \n c ", vec!["a=1", "b", "c"]),
        (r#"foo="a b" bar"#, vec![r#"foo="a b""#, "bar"]),
        (r#""foo=a b" bar"#, vec![r#""foo=a b""#, "bar"]),
        (r#"a b="c d"#, vec!["a", r#"b="c d"#]),
        ("a a a=1 a=1", vec!["a", "a", "a=1", "a=1"]),
        ("dyndbg=\"file a +p; file b +p\" x", vec!["dyndbg=\"file a +p; file b +p\"", "x"]),
    ] {
        let arguments = KernelArguments::parse(text);
        assert_eq!(arguments.arguments(), expected, "{text}");
        assert_eq!(KernelArguments::parse(&arguments.to_string()), arguments, "{text}");
    }
}

#[test]
fn compares_as_the_kernel_does() {
    for (one, other, equal) in [
        ("nosmt", "nosmt", true),
        ("nosmt", "nosmt=force", false),
        ("nosmt=force", "nosmt", false),
        ("nosmt=", "nosmt", false),
        ("a-b=1", "a_b=1", true),
        ("a=x-y", "a=x_y", false),
        (r#"foo="a b""#, r#""foo=a b""#, true),
        (r#"foo="bar""#, "foo=bar", true),
        ("Foo", "foo", false),
        ("systemd.unified_cgroup_hierarchy=0", "systemd.unified-cgroup-hierarchy=0", true),
        ("foobar", "foo", false),
    ] {
        assert_eq!(KernelArguments::parse(one).contains(other), equal, "{one} {other}");
        assert_eq!(
            KernelArguments::parse(one).is_equivalent(&KernelArguments::parse(other)),
            equal,
            "{one} {other}"
        );
    }
    assert!(!KernelArguments::parse("a b").is_equivalent(&KernelArguments::parse("b a")));
    assert!(!KernelArguments::parse("a").is_equivalent(&KernelArguments::parse("a a")));
}

#[test]
fn without_takes_a_key_away() {
    let arguments = KernelArguments::parse("a ostree=/x/0 ostree.x b ostree");
    assert_eq!(arguments.without("ostree").to_string(), "a ostree.x b");
}

#[test]
fn edits_table() {
    let huge = "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6";
    for (before, edits, after) in [
        ("a", vec![Append("b=1".into())], "a b=1"),
        ("a", vec![Append("a".into())], "a"),
        (
            "x console=tty0",
            vec![Append("console=tty0".into()), Append("console=ttyS0".into())],
            "x console=tty0 console=ttyS0",
        ),
        (
            "hugepagesz=1G hugepages=4",
            vec![Append("hugepagesz=2M hugepages=4".into())],
            "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4",
        ),
        ("y=0 z=4 y=1 z=4", vec![Append("y=0 z=4 y=1 z=4".into())], "y=0 z=4 y=1 z=4"),
        ("", vec![Append(huge.into())], huge),
        ("a", vec![Append(r#"b="c d""#.into()), Append("e\tf".into())], r#"a b="c d" e f"#),
        ("a b-c", vec![AppendIfMissing("b_c".into()), AppendIfMissing("d".into())], "a b-c d"),
        ("nosmt=force", vec![AppendIfMissing("nosmt".into())], "nosmt=force nosmt"),
        ("a b a=1 c", vec![Delete("a".into())], "b c"),
        ("a b a=1 a=2 a=1", vec![Delete("a=1".into())], "a b a=2"),
        ("a", vec![Delete("b".into()), Delete("c=1".into())], "a"),
        ("x a-b=1", vec![Delete("a_b".into())], "x"),
        (r#"a "b=c d""#, vec![Delete(r#"b="c d""#.into())], "a"),
        (r#"a "b=c d""#, vec![Delete("b".into())], "a"),
        ("a b=1 c", vec![Delete("a c".into())], "b=1"),
        ("nosmt nosmt=force", vec![DeleteExact("nosmt".into())], "nosmt=force"),
        ("nosmt=force", vec![DeleteExact("nosmt".into())], "nosmt=force"),
        ("a b=1 c", vec![Replace("b=2".into())], "a b=2 c"),
        ("a b=1 c b=3", vec![Replace("b=2".into())], "a b=2 c"),
        ("a", vec![Replace("b=2".into())], "a b=2"),
        ("nosmt=force x", vec![Replace("nosmt".into())], "nosmt x"),
        ("a b-c=\"1\"", vec![Replace("b_c=1".into())], "a b-c=\"1\""),
        (
            "console=tty0 x console=ttyS0",
            vec![Replace("console=tty0=tty1".into())],
            "console=tty1 x console=ttyS0",
        ),
        ("console=tty1", vec![Replace("console=tty0=tty1".into())], "console=tty1"),
        ("root=/dev/sda1 ro", vec![Replace("root=UUID=ab-cd".into())], "root=UUID=ab-cd ro"),
        ("ro", vec![Replace("root=LABEL=x".into())], "ro root=LABEL=x"),
        ("rootflags=subvol=a ro", vec![Replace("rootflags=subvol=b".into())], "rootflags=subvol=b ro"),
        ("rootflags=subvol=b", vec![Replace("rootflags=subvol=b".into())], "rootflags=subvol=b"),
        ("a=1", vec![Replace("a=\"b=c\"".into())], "a=\"b=c\""),
        // Whatever the order they are typed in: delete, replace, append.
        ("a b=1 c", vec![Append("a".into()), Replace("b=2".into()), Delete("a".into())], "b=2 c a"),
        ("ostree=/x a", vec![Delete("a".into()), Append("b".into())], "ostree=/x b"),
        ("a \"b", vec![Delete("\"b\"".into())], "a"),
    ] {
        assert_eq!(edit(before, &edits), after, "{before} {edits:?}");
    }
}

#[test]
fn refusals_name_the_argument() {
    for (before, edit, reason) in [
        ("", Append(String::new()), "kernel argument '': it is empty"),
        ("", Delete("  ".into()), "it is empty"),
        ("", Append("ostree=/x".into()), "kernel argument 'ostree=/x': 'ostree=' is set by OSTree"),
        ("", Append("a ostree=/x".into()), "'ostree=' is set by OSTree"),
        ("", Append("\"ostree=/x y\"".into()), "'ostree=' is set by OSTree"),
        ("", Delete("ostree".into()), "'ostree=' is set by OSTree"),
        ("", Replace("ostree=/x".into()), "'ostree=' is set by OSTree"),
        ("", Append("a\nb".into()), "kernel argument 'a\u{fffd}b': it holds a line end"),
        ("", Append("a\0".into()), "control character"),
        ("", Append("a=\"b".into()), "a double quote is never closed"),
        ("", Append("=1".into()), "an argument has no key"),
        ("", Append("\"\"".into()), "an argument has no key"),
        ("a=\"b", Append("c".into()), "it would become part of 'a=\"b'"),
        ("console=tty2", Replace("console=tty0=tty1".into()), "'console=tty0' is not there to be replaced"),
        ("", Replace("rootflags=subvol=b".into()), "delete 'rootflags' and append it"),
    ] {
        let error = KernelArguments::parse(before).apply(std::slice::from_ref(&edit)).expect_err(before);
        assert!(error.to_string().contains(reason), "{edit:?}: {error}");
        assert_eq!(Fault::from(error).kind.code(), 2);
    }
}

fn argument() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-d_-]{1,3}",
        "[a-d]{1,2}=[a-z0-9,=]{0,4}",
        "[a-d]{1,2}=\"[a-z ]{0,5}\"",
        "\"[a-d]=[a-z ]{0,5}\"",
    ]
}

/// Each kind has keys of its own: what is both deleted and added moves to the end.
fn edits() -> impl Strategy<Value = Vec<KargEdit>> {
    let edit = prop_oneof![
        "[a-b](=[a-z]{1,2})?".prop_map(AppendIfMissing),
        "[c-d](=[a-z]{1,2})?".prop_map(Delete),
        "[c-d](=[a-z]{1,2})?".prop_map(DeleteExact),
        "e=[a-z]{1,2}".prop_map(Replace),
    ];
    proptest::collection::vec(edit, 0..5)
}

proptest! {
    #[test]
    fn parse_is_the_inverse_of_display(list in proptest::collection::vec(argument(), 0..8)) {
        let text = list.join(" ");
        let arguments = KernelArguments::parse(&text);
        prop_assert_eq!(arguments.arguments(), list);
        prop_assert_eq!(arguments.to_string(), text);
    }

    #[test]
    fn any_text_survives(text in any::<String>()) {
        let arguments = KernelArguments::parse(&text);
        prop_assert_eq!(KernelArguments::parse(&arguments.to_string()), arguments);
    }

    #[test]
    fn twice_is_once(list in proptest::collection::vec(argument(), 0..8), edits in edits()) {
        let before = KernelArguments::parse(&list.join(" "));
        let once = before.apply(&edits).unwrap();
        prop_assert!(once.apply(&edits).unwrap().is_equivalent(&once));
    }

    #[test]
    fn what_was_there_keeps_its_order(list in proptest::collection::vec(argument(), 0..8), added in argument()) {
        let before = KernelArguments::parse(&list.join(" "));
        let after = before.apply(&[Append(added.clone())]).unwrap();
        let new = (!before.contains(&added)).then_some(added);
        let expected: Vec<String> = list.into_iter().chain(new).collect();
        prop_assert_eq!(after.arguments(), expected);
    }

    #[test]
    fn replaced_is_there_once(list in proptest::collection::vec(argument(), 0..8), key in "[a-d]", value in "[a-z]{1,3}") {
        let wanted = format!("{key}={value}");
        let after = KernelArguments::parse(&list.join(" ")).apply(&[Replace(wanted.clone())]).unwrap();
        prop_assert!(after.contains(&wanted));
        prop_assert_eq!(after.arguments().len() - after.without(&key).arguments().len(), 1);
    }

    #[test]
    fn no_edit_makes_it_panic(before in any::<String>(), text in any::<String>()) {
        for edit in [Append(text.clone()), Delete(text.clone()), Replace(text.clone()), DeleteExact(text)] {
            let _ = KernelArguments::parse(&before).apply(&[edit]);
        }
    }
}

#[test]
fn missing_counts_duplicates() {
    let before = KernelArguments::parse("a b b");
    let after = KernelArguments::parse("b c a b b");
    assert_eq!(before.missing_from(&after), ["c", "b"]);
    assert!(after.missing_from(&before).is_empty());
}

fn managed(before: &str, old: &str, new: &str) -> String {
    let list = |text: &str| KernelArguments::parse(text).arguments;
    let replace = |before: &KernelArguments, old: &[String]| {
        before.replace_managed(old, &list(new)).unwrap_or_else(|error| panic!("{error}"))
    };
    let after = replace(&KernelArguments::parse(before), &list(old));
    assert_eq!(replace(&after, &list(new)), after, "asking twice is asking once: {before} | {old} | {new}");
    after.to_string()
}

#[test]
fn managed_arguments_table() {
    for (before, old, new, after) in [
        ("ro quiet", "", "nosmt", "ro quiet nosmt"),
        ("ro nosmt", "", "nosmt", "ro nosmt"),
        ("ro nosmt x", "", "nosmt y=1", "ro nosmt x y=1"),
        ("ro nosmt=force", "", "nosmt", "ro nosmt=force nosmt"),
        ("ro nosmt a=1", "nosmt a=1", "", "ro"),
        ("ro", "nosmt a=1", "", "ro"),
        ("ro crashkernel=1G", "crashkernel=auto", "", "ro crashkernel=1G"),
        ("ro a=1 b=2", "a=1 b=2", "b=2", "ro b=2"),
        ("ro a=1 b=2", "a=1 b=2", "b=2 a=1", "ro b=2 a=1"),
        (
            "ro hugepagesz=1G hugepages=32",
            "hugepagesz=1G hugepages=32",
            "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4",
            "ro hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4",
        ),
        ("ro", "", "y=0 z=4 y=1 z=4", "ro y=0 z=4 y=1 z=4"),
        ("ro y=0 z=4 y=1 z=4", "y=0 z=4 y=1 z=4", "y=0 y=1 z=4", "ro y=0 y=1 z=4"),
        ("console=tty0 ro", "", "console=tty0 console=tty0", "console=tty0 ro console=tty0 console=tty0"),
        ("console=tty0 ro console=tty0", "console=tty0", "", "console=tty0 ro"),
        ("ro", "", "quiet quiet", "ro quiet quiet"),
        ("ro dyndbg=\"file a +p\"", "\"dyndbg=file a +p\"", "x", "ro x"),
        ("ostree=/o/0 ro", "ostree=/o/0", "x", "ostree=/o/0 ro x"),
        ("", "", "", ""),
    ] {
        assert_eq!(managed(before, old, new), after, "{before} | {old} | {new}");
    }
}

#[test]
fn managed_arguments_that_cannot_be() {
    for new in ["ostree=/x", "a\nb", "", "a=\"b", "=a"] {
        let refused = KernelArguments::parse("ro").replace_managed(&[], &[new.to_owned()]);
        assert!(refused.is_err(), "{new}");
    }
    assert!(KernelArguments::parse("ro a=\"b c").replace_managed(&[], &["x".to_owned()]).is_err());
}

proptest! {
    /// Whatever was there: the new ones are there in order afterwards, asking twice changes nothing,
    /// and without them the rest is as it was.
    #[test]
    fn managed_arguments_come_and_go(
        base in prop::collection::vec("[a-c](=[0-2])?", 0..6),
        old in prop::collection::vec("[d-f](=[0-2])?", 0..5),
        new in prop::collection::vec("[d-f](=[0-2])?", 0..5),
    ) {
        let base = KernelArguments { arguments: base };
        let first = base.replace_managed(&[], &old).unwrap();
        let second = first.replace_managed(&old, &new).unwrap();
        prop_assert_eq!(second.replace_managed(&new, &new).unwrap(), second.clone());
        prop_assert_eq!(second.arguments[base.arguments.len()..].to_vec(), new.clone());
        prop_assert_eq!(second.replace_managed(&new, &[]).unwrap(), base);
    }
}
