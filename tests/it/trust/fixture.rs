//! Real parts for trust tests: tiny images, a registry on loopback, a signing key, and a mount
//! namespace in which `/etc/containers` is the test's own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use camino::{Utf8Path, Utf8PathBuf};
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use mcd::model::digest::Digest;
use serde_json::json;
use tempfile::TempDir;

/// Set in the run of a test that has the namespace: the folder that stands for the machine.
const ISOLATED: &str = "MCD_TEST_ISOLATED";

/// Runs `body` in a mount namespace of its own, where `/etc/containers` is `FOLDER/containers` and
/// root's home is `FOLDER/home`: the only way to try the paths that are really used without
/// changing the machine. The test's binary starts itself again, for this one test, within.
pub(crate) fn isolated(test: &str, wrapper: &[&str], body: impl FnOnce(&Machine)) {
    if let Some(folder) = std::env::var_os(ISOLATED) {
        body(&Machine::at(Utf8PathBuf::from_path_buf(folder.into()).unwrap()));
        return;
    }
    let temp = tempdir();
    let folder = utf8(temp.path());
    let machine = Machine::at(folder.to_owned());
    for name in ["containers/registries.d", "containers/registries.conf.d", "home"] {
        machine.dir.create_dir_all(name).unwrap();
    }
    let script = "mount --bind \"$1\" /etc/containers; shift; exec \"$@\"";
    let status = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--", "sh", "-ec", script, "sh"])
        .arg(folder.join("containers"))
        .args(wrapper.iter().map(|word| word.replace("FOLDER", folder.as_str())))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ISOLATED, folder)
        .env("HOME", folder.join("home"))
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        // cargo adds its toolchain's, which would be searched for skopeo's libraries too.
        .env_remove("LD_LIBRARY_PATH")
        .status()
        .unwrap();
    assert!(status.success(), "{test} failed in its namespace: {status}");
}

/// The folder of one test, and what it configures.
pub(crate) struct Machine {
    pub(crate) folder: Utf8PathBuf,
    pub(crate) dir: Dir,
}

impl Machine {
    fn at(folder: Utf8PathBuf) -> Self {
        let dir = Dir::open_ambient_dir(&folder, ambient_authority()).unwrap();
        Self { folder, dir }
    }

    pub(crate) fn policy(&self, policy: &str) {
        self.dir.write("containers/policy.json", policy).unwrap();
    }

    /// Lets skopeo speak plain HTTP with a registry, and sends it to a mirror for another.
    pub(crate) fn registries(&self, text: &str) {
        self.dir.write("containers/registries.conf", text).unwrap();
    }

    /// Signatures are kept in, and looked for in, a folder.
    pub(crate) fn lookaside(&self) {
        let text = format!("default-docker:\n  lookaside: file://{}/signatures\n", self.folder);
        self.dir.write("containers/registries.d/default.yaml", text).unwrap();
    }
}

/// An image whose configuration says `name`, in an OCI layout.
pub(crate) fn write_image(layout: &Utf8Path, name: &str) -> Digest {
    let parent = Dir::open_ambient_dir(layout.parent().unwrap(), ambient_authority()).unwrap();
    parent.create_dir_all(format!("{}/blobs/sha256", layout.file_name().unwrap())).unwrap();
    let dir = Dir::open_ambient_dir(layout, ambient_authority()).unwrap();
    let blob = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        dir.write(format!("blobs/sha256/{}", digest.hex()), bytes).unwrap();
        (digest, bytes.len())
    };
    // Two empty blocks are an empty tar archive.
    let (layer, layer_size) = blob(&[0; 1024]);
    let config = json!({"architecture": architecture(), "os": "linux", "config": {"Labels": {"name": name}},
        "rootfs": {"type": "layers", "diff_ids": [layer]}});
    let (config, config_size) = blob(config.to_string().as_bytes());
    let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": config_size},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer, "size": layer_size}]});
    let (manifest, size) = blob(manifest.to_string().as_bytes());
    let index = json!({"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": manifest, "size": size, "annotations": {"org.opencontainers.image.ref.name": "1"}}]});
    dir.write("index.json", index.to_string()).unwrap();
    dir.write("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    manifest
}

/// Makes the layout's only image one of two architectures of an index.
pub(crate) fn write_index(layout: &Utf8Path, manifest: &Digest) -> Digest {
    let dir = Dir::open_ambient_dir(layout, ambient_authority()).unwrap();
    let blob = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        dir.write(format!("blobs/sha256/{}", digest.hex()), bytes).unwrap();
        digest
    };
    let size = |digest: &Digest| dir.metadata(format!("blobs/sha256/{}", digest.hex())).unwrap().len();
    let foreign = dir.read_to_string(format!("blobs/sha256/{}", manifest.hex())).unwrap() + "\n";
    let foreign = blob(foreign.as_bytes());
    let entry = |digest: &Digest, architecture: &str| {
        json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": size(digest),
            "platform": {"architecture": architecture, "os": "linux"}})
    };
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry(&foreign, "s390x"), entry(manifest, architecture())]});
    let index = blob(index.to_string().as_bytes());
    let top = json!({"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.index.v1+json",
        "digest": index, "size": size(&index), "annotations": {"org.opencontainers.image.ref.name": "1"}}]});
    dir.write("index.json", top.to_string()).unwrap();
    index
}

/// This machine's architecture, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// docker-registry on a free port of loopback; ends with the value.
pub(crate) struct Registry {
    child: Child,
    pub(crate) host: String,
}

impl Registry {
    /// With `htpasswd`, it wants a name and a password.
    pub(crate) fn start(folder: &Utf8Path, htpasswd: Option<&str>) -> Self {
        let dir = Dir::open_ambient_dir(folder, ambient_authority()).unwrap();
        let mut config = json!({"version": "0.1", "log": {"level": "info"}, "http": {"addr": "127.0.0.1:0"},
            "storage": {"filesystem": {"rootdirectory": folder.join("registry")}, "delete": {"enabled": true}}});
        if let Some(content) = htpasswd {
            dir.write("htpasswd", content).unwrap();
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": folder.join("htpasswd")}});
        }
        dir.write("registry.yml", config.to_string()).unwrap();
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(folder.join("registry.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let host = log.by_ref().map(Result::unwrap).find_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            Some(rest.split([' ', '"', ',']).next().unwrap().to_owned())
        });
        // A full pipe would stop it.
        std::thread::spawn(move || log.for_each(drop));
        Self { child, host: host.expect("the registry says where it listens") }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A key made for one test.
pub(crate) struct Key {
    home: Utf8PathBuf,
    pub(crate) public: Utf8PathBuf,
}

const SIGNER: &str = "tester@example.test";

impl Key {
    pub(crate) fn generate(folder: &Utf8Path) -> Self {
        let home = folder.join("gnupg");
        run(Command::new("mkdir").args(["-m", "0700", home.as_str()]));
        let gpg = || {
            let mut command = Command::new("gpg");
            command.args(["--batch", "--quiet", "--homedir", home.as_str()]);
            command
        };
        run(gpg().args(["--passphrase", "", "--quick-generate-key", SIGNER, "ed25519", "sign", "never"]));
        let public = folder.join("key.gpg");
        run(gpg().args(["--output", public.as_str(), "--export", SIGNER]));
        Self { home, public }
    }

    /// A requirement that asks for a signature by this key.
    pub(crate) fn requirement(&self) -> String {
        format!(r#"[{{"type":"signedBy","keyType":"GPGKeys","keyPath":"{}"}}]"#, self.public)
    }

    /// Copies an image and signs it, as it is named at `to`.
    pub(crate) fn sign(&self, from: &str, to: &str) {
        run(skopeo_copy(from, to).args(["--sign-by", SIGNER]).env("GNUPGHOME", &self.home));
    }

    /// The same for an index and all that it names.
    pub(crate) fn sign_all(&self, from: &str, to: &str) {
        run(skopeo_copy(from, to).args(["--all", "--sign-by", SIGNER]).env("GNUPGHOME", &self.home));
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // The agent that gpg started lives on else, until its folder is gone.
        let ended = Command::new("gpgconf").args(["--homedir", self.home.as_str(), "--kill", "all"]).status();
        assert!(ended.is_ok());
    }
}

/// Copies as a publisher does, whom no policy concerns.
pub(crate) fn publish(from: &str, to: &str) {
    run(&mut skopeo_copy(from, to));
}

/// The same for an index and all that it names.
pub(crate) fn publish_all(from: &str, to: &str) {
    run(skopeo_copy(from, to).arg("--all"));
}

fn skopeo_copy(from: &str, to: &str) -> Command {
    let mut command = Command::new("skopeo");
    command.args([
        "--insecure-policy",
        "copy",
        "--quiet",
        "--preserve-digests",
        "--src-tls-verify=false",
        "--dest-tls-verify=false",
    ]);
    command.args([from, to]);
    command
}

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

pub(crate) fn tempdir() -> TempDir {
    tempfile::Builder::new().prefix("mcd-trust-").tempdir().unwrap()
}

pub(crate) fn utf8(path: &Path) -> &Utf8Path {
    Utf8Path::from_path(path).unwrap()
}

pub(crate) fn root_dir() -> Dir {
    Dir::open_ambient_dir("/", ambient_authority()).unwrap()
}

pub(crate) fn path(text: &Utf8Path) -> PathBuf {
    text.as_std_path().to_owned()
}
