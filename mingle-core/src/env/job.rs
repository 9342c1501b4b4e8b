//! A job ID as the value of a variable.

use crate::model::{InvalidId, JobId};

/// The value of MINGLE_JOB_ID: the job ID, percent-encoded (RFC 3986, 2.1) except for `A-Z a-z 0-9 . _ -`.
///
/// A job ID may have spaces and quotes, which are not safe in a shell. Most job IDs have none and stay as
/// they are. [`job_from_env`] is the inverse: a `mingle` that finds the MINGLE_JOB_ID of an earlier `mingle`
/// takes part in the same job.
///
/// ```
/// use mingle_core::env::{job_from_env, job_to_env};
/// let job = "it's 100%".parse()?;
/// assert_eq!(job_to_env(&job), "it%27s%20100%25");
/// assert_eq!(job_from_env("it%27s%20100%25")?, job);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn job_to_env(job: &JobId) -> String {
    let encoded = |byte: u8| {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if is_plain { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    job.as_str().bytes().map(encoded).collect()
}

/// The job ID in the value of MINGLE_JOB_ID. Only `%` is special, so users can write most job IDs as they
/// are.
///
/// # Errors
/// [`InvalidJobVariable`] if two hexadecimal digits do not follow a `%`, or if the decoded text is not a job
/// ID.
pub fn job_from_env(value: &str) -> Result<JobId, InvalidJobVariable> {
    let mut job = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((plain, code)) = rest.split_once('%') {
        job.push_str(plain);
        let digits = code.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        // A byte above 127 becomes a character outside of ASCII, which the job ID's parser refuses.
        job.push(char::from(byte.ok_or(InvalidJobVariable::Code)?));
        rest = &code[2..];
    }
    job.push_str(rest);
    Ok(job.parse()?)
}

/// A value of MINGLE_JOB_ID does not name a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJobVariable {
    /// Two hexadecimal digits do not follow a `%`.
    #[error("two hexadecimal digits must follow a %; write % itself as %25")]
    Code,
    /// The decoded text is not a job ID.
    #[error(transparent)]
    Job(#[from] InvalidId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_is_the_same_after_encoding_and_decoding() {
        let all: String = (' '..='~').collect();
        for text in ["foo", "llama_7b.v2-test", "it's 100% $HOME;`x`", all.as_str(), "%41", "~"] {
            let job: JobId = text.parse().unwrap();
            let value = job_to_env(&job);
            assert_eq!(job_from_env(&value), Ok(job), "{value}");
            let safe = |c: char| c.is_ascii_alphanumeric() || "._-%".contains(c);
            assert!(value.chars().all(safe), "{value}");
        }
    }

    #[test]
    fn a_value_without_a_percent_sign_means_itself() {
        assert_eq!(job_from_env("my job/7").unwrap().as_str(), "my job/7");
        assert_eq!(job_to_env(&"plain-1.0_x".parse().unwrap()), "plain-1.0_x");
    }

    #[test]
    fn an_invalid_value_is_refused() {
        for broken in ["%", "50%", "%4", "%zz", "%+1", "%é"] {
            assert_eq!(job_from_env(broken), Err(InvalidJobVariable::Code), "{broken}");
        }
        for hidden in ["%0A", "a%00b", "%7f", "%C3%A9", "%1b[31m"] {
            let refused = job_from_env(hidden);
            assert!(matches!(refused, Err(InvalidJobVariable::Job(InvalidId::JobCharacter(_)))), "{hidden}");
        }
        assert_eq!(job_from_env(""), Err(InvalidJobVariable::Job(InvalidId::JobLength(0))));
    }
}
