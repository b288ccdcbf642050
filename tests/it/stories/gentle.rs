//! A pull that nobody waits for leaves disk and processors to the others.

use std::path::Path;
use std::time::{Duration, Instant};

use mcd_test_support::fake_registry::{Act, FakeRegistry, On, Rule};
use mcd_test_support::process::run;

use super::Host;

/// Parent and CPU priority of a process or a thread.
fn parent_and_nice(stat: &Path) -> Option<(u32, i32)> {
    let text = std::fs::read_to_string(stat).ok()?;
    // The name in parentheses may hold anything.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    Some((fields[1].parse().ok()?, fields[16].parse().ok()?))
}

fn folders(of: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(of).map(|found| found.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
}

#[test]
fn root_a_background_pull_is_idle_and_so_is_its_skopeo() {
    let host = Host::new();
    let image = host.v2();
    let server = FakeRegistry::serve(&image.dir, vec![Rule::always(On::Blob, Act::Slow(4_000))]).unwrap();
    let name = server.image("os:v2");
    let mut command = host.command(&["pull", &name, "--background", "--insecure-skip-tls-verification"]);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let own = Path::new("/proc").join(child.id().to_string());
    let deadline = Instant::now() + Duration::from_secs(60);
    let found = loop {
        assert!(Instant::now() < deadline, "no idle skopeo and no idle thread was seen");
        let is_idle = |stat: &Path| parent_and_nice(stat).is_some_and(|(_, nice)| nice == 19);
        let threads = folders(&own.join("task"));
        let idle = threads.iter().filter(|thread| is_idle(&thread.join("stat"))).count();
        let skopeo = folders(Path::new("/proc")).into_iter().find(|process| {
            parent_and_nice(&process.join("stat")).is_some_and(|it| it == (child.id(), 19))
                && std::fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim() == "skopeo")
        });
        // Importing, writing, fetching.
        if let (Some(skopeo), true) = (skopeo, idle >= 3) {
            break skopeo.file_name().unwrap().to_string_lossy().into_owned();
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let class = run(std::process::Command::new("ionice").args(["-p", &found]));
    child.kill().unwrap();
    child.wait().unwrap();
    let class = String::from_utf8(class.unwrap().stdout).unwrap();
    assert_eq!(class.trim(), "idle");
}
