//! The channel to who does in the guest what a story says: `agent.sh`, which comes in as a credential
//! of the machine's firmware, so that the image holds nothing but a unit that runs it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::registry::base64;

/// The script that the guest runs.
pub const SCRIPT: &str = include_str!("agent.sh");
/// The credential's name, which the unit in the image asks for.
pub const CREDENTIAL: &str = "mcd.agent";
/// The name of the port.
pub const PORT: &str = "mcd.agent";
/// The unit in the image. It is not ordered after what it is wanted by: a story may want to see a boot
/// that never ends.
pub const UNIT: &str = "[Unit]
Description=Does what a test says
ConditionCredential=mcd.agent

[Service]
ImportCredential=mcd.agent
ExecStart=/bin/bash ${CREDENTIALS_DIRECTORY}/mcd.agent

[Install]
WantedBy=multi-user.target
";

/// How a script in the guest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its exit code.
    pub code: i32,
    /// What it wrote to its standard output.
    pub stdout: String,
    /// What it wrote to its standard error.
    pub stderr: String,
}

impl Said {
    /// Its standard output; an error if it failed.
    pub fn done(self) -> Result<String> {
        ensure!(self.code == 0, "exit code {}: {}{}", self.code, self.stdout, self.stderr);
        Ok(self.stdout)
    }
}

/// The channel's end outside.
#[derive(Debug)]
pub struct Agent {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    requests: u64,
}

impl Agent {
    /// Connects to the port's socket.
    pub fn connect(socket: &Path) -> Result<Self> {
        let writer = UnixStream::connect(socket).context("Connecting to the guest's port")?;
        Ok(Self { reader: BufReader::new(writer.try_clone()?), writer, requests: 0 })
    }

    /// Waits for the agent's first word and gives the boot's id; `None` if it says nothing so long.
    pub fn hello(&mut self, patience: Duration) -> Result<Option<String>> {
        match self.line(patience)? {
            Some(line) => match line.strip_prefix("hello ") {
                Some(id) => Ok(Some(id.to_owned())),
                None => bail!("the guest's first word is {line:?}"),
            },
            None => Ok(None),
        }
    }

    /// Sends a script for `bash -e`.
    pub fn tell(&mut self, script: &str) -> Result<()> {
        self.requests += 1;
        let number = self.requests;
        writeln!(self.writer, "{number} {}", base64(script.as_bytes())).context("Writing to the guest")
    }

    /// Runs a script by `bash -e`.
    pub fn run(&mut self, script: &str, patience: Duration) -> Result<Said> {
        self.tell(script)?;
        let number = self.requests;
        let Some(line) = self.line(patience)? else { bail!("no answer after {patience:?} to: {script}") };
        let mut words = line.split(' ');
        let mut word = || words.next().with_context(|| format!("The guest's answer is short: {line:?}"));
        ensure!(word()? == number.to_string(), "the answer is to another request: {line:?}");
        let code = word()?.parse().context("Reading an exit code")?;
        let mut text = || -> Result<String> {
            let encoded = word()?.strip_prefix('=').context("A text begins with =")?;
            Ok(String::from_utf8_lossy(&decode(encoded)?).into_owned())
        };
        Ok(Said { code, stdout: text()?, stderr: text()? })
    }

    fn line(&mut self, patience: Duration) -> Result<Option<String>> {
        self.reader.get_ref().set_read_timeout(Some(patience))?;
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => bail!("the machine went down"),
            Ok(_) => Ok(Some(line.trim_end().to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context("Reading from the guest"),
        }
    }
}

/// RFC 4648, the other way.
fn decode(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut word, mut bits) = (0_u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => bail!("{:?} is no letter of base64", letter as char),
        };
        word = (word << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_there_and_back() {
        for text in ["", "f", "fo", "foo", "foob", "\u{0}\u{ff}é€\n"] {
            assert_eq!(decode(&base64(text.as_bytes())).unwrap(), text.as_bytes());
        }
        assert!(decode("not base64").is_err());
    }
}
