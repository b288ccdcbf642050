//! Whole files, as they come from clusters and people. Contents show as their sizes only.

use super::*;

#[test]
fn a_rendered_config_of_today() {
    let text = include_str!("../../../../../tests/fixtures/config/rendered-worker.yaml");
    let config = read(vec![input("rendered-worker.yaml", text)]).unwrap();
    assert_eq!(content(config.managed.as_ref().unwrap(), "/var/lib/kubelet/config.json"), b"hello world\n");
    insta::assert_debug_snapshot!(config);
}

#[test]
fn a_config_of_the_first_clusters() {
    let text = include_str!("../../../../../tests/fixtures/config/worker-of-4.1.json");
    insta::assert_debug_snapshot!(read(vec![input("worker-of-4.1.json", text)]).unwrap());
}

#[test]
fn everything_that_is_wrong() {
    let text = include_str!("../../../../../tests/fixtures/config/everything-wrong.yaml");
    insta::assert_snapshot!(problems(text));
}
