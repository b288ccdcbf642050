//! The fixture OS with what a configuration needs: users, units, presets, defaults in `/etc`, links
//! out of the deployment and, if wanted, SELinux file contexts.

use crate::entry::Entry;
use crate::tree::Tree;

/// `SELINUXTYPE` of the fixture policy.
pub const POLICY: &str = "fixture";

/// SELinux file contexts, made by hand: libostree reads these, not the rules.
pub const FILE_CONTEXTS: &str = "\
/.*\tsystem_u:object_r:default_t:s0
/etc(/.*)?\tsystem_u:object_r:etc_t:s0
/etc/shadow\t--\tsystem_u:object_r:shadow_t:s0
/etc/passwd\t--\tsystem_u:object_r:passwd_file_t:s0
/etc/chrony\\.conf\t--\tsystem_u:object_r:chronyd_conf_t:s0
/etc/containers(/.*)?\tsystem_u:object_r:container_config_t:s0
/etc/systemd/system(/.*)?\tsystem_u:object_r:systemd_unit_file_t:s0
/usr(/.*)?\tsystem_u:object_r:usr_t:s0
/usr/lib(/.*)?\tsystem_u:object_r:lib_t:s0
/usr/lib/systemd/system(/.*)?\tsystem_u:object_r:systemd_unit_file_t:s0
/var(/.*)?\tsystem_u:object_r:var_t:s0
/var/lib(/.*)?\tsystem_u:object_r:var_lib_t:s0
/var/home(/.*)?\tsystem_u:object_r:user_home_t:s0
/var/home/[^/]*/\\.ssh(/.*)?\tsystem_u:object_r:ssh_home_t:s0
/var/roothome(/.*)?\tsystem_u:object_r:admin_home_t:s0
/var/usrlocal(/.*)?\tsystem_u:object_r:usr_local_t:s0
";

/// What is installed with a unit.
const MULTI_USER: &str = "[Install]\nWantedBy=multi-user.target\n";

impl Tree {
    /// Version 1 of the fixture OS, able to take a configuration.
    pub fn configurable() -> Self {
        configurable(Self::v1())
    }

    /// Version 2: another os-release and programs, changed defaults of `chrony.conf` and of a vendor
    /// unit, one more unit.
    pub fn configurable_v2() -> Self {
        configurable(Self::v2())
            .with(Entry::file("usr/etc/chrony.conf", "pool ntp.v2.example iburst\n"))
            .with(unit("vendor-a.service", "[Service]\nExecStart=/usr/bin/true v2\n", MULTI_USER))
            .with(unit("vendor-new.service", "[Service]\nExecStart=/usr/bin/true\n", MULTI_USER))
    }

    /// With SELinux file contexts and a policy of no rules.
    #[must_use]
    pub fn with_selinux(self) -> Self {
        let folder = format!("usr/etc/selinux/{POLICY}");
        self.with(Entry::file(
            "usr/etc/selinux/config",
            format!("SELINUX=permissive\nSELINUXTYPE={POLICY}\n"),
        ))
        .with(Entry::file(format!("{folder}/contexts/files/file_contexts"), FILE_CONTEXTS))
        .with(Entry::file(format!("{folder}/policy/policy.33"), "a policy of no rules"))
        // libostree starts it at each deployment of a tree with a policy.
        .with(Entry::program("usr/sbin/semodule", idle_program()))
    }

    /// With users below `usr/lib`, as systems have them that read those by nss-altfiles; `/etc/passwd`
    /// then has root only.
    #[must_use]
    pub fn with_altfiles(self) -> Self {
        self.with(Entry::file("usr/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"))
            .with(Entry::file("usr/etc/group", "root:x:0:\nwheel:x:10:\n"))
            .with(Entry::file(
                "usr/lib/passwd",
                "bin:x:1:1:bin:/bin:/usr/sbin/nologin\ncore:x:1000:1000:CoreOS Admin:/var/home/core:/bin/bash\n\
                 chrony:x:992:990::/var/lib/chrony:/usr/sbin/nologin\n",
            ))
            .with(Entry::file("usr/lib/group", "bin:x:1:\ncore:x:1000:\nsystemd-journal:x:190:\nchrony:x:990:\n"))
            .with(Entry::file("usr/etc/nsswitch.conf", "passwd: files altfiles systemd\ngroup: files altfiles systemd\n"))
    }

    /// With `count` files of no interest below `/usr`, in folders of 100: a tree of a real one's size.
    #[must_use]
    pub fn with_bulk(mut self, count: usize) -> Self {
        for number in 0..count {
            // Few different contents: the objects' number costs, not their bytes.
            let content = format!("bulk {}\n", number % 1000);
            self = self.with(Entry::file(
                format!("usr/share/bulk/{:04}/{:02}", number / 100, number % 100),
                content,
            ));
        }
        self
    }
}

/// A program that ends at once and is fine, without libraries: `exit(0)` in an ELF of one segment.
fn idle_program() -> Vec<u8> {
    let (machine, code): (u16, &[u8]) = if cfg!(target_arch = "aarch64") {
        (183, &[0x00, 0x00, 0x80, 0xd2, 0xa8, 0x0b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4])
    } else {
        (62, &[0x31, 0xff, 0xb8, 0x3c, 0x00, 0x00, 0x00, 0x0f, 0x05])
    };
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let short = |elf: &mut Vec<u8>, numbers: &[u16]| {
        numbers.iter().for_each(|number| elf.extend(number.to_le_bytes()));
    };
    // Executable, of version 1; entry, program headers, no sections.
    short(&mut elf, &[2, machine, 1, 0]);
    [BASE + HEADERS, 64, 0].iter().for_each(|number| elf.extend(number.to_le_bytes()));
    short(&mut elf, &[0, 0, 64, 56, 1, 64, 0, 0]);
    // One segment: loaded, readable, executable, all of the file.
    short(&mut elf, &[1, 0, 5, 0]);
    let length = HEADERS + code.len() as u64;
    [0, BASE, BASE, length, length, 4096].iter().for_each(|number| elf.extend(number.to_le_bytes()));
    elf.extend(code);
    elf
}

fn configurable(tree: Tree) -> Tree {
    let tree = users(tree);
    let tree = units(tree);
    let contexts = [
        Entry::file("usr/etc/chrony.conf", "pool ntp.v1.example iburst\n"),
        Entry::file("usr/etc/kubernetes/kubelet.conf", "kind: KubeletConfiguration\n"),
        Entry::dir("usr/etc/containers/registries.d"),
        Entry::file("usr/etc/default/grub", "GRUB_TIMEOUT=1\n").mode(0o600),
        Entry::symlink("usr/etc/localtime", "../usr/share/zoneinfo/UTC"),
        Entry::file("usr/share/zoneinfo/UTC", "TZif2\n"),
        Entry::file("usr/lib/sysctl.d/50-default.conf", "kernel.sysrq = 16\n"),
    ];
    contexts.into_iter().fold(tree, Tree::with)
}

fn users(tree: Tree) -> Tree {
    tree.with(Entry::file(
        "usr/etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\nbin:x:1:1:bin:/bin:/usr/sbin/nologin\n\
         core:x:1000:1000:CoreOS Admin:/var/home/core:/bin/bash\n\
         chrony:x:992:990::/var/lib/chrony:/usr/sbin/nologin\n",
    ))
    .with(Entry::file(
        "usr/etc/group",
        "root:x:0:\nbin:x:1:\nwheel:x:10:core\nsystemd-journal:x:190:core\nchrony:x:990:\ncore:x:1000:\n",
    ))
    .with(
        Entry::file(
            "usr/etc/shadow",
            "root:*:19000:0:99999:7:::\nbin:*:19000:0:99999:7:::\ncore:*:19000:0:99999:7:::\nchrony:!!:19000::::::\n",
        )
        .mode(0),
    )
    // Reads the fragments of authorized_keys.d, as the systems do that Ignition sets up.
    .with(
        Entry::file(
            "usr/etc/ssh/sshd_config",
            "PermitRootLogin no\nInclude /etc/ssh/sshd_config.d/*.conf\n",
        )
        .mode(0o600),
    )
    .with(
        Entry::file(
            "usr/etc/ssh/sshd_config.d/40-ssh-key-dir.conf",
            "AuthorizedKeysCommand /usr/libexec/ssh-key-dir %u\nAuthorizedKeysCommandUser root\n",
        )
        .mode(0o600),
    )
    .with(Entry::program("usr/libexec/ssh-key-dir", "a program\n"))
}

/// A vendor unit.
fn unit(name: &str, body: &str, install: &str) -> Entry {
    Entry::file(
        format!("usr/lib/systemd/system/{name}"),
        format!("[Unit]\nDescription={name}\n{body}{install}"),
    )
}

fn units(tree: Tree) -> Tree {
    let service = "[Service]\nExecStart=/usr/bin/true\n";
    let system = "usr/lib/systemd/system";
    [
        unit("multi-user.target", "", ""),
        unit("basic.target", "", ""),
        unit("sockets.target", "", ""),
        unit("timers.target", "", ""),
        // Enabled by a link in /etc of the image, and by preset.
        unit("vendor-a.service", service, MULTI_USER),
        Entry::symlink(
            "usr/etc/systemd/system/multi-user.target.wants/vendor-a.service",
            "/usr/lib/systemd/system/vendor-a.service",
        ),
        // Not enabled.
        unit("vendor-b.service", service, MULTI_USER),
        // With a drop-in of the vendor's.
        Entry::file(
            format!("{system}/vendor-a.service.d/10-vendor.conf"),
            "[Service]\nEnvironment=FROM=vendor\n",
        ),
        // Enabled with an alias and with another unit.
        unit(
            "vendor-also.service",
            service,
            "[Install]\nWantedBy=multi-user.target\nAlias=vendor-alias.service\nAlso=vendor-also.socket\n",
        ),
        unit(
            "vendor-also.socket",
            "[Socket]\nListenStream=/run/vendor-also\n",
            "[Install]\nWantedBy=sockets.target\n",
        ),
        // A template with a default instance.
        unit(
            "vendor@.service",
            "[Service]\nExecStart=/usr/bin/true %i\n",
            "[Install]\nWantedBy=multi-user.target\nDefaultInstance=one\n",
        ),
        // Started by links in /usr: there is nothing to enable.
        unit("vendor-static.service", service, ""),
        Entry::symlink(
            format!("{system}/multi-user.target.wants/vendor-static.service"),
            "../vendor-static.service",
        ),
        unit("chronyd.service", service, MULTI_USER),
        unit("crio.service", service, MULTI_USER),
        unit("kubelet.service", service, MULTI_USER),
        Entry::file(
            "usr/lib/systemd/system-preset/40-vendor.preset",
            "enable vendor-a.service\nenable vendor-also.service\nenable vendor@.service two\n\
             enable chronyd.service\ndisable *\n",
        ),
        Entry::symlink(
            "usr/etc/systemd/system/multi-user.target.wants/chronyd.service",
            "/usr/lib/systemd/system/chronyd.service",
        ),
    ]
    .into_iter()
    .fold(tree, Tree::with)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_idle_program_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, super::idle_program()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(std::process::Command::new(&path).status().unwrap().success());
    }
}
