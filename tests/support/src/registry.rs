//! A real registry on the loopback: Debian's `docker-registry`.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::image::Written;
use crate::process::{Guarded, run};
use crate::scratch::Scratch;

/// A running registry, empty at first. It dies with this value.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    credentials: Option<(String, String)>,
    scratch: Scratch,
    _process: Guarded,
}

/// The registry listens within milliseconds; a loaded machine is slower.
const START_DEADLINE: Duration = Duration::from_secs(20);

impl Registry {
    /// A registry that anybody may read and write.
    pub fn start() -> Result<Self> {
        Self::launch(None, None)
    }

    /// A registry of what is in the folder `data`, made if it is not there; what is pushed stays there.
    pub fn serve(data: &Path) -> Result<Self> {
        Self::launch(None, Some(data))
    }

    /// A registry that wants this name and password.
    pub fn start_with_password(user: &str, password: &str) -> Result<Self> {
        Self::launch(Some((user.to_owned(), password.to_owned())), None)
    }

    fn launch(credentials: Option<(String, String)>, data: Option<&Path>) -> Result<Self> {
        // Another process may take the port between the look and the registry's bind.
        for _ in 0..5 {
            let scratch = Scratch::new()?;
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let config = scratch.join("config.yml");
            fs::write(&config, config_text(&scratch, data, address, credentials.as_ref())?)?;
            let log = fs::File::create(scratch.join("log"))?;
            let arguments = ["serve", config.to_str().context("The scratch folder's name is not UTF-8")?];
            let mut process = Guarded::start("docker-registry", &arguments, |command| {
                command.stdout(Stdio::null()).stderr(log);
            })?;
            if wait_until_it_listens(&mut process, address)? {
                return Ok(Self { address, credentials, scratch, _process: process });
            }
        }
        bail!("docker-registry did not start on five ports")
    }

    /// `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `127.0.0.1:PORT/NAME`, to which `:TAG` or `@DIGEST` may be added.
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Copies an image there as `NAME:TAG`, bytes and digests as they are; all architectures of an
    /// index. Gives `127.0.0.1:PORT/NAME:TAG`.
    pub fn push(&self, image: &Written, name_and_tag: &str) -> Result<String> {
        let target = self.image(name_and_tag);
        let mut command = Command::new("skopeo");
        command.args(["copy", "--quiet", "--all", "--preserve-digests", "--dest-tls-verify=false"]);
        // A registry needs no policy for what is pushed to it, and the machine may have none.
        command.arg("--insecure-policy");
        if let Some((user, password)) = &self.credentials {
            command.arg(format!("--dest-creds={user}:{password}"));
        }
        let source = if image.media_type.contains("docker") && !image.layers.is_empty() {
            image.copy_to_dir(&self.scratch.join(&format!("push-{}", image.digest.replace(':', "-"))))?
        } else {
            image.reference()
        };
        run(command.arg(source).arg(format!("docker://{target}")))?;
        Ok(target)
    }

    /// Lines of the registry's log that tell of a request: one for each answer.
    pub fn requests(&self) -> Result<Vec<String>> {
        let log = fs::read_to_string(self.scratch.join("log"))?;
        Ok(log.lines().filter(|line| line.contains("response completed")).map(str::to_owned).collect())
    }

    /// Writes an auth file as `skopeo login` does, for this registry.
    pub fn write_authfile(&self, path: &Path) -> Result<()> {
        let (user, password) = self.credentials.as_ref().context("The registry wants no password")?;
        let auth = base64(format!("{user}:{password}").as_bytes());
        let text = serde_json::json!({ "auths": { self.host(): { "auth": auth } } }).to_string();
        fs::write(path, text).with_context(|| format!("Writing {}", path.display()))
    }
}

fn config_text(
    scratch: &Scratch,
    data: Option<&Path>,
    address: SocketAddr,
    credentials: Option<&(String, String)>,
) -> Result<String> {
    let data = data.map_or_else(|| scratch.join("data"), Path::to_owned);
    let mut text = format!(
        "version: 0.1\nlog:\n  level: info\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: {}\n  delete:\n    enabled: true\nhttp:\n  addr: {address}\n",
        data.display()
    );
    if let Some((user, password)) = credentials {
        let file = scratch.join("htpasswd");
        let mut out = fs::File::create(&file)?;
        writeln!(out, "{user}:{}", bcrypt(password)?)?;
        text += &format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", file.display());
    }
    Ok(text)
}

/// The only hash that the registry takes. The C library's crypt knows it; Perl is on every Debian.
fn bcrypt(password: &str) -> Result<String> {
    let program = "print crypt($ARGV[0], '$2b$04$abcdefghijklmnopqrstuu')";
    let output = run(Command::new("perl").args(["-e", program, password]))?;
    let hash = String::from_utf8(output.stdout)?;
    anyhow::ensure!(hash.starts_with("$2b$"), "this C library makes no bcrypt hashes");
    Ok(hash)
}

fn wait_until_it_listens(process: &mut Guarded, address: SocketAddr) -> Result<bool> {
    let start = Instant::now();
    while start.elapsed() < START_DEADLINE {
        if process.child().try_wait()?.is_some() {
            return Ok(false);
        }
        if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("docker-registry does not listen on {address}")
}

/// RFC 4648: for auth files, and for what a server expects of them.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut word = 0_u32;
        for index in 0..3 {
            word = (word << 8) | u32::from(*chunk.get(index).unwrap_or(&0));
        }
        for index in 0..4 {
            let letter = ALPHABET[(word >> (18 - 6 * index)) as usize & 63] as char;
            text.push(if index <= chunk.len() { letter } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
