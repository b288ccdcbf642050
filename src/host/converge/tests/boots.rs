//! `mcd boot` on folders that look like deployments.

use super::*;
use crate::model::applied::ETC_RECORD;
use crate::plan::boot::Belongs;

/// A sysroot with one deployment, and the same one as a root that runs or is about to.
struct Sysroot {
    scene: Scene,
    name: String,
}

const COMMIT: &str = "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1";
const OTHER: &str = "c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2";

impl Sysroot {
    /// The root is moved to where a deployment stands. `origin`: the file's text.
    fn new(origin: Option<&str>) -> Self {
        let mut scene = Scene::new();
        let name = format!("{COMMIT}.0");
        let above = scene.path.parent().unwrap().join("sysroot/ostree/deploy/os/deploy");
        std::fs::create_dir_all(&above).unwrap();
        std::fs::create_dir_all(scene.path.parent().unwrap().join("sysroot/ostree/repo/objects")).unwrap();
        std::fs::create_dir_all(scene.path.join("usr/etc")).unwrap();
        std::fs::rename(&scene.path, above.join(&name)).unwrap();
        scene.path = above.join(&name);
        let sysroot = Self { scene, name };
        if let Some(origin) = origin {
            std::fs::write(above.join(format!("{}.origin", sysroot.name)), origin).unwrap();
        }
        sysroot
    }

    /// Puts contents where a bare repo has them, and the objects' names into the entries.
    fn commit(&self, mut to: Applied) -> Applied {
        let objects = self.scene.path.ancestors().nth(4).unwrap().join("repo/objects");
        for entry in &mut to.manifest.entries {
            let Node::File { digest, object, .. } = &mut entry.node else { continue };
            let name = Digest::of(format!("object {digest}").as_bytes()).hex().to_owned();
            let folder = objects.join(&name[..2]);
            std::fs::create_dir_all(&folder).unwrap();
            let bytes = self.scene.contents.borrow().0[digest].bytes().to_vec();
            std::fs::write(folder.join(format!("{}.file", &name[2..])), bytes).unwrap();
            *object = Some(name);
        }
        to
    }

    fn write_manifest(&self, to: &Applied) {
        self.scene.write("/usr/lib/mcd/config.json", &serde_json::to_string(&to.manifest).unwrap());
    }

    fn write_record(&self, record: &Applied) {
        self.scene.write(&format!("/{ETC_RECORD}"), &serde_json::to_string(record).unwrap());
    }

    fn boot(&self) -> BootReport {
        boot(&self.scene.root(), BootStage::Before, 1).unwrap()
    }
}

const OURS: &str =
    "[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.io/os:1\n[mcd]\nid=2\n";

#[test]
fn the_first_boot_after_a_commit() {
    let sysroot = Sysroot::new(Some(OURS));
    let scene = &sysroot.scene;
    let to = sysroot.commit(applied(
        "2",
        vec![
            scene.file("/etc/new", "new", 0o644),
            scene.file("/etc/edited", "managed", 0o600),
            scene.file("/var/lib/app", "var", 0o600),
        ],
    ));
    sysroot.write_manifest(&to);
    // Merged from the deployment before: its record, and a file that a person edited there.
    let before =
        applied("1", vec![scene.file("/etc/edited", "old", 0o600), scene.file("/etc/old", "o", 0o644)]);
    sysroot.write_record(&before);
    scene.write("/etc/edited", "mine");
    scene.write("/etc/old", "o");
    let report = sysroot.boot();
    assert_eq!(report.belongs, Belongs::Commit);
    assert_eq!(report.deployment.as_deref(), Some(format!("os/{COMMIT}.0").as_str()));
    assert_eq!(report.set_aside.len(), 1);
    assert!(!report.stranger && report.warnings.is_empty(), "{report:?}");
    assert_eq!((scene.read("/etc/new"), scene.read("/etc/edited")), ("new".to_owned(), "managed".to_owned()));
    assert!(!scene.exists("/etc/old"), "only the other manifest has it");
    assert!(!scene.exists("/var/lib/app"), "this is not the real /var");
    let record = scene.record(Record::Etc);
    assert_eq!(record.deployment_id.as_deref(), Some("2"));
    assert_eq!(record.deployment_commit.as_deref(), Some(COMMIT));
    assert_eq!(record.commit.as_deref(), Some(COMMIT));

    let again = sysroot.boot();
    assert_eq!((again.belongs, again.changed.len()), (Belongs::Record, 0));
    // Drift is told, and left to whoever repairs.
    scene.write("/etc/new", "drifted");
    let drifted = sysroot.boot();
    assert_eq!((drifted.changed.len(), drifted.differences.len()), (0, 1));
    assert_eq!(scene.read("/etc/new"), "drifted");
    // In the real root, `/var` follows.
    let report = boot(&scene.root(), BootStage::Running, 2).unwrap();
    assert_eq!(report.changed.len(), 1);
    assert_eq!(scene.read("/var/lib/app"), "var");
}

#[test]
fn a_live_apply_survives_a_redeployment_of_the_commit() {
    // `rpm-ostree kargs` copies the origin; a tool that drops our keys leaves the commit.
    for origin in [OURS, "[origin]\nrefspec=os\n"] {
        let sysroot = Sysroot::new(Some(origin));
        let scene = &sysroot.scene;
        let committed = sysroot.commit(applied("2", vec![scene.file("/etc/secret", "old", 0o600)]));
        sysroot.write_manifest(&committed);
        scene.write("/usr/etc/secret", "old");
        let live = Applied {
            deployment_commit: Some(COMMIT.to_owned()),
            commit: Some(OTHER.to_owned()),
            ..sysroot.commit(applied("2", vec![scene.file("/etc/secret", "new", 0o600)]))
        };
        sysroot.write_record(&live);
        scene.write("/etc/secret", "new");
        std::fs::set_permissions(scene.real("/etc/secret"), std::fs::Permissions::from_mode(0o600)).unwrap();
        let report = sysroot.boot();
        assert_eq!((report.belongs, report.changed.len()), (Belongs::Record, 0), "{origin}");
        assert_eq!(scene.read("/etc/secret"), "new");
    }
}

#[test]
fn a_strangers_deployment_keeps_the_config() {
    let sysroot = Sysroot::new(Some("[origin]\nrefspec=os\n"));
    let scene = &sysroot.scene;
    // The three-way merge dropped what was unchanged, and took the new image's default.
    scene.write("/usr/etc/motd", "new image");
    scene.write("/etc/motd", "new image");
    let record = Applied {
        deployment_commit: Some(OTHER.to_owned()),
        commit: Some(OTHER.to_owned()),
        ..sysroot.commit(applied(
            "1",
            vec![
                with_default(scene.file("/etc/motd", "managed", 0o644), scene.file_node("old image", 0o644)),
                scene.file("/etc/x", "x", 0o600),
                scene.file("/usr/lib/tool", "t", 0o755),
                scene.file("/var/lib/y", "y", 0o600),
            ],
        ))
    };
    sysroot.write_record(&record);
    let report = sysroot.boot();
    assert_eq!(report.belongs, Belongs::Stranger);
    assert!(report.stranger);
    assert_eq!(report.missing_below_usr, ["/usr/lib/tool"]);
    assert_eq!(report.set_aside, [], "the new image's default is nobody's edit");
    assert_eq!((scene.read("/etc/motd"), scene.read("/etc/x")), ("managed".to_owned(), "x".to_owned()));
    assert!(!scene.exists("/usr/lib/tool") && !scene.exists("/var/lib/y"));
    let again = sysroot.boot();
    assert_eq!((again.belongs, again.changed.len(), again.stranger), (Belongs::Record, 0, true));
    assert_eq!(again.missing_below_usr, ["/usr/lib/tool"]);
    let report = boot(&scene.root(), BootStage::Running, 2).unwrap();
    assert_eq!(report.changed.len(), 1);
    assert_eq!(scene.read("/var/lib/y"), "y");
}

#[test]
fn a_deployment_from_before_us() {
    let sysroot = Sysroot::new(Some("[origin]\nrefspec=os\n"));
    let scene = &sysroot.scene;
    scene.write("/etc/x", "mine");
    scene.write("/var/lib/own", "mine");
    let later = sysroot
        .commit(applied("2", vec![scene.file("/var/lib/y", "y", 0o600), scene.file("/etc/x", "x", 0o644)]));
    scene.converge(&later, &[Scope::Var]).unwrap();
    let report = sysroot.boot();
    assert_eq!((report.belongs, report.changed.len()), (Belongs::Nothing, 0));
    let report = boot(&scene.root(), BootStage::Running, 2).unwrap();
    assert_eq!(report.changed.len(), 1);
    assert!(!scene.exists("/var/lib/y"));
    assert_eq!((scene.read("/etc/x"), scene.read("/var/lib/own")), ("mine".to_owned(), "mine".to_owned()));
    assert!(!scene.exists("/etc/mcd"));
    let again = boot(&scene.root(), BootStage::Running, 3).unwrap();
    assert_eq!(again.changed, []);
}

#[test]
fn damaged_records_never_stop_a_boot() {
    for text in ["", "{", "\u{0}"] {
        let sysroot = Sysroot::new(Some(OURS));
        let scene = &sysroot.scene;
        let to = sysroot.commit(applied("2", vec![scene.file("/etc/x", "x", 0o644)]));
        sysroot.write_manifest(&to);
        scene.write(&format!("/{ETC_RECORD}"), text);
        let report = sysroot.boot();
        assert_eq!((report.belongs, report.changed.len()), (Belongs::Commit, 1));
        assert!(report.warnings[0].contains("damaged"), "{:?}", report.warnings);
        assert_eq!(sysroot.boot().warnings, Vec::<String>::new());

        // A stranger's: nothing is known, nothing is touched.
        let sysroot = Sysroot::new(None);
        sysroot.scene.write(&format!("/{ETC_RECORD}"), text);
        let before = sysroot.scene.tree();
        assert_eq!(sysroot.boot().belongs, Belongs::Unknown);
        assert_eq!(sysroot.scene.tree(), before);
    }
    // A damaged manifest in the commit.
    let sysroot = Sysroot::new(Some(OURS));
    sysroot.scene.write("/usr/lib/mcd/config.json", "{\"entries\": 5}");
    let report = sysroot.boot();
    assert_eq!(report.belongs, Belongs::Unknown);
    assert!(!report.warnings.is_empty());
}

/// A run that was cut short is finished although the record is the right one.
#[test]
fn what_a_cut_run_left_is_removed() {
    let sysroot = Sysroot::new(Some(OURS));
    let scene = &sysroot.scene;
    let to = Applied {
        deployment_commit: Some(COMMIT.to_owned()),
        commit: Some(COMMIT.to_owned()),
        ..sysroot.commit(applied("2", vec![scene.file("/etc/x", "x", 0o644)]))
    };
    sysroot.write_manifest(&to);
    sysroot.boot();
    let tried = applied("2", vec![scene.file("/etc/x", "y", 0o644), scene.file("/etc/d/z", "z", 0o644)]);
    let cut = serde_json::json!({ "to": tried, "made": ["/etc/d"] });
    scene.write("/etc/mcd/converging.json", &cut.to_string());
    let left = super::super::place::temporary(Utf8Path::new("/etc/d/z"));
    scene.write(&format!("/etc/d/{left}"), "half");
    scene.write("/etc/x", "y");
    let report = sysroot.boot();
    assert_eq!(report.belongs, Belongs::Record);
    assert_eq!(report.set_aside, []);
    assert_eq!(scene.read("/etc/x"), "x");
    assert!(!scene.exists("/etc/d"));
    assert_eq!(scene.leftovers(), Vec::<String>::new());
}

#[test]
fn the_running_root_is_found_by_its_inode() {
    let scene = Scene::new();
    let deployment = format!("sysroot/ostree/deploy/os/deploy/{COMMIT}.1");
    std::fs::create_dir_all(scene.real("sysroot/ostree/deploy/os/deploy")).unwrap();
    std::fs::create_dir_all(scene.real("sysroot/ostree/repo/objects")).unwrap();
    std::fs::write(scene.real(&format!("{deployment}.origin")), OURS).unwrap();
    std::fs::create_dir_all(scene.real("usr/etc")).unwrap();
    // Not the root itself: something that looks like a deployment and cannot be placed.
    std::fs::create_dir_all(scene.real(&deployment)).unwrap();
    let state = effective(&scene.root()).unwrap();
    assert!(state.is_deployment && state.deployment.is_none());
    assert_eq!(state.belongs, Belongs::Unknown);
    assert!(!state.warnings.is_empty());
}

/// The same with a mount, as in the real root.
#[test]
fn root_the_running_root_is_found_by_its_inode() {
    let sysroot = Sysroot::new(Some(OURS));
    let physical = sysroot.scene.path.ancestors().nth(5).unwrap().to_owned();
    let at = sysroot.scene.real("sysroot");
    std::fs::create_dir_all(&at).unwrap();
    let run = |program: &str, arguments: &[&Path]| {
        assert!(std::process::Command::new(program).args(arguments).status().unwrap().success());
    };
    run("mount", &[Path::new("--bind"), &physical, &at]);
    let root = Root::new(sysroot.scene.root().dir().try_clone().unwrap());
    let state = effective(&root);
    let lock = lock(&root, false);
    run("umount", &[Path::new("--lazy"), &at]);
    let deployment = state.unwrap().deployment.unwrap();
    assert_eq!((deployment.commit.as_str(), deployment.stateroot.as_str()), (COMMIT, "os"));
    assert_eq!(deployment.origin.id.as_deref(), Some("2"));
    assert!(deployment.objects.is_some());
    lock.unwrap();
    assert!(physical.join("ostree/lock").exists(), "OSTree's own lock");
}

#[test]
fn a_root_without_ostree() {
    let scene = Scene::new();
    let to = applied("1", vec![scene.file("/etc/x", "x", 0o644)]);
    scene.lay(&to);
    let report = boot(&scene.root(), BootStage::Before, 1).unwrap();
    assert_eq!((report.belongs, report.changed.len(), report.deployment), (Belongs::Record, 0, None));
    let empty = Scene::new();
    let before = empty.tree();
    for stage in [BootStage::Before, BootStage::Running] {
        assert_eq!(boot(&empty.root(), stage, 1).unwrap().belongs, Belongs::Nothing);
    }
    assert_eq!(empty.tree(), before);
}
