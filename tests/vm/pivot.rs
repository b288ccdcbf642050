//! An update and the way back, through kernel, initramfs and boot menu.

use crate::world::World;

#[test]
fn pivot_boots_the_image_and_rollback_the_one_before() {
    let mut world = World::new();
    world.machine.boot().unwrap();
    assert_eq!(world.version(), "1");
    world.nothing_failed();
    world.does("echo mine >/etc/local; echo changed >/etc/motd; echo kept >/var/local");

    world.pivot("os:v2", "--karg-append mcd.story=pivot");
    assert_eq!(world.version(), "1");
    // The machine's own service finalises at shutdown: an edit of /etc until then comes along.
    world.does("echo late >/etc/late");
    let before = world.machine.entry().unwrap().clone();
    world.machine.reboot().unwrap();

    assert_eq!(world.version(), "2");
    world.nothing_failed();
    let after = world.machine.entry().unwrap().clone();
    assert_ne!(before.linux, after.linux, "the kernel pair is another one");
    assert_eq!(after.argument("mcd.story"), Some("pivot"));
    assert!(world.does("cat /proc/cmdline").stdout.contains("mcd.story=pivot"));
    assert_eq!(
        world.does("cat /etc/local /etc/late /var/local /etc/motd").stdout,
        "mine\nlate\nkept\nchanged\n"
    );
    let image = world.image("os:v2");
    let status = world.status();
    let booted = status["deployments"].as_array().unwrap().iter().find(|one| one["booted"] == true).unwrap();
    assert!(booted["image"].to_string().contains(&image), "{status:#}");

    world.does("mcd rollback");
    world.machine.reboot().unwrap();
    assert_eq!(world.version(), "1");
    world.nothing_failed();
    assert_eq!(world.machine.entry().unwrap().argument("mcd.story"), None);
    assert!(!world.does("cat /proc/cmdline").stdout.contains("mcd.story"));
    // The old deployment has its own /etc, as it was when the new one was staged.
    assert_eq!(world.does("cat /etc/local /var/local").stdout, "mine\nkept\n");
}

#[test]
fn power_off_between_staging_and_shutdown_leaves_the_old_system() {
    let mut world = World::new();
    world.machine.separate_var().unwrap();
    world.machine.boot().unwrap();
    assert!(world.does("findmnt -no SOURCE /var").stdout.starts_with("/dev/vda3"));
    world.pivot("os:v2", "");
    world.machine.cut_power();
    world.machine.boot().unwrap();
    assert_eq!(world.version(), "1");
    // What was fetched is there: the second time needs nothing from the registry.
    world.pivot("os:v2", "");
    world.machine.reboot().unwrap();
    assert_eq!(world.version(), "2");
}
