//! The secret of a job, and the keys that are derived from it.

use std::fmt;

use crate::model::{Digest, JobId};

/// Bytes that only the nodes of a job know: at least [`Secret::SHORTEST`].
///
/// With a secret, mingle encrypts and authenticates every datagram, and every token has a MAC. Whoever lacks
/// the secret cannot make a node print anything, learn which nodes there are, or take a rank. Debug output
/// does not show the secret.
///
/// ```
/// use mingle_core::Secret;
/// assert!(Secret::new("correct horse battery staple".as_bytes()).is_ok());
/// assert!(Secret::new("hunter2".as_bytes()).is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// The secret is too short: it has this many bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a secret has at least {least} bytes, and this one has {0}", least = Secret::SHORTEST)]
pub struct InvalidSecret(usize);

impl Secret {
    /// The length of the shortest secret, in bytes.
    pub const SHORTEST: usize = 16;

    /// The secret in these bytes. White space at both ends, which editors and `echo` add, does not count.
    ///
    /// # Errors
    /// [`InvalidSecret`] if fewer than [`Secret::SHORTEST`] bytes are left.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidSecret> {
        let bytes = bytes.trim_ascii();
        if bytes.len() < Self::SHORTEST { Err(InvalidSecret(bytes.len())) } else { Ok(Self(bytes.to_vec())) }
    }

    /// A new secret of 256 random bits from the operating system, as 64 hexadecimal digits.
    ///
    /// # Errors
    /// The operating system's error, if it provides no random bytes.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(blake3::Hash::from_bytes(bytes).to_hex().as_bytes().to_vec()))
    }

    /// The secret as text, for writing it to a file. No other function shows the secret.
    pub fn reveal(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// The keys of a job. Two jobs with the same secret have different keys.
    pub fn keys(&self, job: &JobId) -> Keys {
        Keys { seal: self.derive("mingle 1 seal", job), token: self.derive("mingle 1 token", job) }
    }

    /// A password for the processes of a launcher in the world with this digest, as 64 hexadecimal digits.
    /// Nobody can compute the secret from it, nor the password of another world.
    pub(crate) fn for_launcher(&self, context: &str, job: &JobId, world: Digest) -> String {
        blake3::keyed_hash(&self.derive(context, job), &world.0).to_hex().to_string()
    }

    fn derive(&self, context: &str, job: &JobId) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        // The length comes first, so that no two pairs of secret and job give the same bytes.
        hasher.update(&u64::try_from(self.0.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(&self.0);
        hasher.update(job.as_str().as_bytes());
        *hasher.finalize().as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The keys of a job, from [`Secret::keys`].
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// Encrypts and authenticates datagrams.
    pub(crate) seal: [u8; 32],
    /// Authenticates tokens, and makes the keys of what else TCP carries.
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
    fn a_launcher_has_a_password_for_each_world() {
        let (foo, bar): (JobId, JobId) = ("foo".parse().unwrap(), "bar".parse().unwrap());
        let (one, two) = (secret("0123456789abcdef"), secret("0123456789abcdeg"));
        let (world, next) = (Digest([1; 16]), Digest([2; 16]));
        let all = [
            one.for_launcher("ray", &foo, world),
            one.for_launcher("ray", &foo, next),
            one.for_launcher("ray", &bar, world),
            one.for_launcher("other", &foo, world),
            two.for_launcher("ray", &foo, world),
        ];
        assert!(all.iter().all(|password| password.len() == 64), "{all:?}");
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(one.for_launcher("ray", &foo, world), all[0]);
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
