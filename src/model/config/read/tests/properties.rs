//! What holds for any input.

use proptest::prelude::*;

use super::*;

/// Text that gets past the first look of both parsers, and has the words of a config in it.
fn likely() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("ignition: {version: 3.4.0}\n".to_owned()),
        Just("kind: MachineConfig\n".to_owned()),
        Just("storage:\n  files:\n    - path: /etc/x\n".to_owned()),
        Just("      contents: {source: 'data:;base64,".to_owned()),
        Just("mode: 0644".to_owned()),
        Just("systemd: {units: [{name: a.service, dropins: [".to_owned()),
        Just("&a [*a, ".to_owned()),
        Just("\"\\u0000\\ud800".to_owned()),
        Just("passwd: {users: [{name: core, passwordHash: ".to_owned()),
        Just("---\n".to_owned()),
        "[ \\n\\t:{}\\[\\],&*!|>%@'\"#-]{1,4}",
        "[a-z0-9/]{1,6}",
        any::<String>(),
    ];
    prop::collection::vec(word, 0..24).prop_map(|words| words.concat())
}

/// Configs to damage.
const WHOLE: [&str; 3] = [
    include_str!("../../../../../tests/fixtures/config/rendered-worker.yaml"),
    include_str!("../../../../../tests/fixtures/config/worker-of-4.1.json"),
    include_str!("../../../../../tests/fixtures/config/everything-wrong.yaml"),
];

/// What is put into them.
const SPLINTERS: [&[u8]; 20] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b": ",
    b"\n",
    b"- ",
    b"&a ",
    b"*a",
    b"!!str ",
    b"|",
    b"'",
    b"\"",
    b"\\u0000",
    b"%",
    b"---\n",
    b"\xff",
    b"99999999999999999999",
    b"null",
    b"/../",
];

proptest! {
    #[test]
    fn no_damage_makes_it_panic(
        which in 0..WHOLE.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0..SPLINTERS.len(), 0..12usize), 1..6),
    ) {
        let mut bytes = WHOLE[which].as_bytes().to_vec();
        for (at, splinter, lost) in damage {
            let at = at.index(bytes.len());
            let end = (at + lost).min(bytes.len());
            bytes.splice(at..end, SPLINTERS[splinter].iter().copied());
        }
        let _ = read(vec![Input { name: "x".to_owned(), bytes }]);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = read(vec![Input { name: "x".to_owned(), bytes }]);
    }

    #[test]
    fn no_text_makes_it_panic(text in likely()) {
        let _ = one(&text);
    }

    #[test]
    fn no_source_makes_it_panic(source in "(data:)?[ -~]{0,40}", gzip in any::<bool>()) {
        let compression = if gzip { "gzip" } else { "" };
        let file = serde_json::json!({
            "ignition": {"version": "3.4.0"},
            "storage": {"files": [{"path": "/etc/x", "contents": {"source": source, "compression": compression}}]},
        });
        let _ = one(&file.to_string());
    }

    #[test]
    fn bytes_come_back_from_every_encoding(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        use base64::Engine as _;
        let base64 = base64::engine::general_purpose::STANDARD.encode(&bytes);
        let percent: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packer, &bytes).unwrap();
        let packed = base64::engine::general_purpose::STANDARD.encode(packer.finish().unwrap());
        for (source, compression) in [
            (format!("data:;base64,{base64}"), ""),
            (format!("data:;base64,{}", base64.trim_end_matches('=')), ""),
            (format!("data:,{percent}"), ""),
            (format!("data:text/plain;base64,{packed}"), "gzip"),
        ] {
            let rest = format!(
                "storage: {{files: [{{path: /etc/x, contents: {{source: '{source}', compression: '{compression}'}}}}]}}"
            );
            prop_assert_eq!(content(&managed("3.4.0", &rest), "/etc/x"), bytes.clone());
        }
    }

    #[test]
    fn the_order_of_files_does_not_count(
        order in Just((0..5usize).collect::<Vec<_>>()).prop_shuffle(),
        modes in prop::collection::vec(0u32..0o7777, 5),
        roles in prop::collection::vec(prop::bool::ANY, 5),
    ) {
        let texts: Vec<Input> = (0..5)
            .map(|index| {
                let role = if roles[index] { "worker" } else { "infra" };
                let spec = format!(
                    "  kernelArguments: [a={index}]\n  extensions: [e{index}]\n  config:\n    ignition: {{version: 3.4.0}}\n    \
                     storage: {{files: [{{path: /etc/x, mode: 0{:o}, append: [{{source: 'data:,{index}'}}]}}]}}",
                    modes[index]
                );
                input(&format!("{index}.yaml"), &machine_config(&format!("m{index}"), role, &spec))
            })
            .collect();
        let shuffled = order.iter().map(|index| texts[*index].clone()).collect();
        prop_assert_eq!(read(texts).unwrap(), read(shuffled).unwrap());
    }
}
