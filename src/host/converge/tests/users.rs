//! Passwords and keys.

use super::super::shadow::{Shadow, change};
use super::*;
use crate::model::manifest::Password;

const SHADOW: &str = "root:*:19000:0:99999:7:::\ncore:!!:19000:0:99999:7:::\nother:$6$x$y:1::::::\n";

fn with_password(id: &str, hash: &str) -> Applied {
    let mut to = applied(id, Vec::new());
    to.manifest.password = Some(Password { user: "core".to_owned(), hash: hash.to_owned() });
    to
}

fn scene() -> Scene {
    let scene = Scene::new();
    scene.write("/etc/shadow", SHADOW);
    std::fs::set_permissions(scene.real("/etc/shadow"), std::fs::Permissions::from_mode(0o0)).unwrap();
    scene.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n");
    scene
}

fn hash(scene: &Scene, user: &str) -> String {
    let text = scene.read("/etc/shadow");
    let line = text.lines().find(|line| line.starts_with(&format!("{user}:"))).unwrap().to_owned();
    line.split(':').nth(1).unwrap().to_owned()
}

#[test]
fn root_a_password_is_set_changed_and_returns() {
    let scene = scene();
    let done = scene.lay(&with_password("1", "$6$secret$one"));
    assert_eq!(hows(&done), [("/etc/shadow".to_owned(), How::Password)]);
    assert_eq!(hash(&scene, "core"), "$6$secret$one");
    assert!(scene.tree()["/etc/shadow"].starts_with("0000 "), "mode and owner stay");
    assert!(scene.read("/etc/shadow").contains("other:$6$x$y:1::::::\n"), "others' lines stay as they are");
    scene.lay(&with_password("2", "$6$secret$two"));
    assert_eq!(hash(&scene, "core"), "$6$secret$two");
    scene.lay(&applied("3", Vec::new()));
    assert_eq!(hash(&scene, "core"), "!!", "what it was");
    assert!(scene.record(Record::Etc).original_password.is_none());
    let words = format!("{:?}", scene.record(Record::Etc));
    assert!(!words.contains("secret"));
}

#[test]
fn root_no_password_is_ever_empty() {
    let scene = scene();
    std::fs::write(scene.real("/etc/shadow"), SHADOW.replace("core:!!", "core:")).unwrap();
    let found = differences(&scene.root(), &with_password("1", "$6$a$b").manifest, &ALL).unwrap();
    assert_eq!((found[0].what, found[0].found.as_str()), (What::Password, "none: everybody gets in"));
    scene.lay(&with_password("1", "$6$a$b"));
    scene.lay(&applied("2", Vec::new()));
    assert_eq!(hash(&scene, "core"), "*", "the empty one does not come back");
    scene.lay(&with_password("3", ""));
    assert_eq!(hash(&scene, "core"), "*");
    scene.lay(&applied("4", Vec::new()));
    assert_eq!(hash(&scene, "core"), "*");
}

#[test]
fn root_a_persons_own_password_stays() {
    let scene = scene();
    scene.lay(&with_password("1", "$6$a$b"));
    let own = scene.read("/etc/shadow").replace("$6$a$b", "$6$own$own");
    std::fs::write(scene.real("/etc/shadow"), own).unwrap();
    scene.converge(&applied("2", Vec::new()), &ALL).unwrap();
    assert_eq!(hash(&scene, "core"), "$6$own$own");
}

#[test]
fn root_users_that_are_not_in_shadow() {
    let scene = scene();
    std::fs::write(scene.real("/etc/shadow"), "root:*:19000:0:99999:7:::\n").unwrap();
    scene.lay(&with_password("1", "$6$a$b"));
    assert_eq!(hash(&scene, "core"), "$6$a$b");
    assert_eq!(scene.read("/etc/shadow").lines().last().unwrap().split(':').count(), 9);
    scene.lay(&applied("2", Vec::new()));
    assert_eq!(hash(&scene, "core"), "*");

    std::fs::write(scene.real("/etc/passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
    std::fs::write(scene.real("/etc/shadow"), "root:*:19000:0:99999:7:::\n").unwrap();
    let done = scene.converge(&with_password("3", "$6$a$b"), &ALL).unwrap();
    assert_eq!(done.warnings.len(), 1, "{:?}", done.warnings);
    assert!(!scene.read("/etc/shadow").contains("core"));
    // The image's own users count.
    scene.write("/usr/lib/passwd", "core:x:1000:1000::/home/core:/bin/sh\n");
    scene.lay(&with_password("3", "$6$a$b"));
}

#[test]
fn root_other_programs_are_waited_for() {
    use std::io::{BufRead as _, Write as _};
    let scene = scene();
    scene.write("/etc/.pwd.lock", "");
    // A record lock of this process would not keep this process out.
    let script = "import fcntl,sys\nf=open(sys.argv[1],'w')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint('held',flush=True)\nsys.stdin.readline()\n";
    let mut other = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(scene.real("/etc/.pwd.lock"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(300));
            other.stdin.take().unwrap().write_all(b"\n").unwrap();
            other.wait().unwrap();
        });
        let before = std::time::Instant::now();
        let to = with_password("1", "$6$a$b");
        let done = converge(
            &scene.root(),
            &InMemory::default(),
            &Converge { to: &to, known: &[], scopes: &ALL, now: 1 },
        );
        assert_eq!(done.unwrap().changed.len(), 1);
        assert!(before.elapsed() >= std::time::Duration::from_millis(200));
    });
}

#[test]
fn odd_shadow_files() {
    let to = with_password("1", "$6$a$b").manifest;
    for (before, after) in [
        ("", "core:$6$a$b:1::::::\n"),
        ("core\n", "core:$6$a$b:1::::::\n"),
        ("core:x", "core:$6$a$b:1::::::\n"),
        ("\n# note\ncore:x:5:6:7:8:9:10:11:12\n", "\n# note\ncore:$6$a$b:1:6:7:8:9:10:11:12\n"),
        ("corex:x:::::::\n", "corex:x:::::::\ncore:$6$a$b:1::::::\n"),
    ] {
        let done = change(&Shadow::parse(before.as_bytes()), &[], &to, |_| true, 86_400);
        assert_eq!(String::from_utf8(done.content.unwrap()).unwrap(), after, "{before:?}");
    }
    let binary = b"caf\xe9:x:::::::\ncore:x:::::::\n";
    let done = change(&Shadow::parse(binary), &[], &to, |_| true, 86_400);
    assert!(done.content.unwrap().starts_with(b"caf\xe9:x:"));
}

/// `.ssh` of a user: 0700 and theirs from the first moment, the key 0600.
#[test]
fn root_keys_get_their_owner() {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.real("/var/home/core")).unwrap();
    std::os::unix::fs::chown(scene.real("/var/home/core"), Some(1000), Some(1000)).unwrap();
    let ssh = "/var/home/core/.ssh";
    let keys = |name: &str| {
        let mut entry = scene.file(&format!("{ssh}/{name}"), "ssh-ed25519 AAAA", 0o600);
        if let Node::File { uid, gid, .. } = &mut entry.node {
            (*uid, *gid) = (1000, 1000);
        }
        Entry { part: Part::Keys("core".to_owned()), ..entry }
    };
    let own = |path: &str| Parent { mode: 0o700, uid: 1000, gid: 1000, ..parent(path, 0) };
    let mut to = applied("1", vec![keys("authorized_keys.d/ignition")]);
    to.manifest.parents = vec![own(ssh), own(&format!("{ssh}/authorized_keys.d"))];
    scene.lay(&to);
    let tree = scene.tree();
    assert_eq!(tree[ssh], "0700 1000:1000 directory");
    assert_eq!(tree[&format!("{ssh}/authorized_keys.d")], "0700 1000:1000 directory");
    assert_eq!(tree[&format!("{ssh}/authorized_keys.d/ignition")], "0600 1000:1000 \"ssh-ed25519 AAAA\"");
    // The target's sshd reads the other one now: the fragment that we wrote goes, a user's own stays.
    scene.write(&format!("{ssh}/config"), "a user's");
    let mut to = applied("2", vec![keys("authorized_keys")]);
    to.manifest.parents = vec![own(ssh)];
    scene.lay(&to);
    assert!(!scene.exists(&format!("{ssh}/authorized_keys.d")) && scene.exists(&format!("{ssh}/config")));
    scene.lay(&applied("3", Vec::new()));
    assert!(scene.exists(ssh) && !scene.exists(&format!("{ssh}/authorized_keys")));
}
