//! `ostree-remote-…`: commits signed with a real key, and those that are not.

use super::*;

fn gpg(home: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("gpg");
    let output =
        command.arg("--homedir").arg(home).args(["--batch", "--yes"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes a key and has the remote `corp` of the target trust it.
fn key(scene: &Scene) -> (PathBuf, String) {
    use std::os::unix::fs::PermissionsExt as _;
    let home = scene.path("gnupg");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
    gpg(&home, &["--passphrase", "", "--quick-gen-key", "os@corp.example", "ed25519", "sign", "never"]);
    let listed = gpg(&home, &["--list-keys", "--with-colons"]);
    let id = listed.lines().find_map(|line| line.strip_prefix("fpr:")).unwrap().trim_matches(':').to_owned();
    let public = scene.path("corp.gpg");
    gpg(&home, &["--output", public.to_str().unwrap(), "--export", "os@corp.example"]);
    let repo = format!("--repo={}", scene.path("repo").display());
    ostree(&["remote", "add", "--set=gpg-verify=true", &repo, "corp", "http://127.0.0.1:1/"]);
    ostree(&["remote", "gpg-import", &repo, "-k", public.to_str().unwrap(), "corp"]);
    scene.target.reload_config(ostree::gio::Cancellable::NONE).unwrap();
    (home, id)
}

#[test]
fn root_a_remote_demands_a_commit_that_its_key_signed() {
    let scene = Scene::new();
    let (home, id) = key(&scene);
    let commit = commit_of(&scene.source, "fixture/2").unwrap();
    let source = format!("--repo={}", scene.path("source").display());
    ostree(&["gpg-sign", &source, &format!("--gpg-homedir={}", home.display()), &commit, &id]);
    let signed = scene.write(scene.v2().chunks(2), "signed");
    let unsigned = scene.write(scene.v1().chunks(2), "unsigned");
    let asked = |image: &Written| format!("ostree-remote-image:corp:{}", image.reference());

    let fault = to_fault(&scene.pull(&asked(&unsigned)).unwrap_err());
    assert_eq!(fault.kind, ExitKind::Refused, "{fault:?}");
    assert!(fault.why.unwrap().contains("no signature"));
    assert_eq!(scene.refs(), Vec::<String>::new());

    let (pulled, _) = scene.pull(&asked(&signed)).unwrap();
    assert!(is_signed_for_remote(&scene.target, &pulled, "corp"));
    assert_eq!(scene.listing("repo", &pulled.commit), scene.listing("source", "fixture/2"));

    // What is in the repo without a signature is not believed under the remote's name either.
    scene.pull(&unsigned.reference()).unwrap();
    assert_eq!(to_fault(&scene.pull(&asked(&unsigned)).unwrap_err()).kind, ExitKind::Refused);
    // A remote that does not know the key.
    let repo = format!("--repo={}", scene.path("repo").display());
    ostree(&["remote", "add", "--set=gpg-verify=true", &repo, "other", "http://127.0.0.1:1/"]);
    let other = format!("ostree-remote-image:other:{}", signed.reference());
    assert_eq!(to_fault(&scene.pull(&other).unwrap_err()).kind, ExitKind::Refused);
    // A plain image has nothing that a remote could have signed; a legacy one has.
    let plain = scene.write(Image::plain(vec![Entry::file("usr/lib/modules/6/vmlinuz", "x")]), "plain");
    assert_eq!(to_fault(&scene.pull(&asked(&plain)).unwrap_err()).kind, ExitKind::Refused);
    let legacy = scene.write(Image::legacy(&scene.source, &["fixture/2"]).unwrap(), "legacy");
    scene.pull(&asked(&legacy)).unwrap();
    let legacy = scene.write(Image::legacy(&scene.source, &["fixture/1"]).unwrap(), "legacy-unsigned");
    assert_eq!(to_fault(&scene.pull(&asked(&legacy)).unwrap_err()).kind, ExitKind::Refused);
}
