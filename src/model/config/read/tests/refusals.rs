//! Everything within an Ignition config that is refused: the field, and what it says.

use super::*;

/// Asserts the only problem of an Ignition 3.4 config: its field below `x.yaml: `, and the message.
fn refused(rest: &str, field: &str, message: &str) {
    refused_in("3.4.0", rest, field, message);
}

fn refused_in(version: &str, rest: &str, field: &str, message: &str) {
    assert_eq!(problems(&ignition(version, rest)), format!("x.yaml: {field}: {message}"), "{rest}");
}

pub(super) fn file(rest: &str) -> String {
    format!("storage: {{files: [{{path: /etc/x, {rest}}}]}}")
}

#[test]
fn what_belongs_to_the_installation() {
    refused(
        "passwd: {groups: [{name: x}]}",
        "passwd.groups",
        "groups are made when a machine is installed; leave it out",
    );
    refused(
        "passwd: {users: [{name: admin}]}",
        "passwd.users[0].name",
        "only the user core can be managed; make other users when installing",
    );
    refused(
        "passwd: {users: [{}]}",
        "passwd.users[0].name",
        "only the user core can be managed; make other users when installing",
    );
    for (rest, field) in [
        ("uid: 1000", "uid"),
        ("gecos: me", "gecos"),
        ("homeDir: /x", "homeDir"),
        ("noCreateHome: true", "noCreateHome"),
        ("primaryGroup: x", "primaryGroup"),
        ("groups: [wheel]", "groups"),
        ("noUserGroup: true", "noUserGroup"),
        ("noLogInit: true", "noLogInit"),
        ("shell: /bin/sh", "shell"),
        ("system: true", "system"),
    ] {
        refused(
            &format!("passwd: {{users: [{{name: core, {rest}}}]}}"),
            &format!("passwd.users[0].{field}"),
            "it is set when a machine is installed; only keys and password can be managed",
        );
    }
    refused(
        "passwd: {users: [{name: core, shouldExist: false}]}",
        "passwd.users[0].shouldExist",
        "the user core cannot be taken away",
    );
    assert_eq!(
        problems(&ignition(
            "3.4.0",
            "storage: {disks: [], raid: null, filesystems: [], luks: []}\npasswd: {groups: []}"
        )),
        "valid",
        "empty is what a cluster writes"
    );
}

#[test]
fn what_ignition_itself_would_fetch() {
    let elsewhere = "other configs are not fetched; give them to mcd as files of their own";
    for (rest, field, message) in [
        ("config: {merge: [{source: 'data:,'}]}", "ignition.config.merge", elsewhere),
        ("config: {replace: {source: 'data:,'}}", "ignition.config.replace", elsewhere),
        ("config: {append: [{source: 'data:,'}]}", "ignition.config.append", elsewhere),
        (
            "security: {tls: {certificateAuthorities: [{source: 'data:,'}]}}",
            "ignition.security",
            "mcd takes the certificates that the host trusts; add this one there",
        ),
        (
            "proxy: {httpsProxy: 'http://p'}",
            "ignition.proxy",
            "mcd takes the proxy from its environment (HTTPS_PROXY, NO_PROXY)",
        ),
        ("verson: x", "ignition.verson", "there is no such field; is version meant?"),
    ] {
        let text = format!("ignition: {{version: 3.4.0, {rest}}}");
        assert_eq!(problems(&text), format!("x.yaml: {field}: {message}"));
    }
    assert_eq!(
        problems(
            "ignition: {version: 3.4.0, config: {merge: [], replace: {source: null}}, security: {tls: {}}, proxy: {}}"
        ),
        "valid"
    );
    refused(
        "kernelArguments: {shouldExist: [nosmt]}",
        "kernelArguments.shouldExist",
        "use spec.kernelArguments of a MachineConfig",
    );
    refused(
        "kernelArguments: {shouldNotExist: [nosmt]}",
        "kernelArguments.shouldNotExist",
        "use spec.kernelArguments of a MachineConfig",
    );
    refused_in(
        "2.2.0",
        "networkd: {units: [{name: a.network}]}",
        "networkd",
        "write the files below /etc/systemd/network with storage.files",
    );
}

#[test]
fn versions() {
    let reads = "mcd reads Ignition 2.0.0 to 2.2.0 and 3.0.0 to 3.6.0";
    for (version, message) in [
        ("1.0.0", reads.to_owned()),
        ("2.3.0", reads.to_owned()),
        ("3.7.0", reads.to_owned()),
        ("21.0.0", reads.to_owned()),
        ("3.5.0-experimental", format!("an experimental version may change its meaning; {reads}")),
        ("3.4", "it has three numbers, such as 3.4.0".to_owned()),
        ("three", "it has three numbers, such as 3.4.0".to_owned()),
        ("''", "it has three numbers, such as 3.4.0".to_owned()),
        ("null", "it is missing: write the version of the spec, such as 3.4.0".to_owned()),
    ] {
        assert_eq!(problems(&ignition(version, "")), format!("x.yaml: ignition.version: {message}"));
    }
    assert_eq!(
        problems(&machine_config("a", "worker", "  config: {storage: {}}")),
        "x.yaml: spec.config.ignition: an Ignition config has it: ignition.version says which spec it follows"
    );
}

#[test]
fn paths() {
    for (path, message) in [
        ("etc/x", "a path begins with /"),
        ("/etc//x", "it must be written /etc/x"),
        ("/etc/x/", "it must be written /etc/x"),
        ("/etc/./x", "it must be written /etc/x"),
        ("/etc/../x", "a path has no .. in it: write where it leads"),
        ("/", "/ itself cannot be managed"),
        ("", "a path is missing"),
        ("/etc/a\\0b", "a path holds no control characters"),
        ("/etc/a\\nb", "a path holds no control characters"),
        (
            "/proc/sys/x",
            "nothing below /proc can be managed: it is the kernel's; use /etc/sysctl.d or kernel arguments",
        ),
        (
            "/sys/x",
            "nothing below /sys can be managed: it is the kernel's; use /etc/tmpfiles.d or udev rules",
        ),
        ("/dev/x", "nothing below /dev can be managed: it is the kernel's; use udev rules"),
        (
            "/run/machine-config-daemon-force",
            "nothing below /run can be managed: it is made anew at each boot; use /etc/tmpfiles.d",
        ),
        ("/tmp/x", "nothing below /tmp can be managed: it is made anew at each boot; use /etc/tmpfiles.d"),
        ("/boot/x", "nothing below /boot can be managed: it belongs to the boot loader"),
        ("/sysroot/x", "nothing below /sysroot can be managed: it belongs to OSTree"),
        ("/ostree/x", "nothing below /ostree can be managed: it belongs to OSTree"),
        (
            "/etc/passwd",
            "this path cannot be managed: a whole file would take users away; only the user core can be managed",
        ),
        (
            "/etc/shadow",
            "this path cannot be managed: a whole file would take users away; only the user core can be managed",
        ),
        ("/etc/group", "this path cannot be managed: a whole file would take groups away"),
        ("/etc/mcd/applied.json", "this path cannot be managed: mcd keeps its records there"),
        (
            "/etc/mcd/originals/x",
            "nothing below /etc/mcd/originals can be managed: mcd keeps its records there",
        ),
        ("/var/lib/mcd/x", "nothing below /var/lib/mcd can be managed: mcd keeps its records there"),
        ("/usr/lib/mcd/x", "nothing below /usr/lib/mcd can be managed: mcd keeps its records there"),
        ("/usr/etc/x", "nothing below /usr/etc can be managed: name the path below /etc"),
    ] {
        let about = match path {
            "" => String::new(),
            path => format!("{path}: "),
        };
        for list in ["files", "directories", "links"] {
            let target = if list == "links" { ", target: x" } else { "" };
            refused(
                &format!("storage: {{{list}: [{{path: \"{path}\"{target}}}]}}"),
                &format!("storage.{list}[0].path"),
                &format!("{about}{message}"),
            );
        }
    }
    refused("storage: {files: [{mode: 420}]}", "storage.files[0].path", "every entry has a path");
    let long = format!("/etc/{}", "x".repeat(256));
    assert!(
        problems(&ignition("3.0.0", &format!("storage: {{files: [{{path: {long}}}]}}")))
            .contains("longer than")
    );
    for path in
        ["/etc/mcd/policy.d/x.yaml", "/etc/passwd-x", "/usr/local/bin/x", "/home/core/x", "/.x", "/etc/..x"]
    {
        assert_eq!(problems(&ignition("3.0.0", &format!("storage: {{files: [{{path: {path}}}]}}"))), "valid");
    }
}

#[test]
fn contents() {
    let base64 = "/etc/x: the data is not base64";
    let percent = "/etc/x: after a percent sign there must be two hex digits; the sign itself is %25";
    let control =
        "/etc/x: a data URL holds no line ends or other control characters: write them as %0A, or use base64";
    let scheme = "/etc/x: it must be a data URL (data:,text or data:;base64,…), or http(s) with a hash";
    for (source, message) in [
        ("data:;base64,a", base64),
        ("data:;base64,%%%", percent),
        ("data:;base64,aGVs-G8_", base64),
        ("data:;base64,aGVsbG8=aGVsbG8=", base64),
        ("data:,100%", percent),
        ("data:,%zz", percent),
        ("data:,a%2", percent),
        ("data:,a\\nb", control),
        ("data:,a\\0b", control),
        ("data:nothing", "/etc/x: a data URL has a comma before its data: data:,text or data:;base64,…"),
        ("s3://bucket/x", scheme),
        ("tftp://host/x", scheme),
        ("gs://bucket/x", scheme),
        ("arn:aws:s3:::x", scheme),
        ("file:///etc/y", scheme),
        ("hello", scheme),
        ("/etc/y", scheme),
        ("https:///x", "/etc/x: an address is https://HOST/PATH or https://HOST:PORT/PATH"),
        ("https://user:a/b@host/x", "/etc/x: an address is https://HOST/PATH or https://HOST:PORT/PATH"),
        ("https://host:port/x", "/etc/x: an address is https://HOST/PATH or https://HOST:PORT/PATH"),
        ("https://host/a b", "/etc/x: an address holds no blanks and no line ends"),
        (
            "https://host.example/x",
            "/etc/x: what is fetched must be known before: add verification.hash (sha256-HEX or sha512-HEX), \
             or put the content itself here as a data URL",
        ),
    ] {
        refused(
            &file(&format!("contents: {{source: \"{source}\"}}")),
            "storage.files[0].contents.source",
            message,
        );
    }
    refused(
        &file("contents: {source: 'data:,a', compression: xz}"),
        "storage.files[0].contents.compression",
        "/etc/x: only gzip is known; pack it so, or leave it plain",
    );
    let packed = "/etc/x: it is not what gzip wrote, or it is cut off; drop compression or pack it anew";
    for source in ["data:,a", "data:;base64,H4sIAAAAAAAAA8tIzcnJBwCGphA2"] {
        refused(
            &file(&format!("contents: {{source: '{source}', compression: gzip}}")),
            "storage.files[0].contents.source",
            packed,
        );
    }
    refused(
        &file("contents: {source: 'data:,a', httpHeaders: [{name: a, value: b}]}"),
        "storage.files[0].contents.httpHeaders",
        "/etc/x: headers are not sent; put the content itself here as a data URL",
    );
    refused(
        &file("append: [{source: null}]"),
        "storage.files[0].append[0].source",
        "/etc/x: what is to be appended is missing",
    );
    refused(&file("append: [{source: 'data:,%'}]"), "storage.files[0].append[0].source", percent);
}

#[test]
fn hashes() {
    let kind = "/etc/x: a hash is sha256- and 64 hex digits, or sha512- and 128";
    let at = "storage.files[0].contents.verification.hash";
    for hash in ["sha256-abc", "md5-d41d8cd98f00b204e9800998ecf8427e", "sha512-", "x"] {
        refused(&file(&format!("contents: {{source: 'data:,a', verification: {{hash: {hash}}}}}")), at, kind);
    }
    let wrong = format!("contents: {{source: 'data:,a', verification: {{hash: sha256-{}}}}}", "0".repeat(64));
    refused(&file(&wrong), at, "/etc/x: the content does not have this hash");
    let wrong =
        format!("contents: {{source: 'data:,a', verification: {{hash: sha512-{}}}}}", "0".repeat(128));
    refused(&file(&wrong), at, "/etc/x: the content does not have this hash");
}

#[test]
fn gzip_that_never_ends() {
    use std::io::Write as _;
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..65 {
        packer.write_all(&vec![0; 1 << 20]).unwrap();
    }
    use base64::Engine as _;
    let bomb = base64::engine::general_purpose::STANDARD.encode(packer.finish().unwrap());
    refused(
        &file(&format!("contents: {{source: 'data:;base64,{bomb}', compression: gzip}}")),
        "storage.files[0].contents.source",
        "/etc/x: it unpacks to more than 64 MiB",
    );
}

#[test]
fn owners() {
    for (rest, field, message) in [
        ("user: {id: -1}", "user.id", "it is no number of a user or group"),
        ("user: {id: 4294967295}", "user.id", "it is no number of a user or group"),
        ("group: {id: 99999999999}", "group.id", "it is no number of a user or group"),
        ("group: {id: '0'}", "group.id", "it must be a number, not text: take the quotes away"),
        ("user: {name: 'a:b'}", "user.name", "it is no name of a user or group"),
        ("user: {name: \"a\\nb\"}", "user.name", "it is no name of a user or group"),
        ("user: {id: 1, name: a}", "user", "give id or name, not both"),
        ("user: core", "user", "it must be an object, not text"),
        ("user: {uid: 1}", "user.uid", "there is no such field; is id meant?"),
    ] {
        refused(&file(rest), &format!("storage.files[0].{field}"), &format!("/etc/x: {message}"));
    }
}

#[test]
fn links() {
    for (rest, message) in [
        ("", "a link has a target"),
        ("target: ''", "a link has a target"),
        ("target: \"a\\nb\"", "a path holds no control characters"),
        ("target: x, hard: true", "a path begins with /"),
        ("target: /etc//x, hard: true", "it must be written /etc/x"),
        ("target: /etc/other, hard: true", "a hard link leads to a file of the same config only"),
    ] {
        refused(
            &format!("storage: {{links: [{{path: /etc/l, {rest}}}]}}"),
            "storage.links[0].target",
            &format!("/etc/l: {message}"),
        );
    }
}

#[test]
fn names_of_units_and_dropins() {
    let types = "there is no such type of unit; known are service, socket, mount, automount, swap, target, path, timer, slice";
    for (name, message) in [
        ("a", "the name of a unit ends in its type, as in a.service"),
        ("a.servce", types),
        ("a.device", types),
        ("a.scope", types),
        ("../a.service", "the name of a unit has only letters, digits and : - _ . \\ @"),
        ("a/b.service", "the name of a unit has only letters, digits and : - _ . \\ @"),
        ("a b.service", "the name of a unit has only letters, digits and : - _ . \\ @"),
        (".service", "the name of a unit begins with a letter or digit"),
        ("@.service", "the name of a unit begins with a letter or digit"),
    ] {
        refused(
            &format!("systemd: {{units: [{{name: '{name}'}}]}}"),
            "systemd.units[0].name",
            &format!("{}: {message}", name.escape_debug()),
        );
    }
    refused("systemd: {units: [{enabled: true}]}", "systemd.units[0].name", "every unit has a name");
    for (name, message) in [
        ("a", "the name of a drop-in ends in .conf, as in a.conf"),
        (".conf", "the name of a drop-in ends in .conf, as in conf.conf"),
        (".a.conf", "the name of a drop-in ends in .conf, as in aconf.conf"),
        ("../a.conf", "the name of a drop-in ends in .conf, as in aconf.conf"),
        ("a/b.conf", "it is no name of a file"),
    ] {
        refused(
            &format!("systemd: {{units: [{{name: u.service, dropins: [{{name: '{name}'}}]}}]}}"),
            "systemd.units[0].dropins[0].name",
            &format!("u.service: {message}"),
        );
    }
    refused(
        "systemd: {units: [{name: u.service, dropins: [{contents: a}]}]}",
        "systemd.units[0].dropins[0].name",
        "u.service: every drop-in has a name",
    );
    refused(
        "systemd: {units: [{name: u.service, contents: \"a\\0b\"}]}",
        "systemd.units[0].contents",
        "u.service: a unit holds no NUL",
    );
}

#[test]
fn keys() {
    for (key, message) in [
        ("\"ssh-rsa A\\nssh-rsa B\"", "it has several lines: give each key as an item of its own"),
        ("\"ssh-rsa A\\rssh-rsa B\"", "it has several lines: give each key as an item of its own"),
        ("\"ssh-rsa A\\0\"", "a key holds no control characters"),
        ("''", "a key is missing; for no keys write an empty list"),
        ("AAAAB3NzaC1yc2E", "a key has a type before it, as in ssh-ed25519 AAAA…"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "it is a private key; give the public one"),
        ("[a]", "it must be text, not a list"),
    ] {
        refused(
            &format!("passwd: {{users: [{{name: core, sshAuthorizedKeys: [{key}]}}]}}"),
            "passwd.users[0].sshAuthorizedKeys[0]",
            message,
        );
    }
}

#[test]
fn password_hashes() {
    let no_hash = "it is no hash of crypt(3), as `mkpasswd -m sha-512` or `openssl passwd -6` make it";
    for (hash, message) in [
        ("''", "an empty hash would let anybody in; leave it out to lock the password"),
        ("secret", no_hash),
        ("'$6$salt$a:b'", no_hash),
        ("\"$6$salt$a\\nroot::0:\"", no_hash),
        ("'$6$'", no_hash),
        ("'$6$salt$'", no_hash),
        ("'$'", no_hash),
        ("x", no_hash),
        ("'**'", no_hash),
        ("'!a:b'", no_hash),
    ] {
        refused(
            &format!("passwd: {{users: [{{name: core, passwordHash: {hash}}}]}}"),
            "passwd.users[0].passwordHash",
            message,
        );
    }
}

#[test]
fn what_is_there_twice() {
    let same = "/etc/x: x.yaml: storage.files[0] has the same path; leave one";
    refused("storage: {files: [{path: /etc/x}, {path: /etc/x}]}", "storage.files[1].path", same);
    refused(
        "storage: {files: [{path: /etc/x}], directories: [{path: /etc/x}]}",
        "storage.directories[0].path",
        same,
    );
    refused(
        "storage: {files: [{path: /etc/x}], links: [{path: /etc/x, target: a}]}",
        "storage.links[0].path",
        same,
    );
    refused_in(
        "2.2.0",
        "storage: {files: [{path: /etc/x}], directories: [{path: /etc/x}]}",
        "storage.directories[0].path",
        same,
    );
    refused(
        "systemd: {units: [{name: a.service}, {name: a.service}]}",
        "systemd.units[1].name",
        "a.service: x.yaml: systemd.units[0] has the same name; leave one",
    );
    refused(
        "systemd: {units: [{name: a.service, dropins: [{name: b.conf}, {name: b.conf}]}]}",
        "systemd.units[0].dropins[1].name",
        "a.service: b.conf is there already; give each drop-in once",
    );
    refused(
        "passwd: {users: [{name: core}, {name: core}]}",
        "passwd.users[1].name",
        "x.yaml: passwd.users[0] is core already; put both into one",
    );
    refused(&file("mode: 420, mode: 384"), "storage.files[0].mode", "/etc/x: it is written twice; leave one");
    let json = r#"{"ignition": {"version": "3.0.0", "version": "3.1.0"}}"#;
    assert_eq!(problems(json), "x.yaml: ignition.version: it is written twice; leave one");
}

#[test]
fn what_is_in_the_way() {
    refused(
        "storage: {files: [{path: /etc/x}, {path: /etc/x/y}]}",
        "storage.files[1]",
        "/etc/x/y: /etc/x is no directory, see x.yaml: storage.files[0]",
    );
    refused(
        "storage: {links: [{path: /etc/x, target: y}], files: [{path: /etc/x/a/b}]}",
        "storage.files[0]",
        "/etc/x/a/b: /etc/x is no directory, see x.yaml: storage.links[0]",
    );
    refused(
        "systemd: {units: [{name: a.service}]}\nstorage: {files: [{path: /etc/systemd/system/a.service}]}",
        "storage.files[0].path",
        "/etc/systemd/system/a.service: x.yaml: systemd.units[0] writes this path; leave one",
    );
    refused(
        "systemd: {units: [{name: a.service, dropins: [{name: b.conf}]}]}\n\
         storage: {files: [{path: /etc/systemd/system/a.service.d/b.conf}]}",
        "storage.files[0].path",
        "/etc/systemd/system/a.service.d/b.conf: x.yaml: systemd.units[0] writes this path; leave one",
    );
    refused(
        "systemd: {units: [{name: a.service, dropins: [{name: b.conf}]}]}\n\
         storage: {files: [{path: /etc/systemd/system/a.service.d}]}",
        "systemd.units[0]",
        "/etc/systemd/system/a.service.d/b.conf: /etc/systemd/system/a.service.d is no directory, \
         see x.yaml: storage.files[0]",
    );
    refused(
        "systemd: {units: [{name: a.service}]}\nstorage: {files: [{path: /etc/systemd/system/a.service/b}]}",
        "storage.files[0]",
        "/etc/systemd/system/a.service/b: /etc/systemd/system/a.service is no directory, see x.yaml: systemd.units[0]",
    );
    assert_eq!(
        problems(&ignition("3.0.0", "storage: {directories: [{path: /etc/x}], files: [{path: /etc/x/y}]}")),
        "valid"
    );
}

#[test]
fn names_of_fields() {
    let none = "there is no such field";
    refused("storag: {}", "storag", &format!("{none}; is storage meant?"));
    refused("storage: {file: []}", "storage.file", &format!("{none}; is files meant?"));
    refused(&file("content: {}"), "storage.files[0].content", &format!("/etc/x: {none}; is contents meant?"));
    refused(
        &file("contents: {Source: 'data:,'}"),
        "storage.files[0].contents.Source",
        &format!("/etc/x: {none}; is source meant?"),
    );
    refused(&file("target: a"), "storage.files[0].target", &format!("/etc/x: {none}"));
    refused(&file("filesystem: root"), "storage.files[0].filesystem", &format!("/etc/x: {none}"));
    refused(
        "systemd: {units: [{name: a.service, enable: true}]}",
        "systemd.units[0].enable",
        &format!("a.service: {none}; is enabled meant?"),
    );
    refused(
        "passwd: {users: [{name: core, ssh_authorized_keys: []}]}",
        "passwd.users[0].ssh_authorized_keys",
        &format!("{none}; is sshAuthorizedKeys meant?"),
    );
    refused("networkd: {}", "networkd", none);
    refused("<<: {a: b}", "<<", none);
    refused_in("2.2.0", "kernelArguments: {}", "kernelArguments", none);
    refused_in(
        "2.2.0",
        "storage: {files: [{filesystem: data, path: /etc/x}]}",
        "storage.files[0].filesystem",
        "/etc/x: only root can be written to: give the path as the running system sees it",
    );
}

#[test]
fn types_of_fields() {
    refused("storage: []", "storage", "it must be an object, not a list");
    refused("storage: {files: {}}", "storage.files", "it must be a list, not an object");
    refused("storage: {files: [x]}", "storage.files[0]", "it must be an object, not text");
    refused(
        &file("overwrite: 1"),
        "storage.files[0].overwrite",
        "/etc/x: it must be true or false, not text",
    );
    refused(
        &file("contents: 'data:,a'"),
        "storage.files[0].contents",
        "/etc/x: it must be an object, not text",
    );
    refused(&file("append: true"), "storage.files[0].append", "/etc/x: it must be a list, not text");
    refused(
        &file("mode: '0644'"),
        "storage.files[0].mode",
        "/etc/x: it must be a number, not text: write 0644 in YAML, 420 in JSON, without quotes",
    );
    let json =
        r#"{"ignition": {"version": "3.0.0"}, "storage": {"files": [{"path": 3, "overwrite": "true"}]}}"#;
    assert_eq!(
        problems(json),
        "x.yaml: storage.files[0].path: it must be text, not a number\n\
         x.yaml: storage.files[0].path: a path is missing\n\
         x.yaml: storage.files[0].overwrite: it must be true or false, not text"
    );
}
