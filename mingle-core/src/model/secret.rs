//! The secret of a job, and the keys that follow from it.

use std::fmt;

use crate::model::JobId;

/// What only the nodes of a job know: at least [`Secret::SHORTEST`] bytes.
///
/// With a secret every datagram is encrypted and authenticated, and every token of a proof has a
/// MAC, so that nobody without it can make a node print anything, learn who is there, or take a
/// rank. Debug output does not show it.
///
/// ```
/// use mingle_core::Secret;
/// assert!(Secret::new("correct horse battery staple".as_bytes()).is_ok());
/// assert!(Secret::new("hunter2".as_bytes()).is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// Why bytes are no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a secret has at least {least} bytes, and this one has {0}", least = Secret::SHORTEST)]
pub struct InvalidSecret(usize);

impl Secret {
    /// The shortest secret, in bytes: 128 bits where they are random.
    pub const SHORTEST: usize = 16;

    /// The secret of these bytes. White space at both ends is left away, because editors and `echo`
    /// add some.
    ///
    /// # Errors
    /// [`InvalidSecret`] where fewer than [`Secret::SHORTEST`] bytes are left.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidSecret> {
        let bytes = bytes.trim_ascii();
        if bytes.len() < Self::SHORTEST { Err(InvalidSecret(bytes.len())) } else { Ok(Self(bytes.to_vec())) }
    }

    /// A new secret of 256 random bits, from the operating system.
    ///
    /// # Errors
    /// Where the operating system gives no random bytes.
    #[cfg(feature = "net")]
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut bytes).map_err(std::io::Error::other)?;
        let mut text = String::new();
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
        }
        Ok(Self(text.into_bytes()))
    }

    /// The secret itself, to be written to a file. Nothing else shows it.
    pub fn reveal(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// The keys for one job. Two jobs with one secret have different keys.
    pub fn keys(&self, job: &JobId) -> Keys {
        let derive = |context| {
            let mut hasher = blake3::Hasher::new_derive_key(context);
            // Length first, so that no two pairs of secret and job run together to the same bytes.
            hasher.update(&u64::try_from(self.0.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(&self.0);
            hasher.update(job.as_str().as_bytes());
            *hasher.finalize().as_bytes()
        };
        Keys { seal: derive("mingle 1 seal"), token: derive("mingle 1 token") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The keys of one job with a [`Secret`].
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// For datagrams.
    pub(crate) seal: [u8; 32],
    /// For tokens.
    pub(crate) token: [u8; 32],
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn keys_differ_by_secret_and_by_job() {
        let (foo, bar): (JobId, JobId) = ("foo".parse().unwrap(), "bar".parse().unwrap());
        let (one, two) = (secret("0123456789abcdef"), secret("0123456789abcdeg"));
        assert_eq!(one.keys(&foo), one.clone().keys(&foo));
        assert_ne!(one.keys(&foo), one.keys(&bar));
        assert_ne!(one.keys(&foo), two.keys(&foo));
        assert_ne!(one.keys(&foo).seal, one.keys(&foo).token);
    }

    #[test]
    fn white_space_around_a_secret_does_not_count() {
        assert_eq!(secret("0123456789abcdef\n"), secret("  0123456789abcdef\r\n"));
        let error = Secret::new(b"0123456789abcde\n").unwrap_err();
        assert_eq!(error, InvalidSecret(15));
        assert!(error.to_string().contains("at least 16 bytes"), "{error}");
    }

    #[test]
    fn a_secret_is_never_shown() {
        let secret = secret("0123456789abcdef");
        assert_eq!(format!("{secret:?} {:?}", secret.keys(&"foo".parse().unwrap())), "Secret(..) Keys(..)");
    }
}
