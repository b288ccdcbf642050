//! Content digests as registries spell them: `sha256:` and 64 lower-case hex digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A validated SHA-256 digest (OCI image spec, "Digests"). Other algorithms are refused: nothing
/// in this field uses them, and what cannot be verified must not be trusted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// Why a digest was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidDigest(String);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self::from_raw(sha2::Sha256::digest(bytes).into())
    }

    /// A digest from its 32 raw bytes.
    pub fn from_raw(raw: [u8; 32]) -> Self {
        Self(format!("sha256:{}", hex::encode(raw)))
    }

    /// With the algorithm: `sha256:…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 64 hex digits.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    /// The first 12 hex digits: enough for people, never for comparing.
    pub fn short(&self) -> &str {
        &self.hex()[..12]
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let refuse = |why: &str| Err(InvalidDigest(format!("digest '{text}': {why}")));
        let Some((algorithm, hex)) = text.split_once(':') else {
            return refuse("it has no algorithm; expected sha256:<64 hex digits>");
        };
        if algorithm != "sha256" {
            return refuse("only sha256 is supported");
        }
        if hex.len() != 64 {
            return refuse(&format!("expected 64 hex digits, found {} characters", hex.chars().count()));
        }
        if !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return refuse("only the digits 0-9 and a-f (lower case) may follow sha256:");
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for InvalidDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidDigest {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_sha256_only() {
        let good = format!("sha256:{}", "0f".repeat(32));
        assert_eq!(good.parse::<Digest>().unwrap().as_str(), good);
        for (bad, part) in [
            ("abc".to_owned(), "no algorithm"),
            (format!("sha512:{}", "0".repeat(128)), "only sha256"),
            (format!("sha256:{}", "0".repeat(63)), "found 63"),
            (format!("sha256:{}", "0F".repeat(32)), "lower case"),
            (format!("sha256:{}é", "0".repeat(62)), "lower case"),
        ] {
            let error = bad.parse::<Digest>().unwrap_err().to_string();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }
}
