//! Metrics with TLS: only for whom the API server lets.

use std::process::Command;

use mcd_test_support::kube::{Answer, Api, account_token};
use serde_json::json;

use crate::world::{Host, NAMESPACE, Options, PROGRAM, plane};

fn certificate(host: &Host<'_>, name: &str) {
    let (certificate, key) = (host.file("tls.crt"), host.file("tls.key"));
    let status = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-days",
            "2",
            "-nodes",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ])
        .args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-out", &certificate, "-keyout", &key])
        .output()
        .unwrap();
    assert!(status.status.success());
}

fn ask(host: &Host<'_>, token: &str, path: &str) -> Answer {
    let ca = std::fs::read(host.file("tls.crt")).unwrap();
    Api::new(&format!("https://127.0.0.1:{}", host.port()), &ca, token).unwrap().get(path).unwrap()
}

#[test]
fn metrics_with_tls_are_for_whom_the_api_server_lets() {
    let plane = plane();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/metrics");
    plane.kubectl(&["apply", "--filename", folder]).unwrap();
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "reader" } });
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    plane.admin().post(&accounts, &account).unwrap().ok().unwrap();
    plane
        .kubectl(&[
            "create",
            "clusterrolebinding",
            "reader",
            "--clusterrole=mcd-metrics-reader",
            "--serviceaccount=mcd:reader",
        ])
        .unwrap();

    let options = Options { tls: true, ..Options::default() };
    let annotations = json!({ "machineconfiguration.openshift.io/desiredConfig": "rendered-a" });
    let mut host = Host::new(plane, "tls", annotations, options);
    certificate(&host, "first");
    host.start("rendered-a");
    host.until_done("rendered-a");
    let audit = plane.audit().unwrap();
    assert_eq!(ask(&host, "nobody", "/metrics").status, 401);
    let other = account_token(plane, NAMESPACE, "default", None).unwrap();
    assert_eq!(ask(&host, &other, "/metrics").status, 403);
    let reader = account_token(plane, NAMESPACE, "reader", None).unwrap();
    let page = ask(&host, &reader, "/metrics");
    assert_eq!(page.status, 200, "{page:?}\n{}", host.log());
    assert!(page.body.as_str().unwrap().contains("mcd_state{state=\"Done\""), "{page:?}");
    // The kubelet's probes show no token, and learn nothing.
    assert_eq!(ask(&host, "nobody", "/healthz").status, 200);

    // Each reader costs the API server two questions, not two each time.
    for _ in 0..5 {
        assert_eq!(ask(&host, &reader, "/metrics").status, 200);
    }
    let asked =
        audit.of_node("tls").unwrap().into_iter().filter(|one| one.resource.ends_with("reviews")).count();
    assert_eq!(asked, 5, "a token review for each of three, an access review for those who are known");
    assert!(!host.log().contains(&reader), "no token is logged");

    // A renewed certificate is taken without a restart.
    certificate(&host, "second");
    assert_eq!(ask(&host, &reader, "/healthz").status, 200);
}

#[test]
fn metrics_without_tls_stay_on_loopback() {
    let plane = plane();
    let kubeconfig = plane.admin_kubeconfig().display().to_string();
    let output = Command::new(PROGRAM)
        .args(["daemon", "--node-name", "nobody", "--simulated-host", "a", "--listen", "0.0.0.0:0"])
        .args(["--kubeconfig", &kubeconfig])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("not a loopback address") && said.contains("--metrics-tls-cert"), "{said}");
}
