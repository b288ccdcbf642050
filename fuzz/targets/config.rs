//! The reader of MachineConfigs and Ignition configs under libFuzzer: it must refuse, never panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mcd::model::config::{Input, read};

fuzz_target!(|bytes: &[u8]| {
    let _ = read(vec![Input { name: "fuzz".to_owned(), bytes: bytes.to_vec() }]);
});
