//! Kills and failing system calls, at every one that changes something. `strace` does both: the
//! program has nothing in it for this.
//!
//! The process that is killed is this test program itself, started again for the one (ignored) test
//! that converges the root that the environment names.

use std::process::{Command, Output};

use super::*;

/// System calls that change something, each with its own counter.
const CHANGING: [&str; 13] = [
    "renameat2",
    "renameat",
    "rename",
    "unlinkat",
    "mkdirat",
    "symlinkat",
    "write",
    "fchown",
    "fchownat",
    "fchmod",
    "fsync",
    "syncfs",
    "ftruncate",
];
/// Names what the child converges.
const SCENE: &str = "MCD_CONVERGE_SCENE";
/// More than any system call of [`CHANGING`] is made in one of these scenes.
const MOST: usize = 200;

/// Every place takes minutes: one in so many is tried, and all of them if the environment says so.
fn is_tried(number: usize) -> bool {
    number % 5 == 1 || std::env::var_os("MCD_CRASH_MATRIX").is_some()
}

/// What the child needs to know, beside the root.
fn request_file(scene: &Scene) -> PathBuf {
    scene.path.with_extension("request.json")
}

/// The child: converges the scene, and ends with the class of the outcome.
#[test]
#[ignore = "started by the other tests of this module"]
fn child() {
    let Ok(path) = std::env::var(SCENE) else { return };
    let root = Root::open(Path::new(&path)).unwrap();
    let request = std::fs::read(Path::new(&path).with_extension("request.json")).unwrap();
    let to: Applied = serde_json::from_slice(&request).unwrap();
    let store = root.dir().open_dir("../store").ok();
    assert!(store.is_none(), "a root has no way out");
    let store = Root::open(&Path::new(&path).with_file_name("store")).unwrap();
    let contents = ContentStore(store.dir().try_clone().unwrap());
    let request = Converge { to: &to, known: &[], scopes: &ALL, now: 2_000_000 };
    let code = match converge(&root, &contents, &request) {
        Ok(_) => 0,
        Err(error) => {
            // Not by way of the test harness, whose own writing would be in the way.
            let _ = std::fs::write(Path::new(&path).with_extension("error"), format!("{error:#}"));
            to_fault(&error).kind.code()
        }
    };
    std::process::exit(code.into());
}

/// Runs the child and logs its calls.
pub(super) fn run_traced(scene: &Scene, to: &Applied, log: &Path) -> Output {
    let traced = "trace=openat,openat2,write,rename,renameat,renameat2,unlinkat,mkdirat,symlinkat,fchown,\
                  fchownat,fchmod,fsync,syncfs";
    run_under(scene, to, &["-e", traced, "-o", &log.to_string_lossy()])
}

fn run_child(scene: &Scene, to: &Applied, inject: &str) -> Output {
    run_under(scene, to, &["-e", inject, "-o", "/dev/null"])
}

fn run_under(scene: &Scene, to: &Applied, strace: &[&str]) -> Output {
    std::fs::write(request_file(scene), serde_json::to_vec(to).unwrap()).unwrap();
    let store = scene.path.with_file_name("store");
    std::fs::create_dir_all(&store).unwrap();
    for (digest, blob) in &scene.contents.borrow().0 {
        std::fs::write(store.join(digest.hex()), blob.bytes()).unwrap();
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-q"]).args(strace).arg(&program);
    command
        .args(["--ignored", "--exact", "--test-threads=1", "-q"])
        .arg(format!("{}::child", module_path!().split_once("::").unwrap().1))
        .env(SCENE, &scene.path)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap()
}

/// A root with one of everything, laid down by `from`, with what a person did since.
fn prepare(scene: &Scene) -> (Applied, Applied) {
    scene.write("/etc/shadow", "root:*:1::::::\ncore:!:1::::::\n");
    scene.write("/etc/passwd", "core:x:1:1:::\n");
    scene.write("/etc/mine", "a person's");
    scene.write("/usr/etc/default", "image");
    scene.write("/etc/default", "image");
    std::fs::create_dir(scene.real("/etc/adopted")).unwrap();
    let from = applied(
        "1",
        vec![
            scene.file("/etc/changes", "one", 0o644),
            scene.file("/etc/goes/deep/down", "one", 0o644),
            scene.file("/etc/becomes/file", "one", 0o644),
            scene.file("/etc/directory", "one", 0o644),
            scene.file("/etc/default", "one", 0o644),
            entry("/etc/link", link_node("one")),
            directory("/etc/adopted", 0o700),
            scene.file("/var/lib/app/state", "one", 0o600),
        ],
    );
    scene.lay(&from);
    scene.write("/etc/changes", "drifted");
    let mut to = applied(
        "2",
        vec![
            scene.file("/etc/changes", "two", 0o640),
            scene.file("/etc/new/deep/down", "two", 0o644),
            scene.file("/etc/becomes", "two", 0o644),
            scene.file("/etc/directory/file", "two", 0o644),
            scene.file("/etc/mine", "two", 0o644),
            entry("/etc/link", link_node("two")),
            directory("/etc/adopted", 0o711),
            scene.file("/var/lib/app/state", "two", 0o600),
            scene.file("/var/lib/other/state", "two", 0o600),
        ],
    );
    to.manifest.password =
        Some(crate::model::manifest::Password { user: "core".to_owned(), hash: "$6$a$b".to_owned() });
    (from, to)
}

/// What the two ends look like: laid down, and gone back from there.
fn ends() -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let scene = Scene::new();
    let (from, to) = prepare(&scene);
    scene.converge(&to, &ALL).unwrap();
    let laid = scene.tree_of_others();
    scene.converge(&from, &ALL).unwrap();
    (laid, scene.tree_of_others())
}

/// Shadow has the day of the change in it.
fn comparable(mut tree: BTreeMap<String, String>) -> BTreeMap<String, String> {
    tree.entry("/etc/shadow".to_owned()).and_modify(|text| {
        for day in 1..60 {
            *text = text.replace(&format!(":{day}::::::"), ":DAY::::::");
        }
    });
    tree
}

/// All that a person had is still somewhere.
fn nothing_lost(scene: &Scene, place: &str) {
    let all: String = scene.tree().into_values().collect();
    for text in ["a person's", "drifted"] {
        assert!(all.contains(&format!("{text:?}")), "{place}: {text:?} is lost");
    }
}

/// What the child had to say.
fn words_of(scene: &Scene) -> String {
    std::fs::read_to_string(scene.path.with_extension("error")).unwrap_or_default()
}

/// Whether the process got as far as being cut.
fn was_cut(output: &Output) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    output.status.signal().is_some() || output.status.code() == Some(137)
}

#[test]
fn root_killed_at_every_change() {
    let (laid, back) = ends();
    let (laid, back) = (comparable(laid), comparable(back));
    let mut cuts = 0;
    for call in CHANGING {
        for number in (1..MOST).filter(|number| is_tried(*number)) {
            let place = format!("{call} {number}");
            let scene = Scene::new();
            let (from, to) = prepare(&scene);
            let inject = format!("inject={call}:signal=SIGKILL:when={number}");
            if !was_cut(&run_child(&scene, &to, &inject)) {
                break;
            }
            cuts += 1;
            nothing_lost(&scene, &place);
            // Every other time it goes back instead: a rollback after the power cut.
            let (goal, tree) = if number % 2 == 0 { (&from, &back) } else { (&to, &laid) };
            scene.converge(goal, &ALL).unwrap_or_else(|error| panic!("{place}: {error:?}"));
            assert_eq!(comparable(scene.tree_of_others()), *tree, "{place}");
            scene.settled(goal);
            nothing_lost(&scene, &place);
        }
    }
    assert!(cuts > 20, "only {cuts} cuts: strace did not see the calls");
}

/// Killed, and killed again on the way on, at every change of the second run.
#[test]
fn root_killed_twice() {
    let (laid, _) = ends();
    let laid = comparable(laid);
    for first in ["renameat2:signal=SIGKILL:when=5", "unlinkat:signal=SIGKILL:when=4"] {
        for call in ["renameat2", "unlinkat", "fsync"] {
            for number in (1..MOST).filter(|number| is_tried(*number)) {
                let scene = Scene::new();
                let (_, to) = prepare(&scene);
                assert!(was_cut(&run_child(&scene, &to, &format!("inject={first}"))), "{first}");
                let inject = format!("inject={call}:signal=SIGKILL:when={number}");
                if !was_cut(&run_child(&scene, &to, &inject)) {
                    break;
                }
                let place = format!("{first}, {call} {number}");
                scene.converge(&to, &ALL).unwrap_or_else(|error| panic!("{place}: {error:?}"));
                assert_eq!(comparable(scene.tree_of_others()), laid, "{place}");
                scene.settled(&to);
                nothing_lost(&scene, &place);
            }
        }
    }
}

#[test]
fn root_every_change_fails_once() {
    let (laid, _) = ends();
    let laid = comparable(laid);
    let mut failures = 0;
    for error in ["ENOSPC", "EIO", "EROFS"] {
        for call in CHANGING {
            for number in (1..MOST).filter(|number| is_tried(*number)) {
                let place = format!("{call} {number} {error}");
                let scene = Scene::new();
                let (_, to) = prepare(&scene);
                let before = scene.tree_of_others();
                let inject = format!("inject={call}:error={error}:when={number}");
                let output = run_child(&scene, &to, &inject);
                nothing_lost(&scene, &place);
                // The test harness could not write its own words.
                if output.status.code() == Some(101) {
                    continue;
                }
                match output.status.code() {
                    // It was not called so often, or what failed could be left.
                    Some(0) if comparable(scene.tree_of_others()) == laid && scene.leftovers().is_empty() => {
                        break;
                    }
                    Some(0) => {
                        scene.converge(&to, &ALL).unwrap_or_else(|error| panic!("{place}: {error:?}"));
                    }
                    Some(1) => {
                        failures += 1;
                        assert_eq!(
                            scene.tree_of_others(),
                            before,
                            "{place}: not undone: {}",
                            words_of(&scene)
                        );
                        assert_eq!(scene.leftovers(), Vec::<String>::new(), "{place}");
                    }
                    code => panic!("{place}: {code:?} {}", words_of(&scene)),
                }
                scene.converge(&to, &ALL).unwrap_or_else(|error| panic!("{place}: {error:?}"));
                assert_eq!(comparable(scene.tree_of_others()), laid, "{place}");
                scene.settled(&to);
            }
        }
    }
    assert!(failures > 40, "only {failures} failures: strace did not see the calls");
}

/// From some moment on, nothing can be written any more: then undoing fails, too, and it says so.
#[test]
fn root_everything_fails_from_some_moment_on() {
    let (laid, _) = ends();
    let laid = comparable(laid);
    let mut not_undone = 0;
    for number in (1..MOST).filter(|number| is_tried(*number)) {
        let scene = Scene::new();
        let (_, to) = prepare(&scene);
        let before = scene.tree_of_others();
        let inject = format!("inject=renameat2,renameat,unlinkat,fsync:error=EIO:when={number}+");
        let output = run_child(&scene, &to, &inject);
        match output.status.code() {
            Some(0) if scene.leftovers().is_empty() => break,
            Some(0) => {}
            Some(1) => assert_eq!(scene.tree_of_others(), before, "{number}: not undone, and not said"),
            Some(4) => not_undone += 1,
            code => panic!("{number}: {code:?} {}", words_of(&scene)),
        }
        nothing_lost(&scene, &number.to_string());
        scene.converge(&to, &ALL).unwrap_or_else(|error| panic!("{number}: {error:?}"));
        assert_eq!(comparable(scene.tree_of_others()), laid, "{number}");
        scene.settled(&to);
    }
    assert!(not_undone > 0, "it never was too late to undo");
}
