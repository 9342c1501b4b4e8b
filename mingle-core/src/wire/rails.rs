//! The answer, on a TCP connection, to a node that asks another one for its rails: a list, and a hash that
//! authenticates it.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::{Deserialize, Serialize};

use super::Dropped;
use super::token::{ANSWER, TOKEN, hash};
use crate::model::{HostName, List};
use crate::rdma::{RAILS, Rail};

/// The most bytes of the answer. The length, two bytes in little endian, comes before them.
pub const RAILS_ANSWER: usize = 2048;

const HASHED: &[u8] = b"mingle 2 rails";

/// A host and its rails for one addressing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RailList {
    pub(crate) host: HostName,
    pub(crate) rails: List<Rail, RAILS>,
}

/// The limit of bincode, which counts eight bytes for the length of each text.
const LIMIT: usize = 2 * RAILS_ANSWER;

fn config() -> Configuration<LittleEndian, Varint, Limit<LIMIT>> {
    bincode::config::standard().with_little_endian().with_variable_int_encoding().with_limit::<LIMIT>()
}

/// The bytes to write: the length of what follows, the list, and a hash of the token and the list, keyed in a
/// job with a secret.
pub(super) fn encode(list: &RailList, token: &[u8; TOKEN], key: Option<&[u8; 32]>) -> Option<Vec<u8>> {
    let list = bincode::serde::encode_to_vec(list, config()).ok()?;
    let length = u16::try_from(list.len() + ANSWER).ok()?;
    let hash = hash(HASHED, token, &list, key);
    Some([&length.to_le_bytes(), &list[..], &hash].concat())
}

/// The list in the bytes that follow the length.
///
/// # Errors
/// [`Dropped`], with the reason, for any other bytes.
pub(super) fn decode(
    answer: &[u8],
    token: &[u8; TOKEN],
    key: Option<&[u8; 32]>,
) -> Result<RailList, Dropped> {
    let (list, seal) = answer.split_last_chunk::<ANSWER>().ok_or(Dropped::Malformed)?;
    // Compared in constant time.
    if blake3::Hash::from(hash(HASHED, token, list, key)) != blake3::Hash::from(*seal) {
        return Err(Dropped::Unauthentic);
    }
    match bincode::serde::decode_from_slice(list, config()) {
        Ok((decoded, length)) if length == list.len() => Ok(decoded),
        _ => Err(Dropped::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(rails: usize) -> RailList {
        let rail = |place: usize| {
            Rail::example(&format!("{}:{place:010}", "d".repeat(63)), &"e".repeat(15), "fd00::1")
        };
        RailList { host: HostName::new(&"h".repeat(63)), rails: (0..rails).map(rail).collect() }
    }

    #[test]
    fn the_longest_list_fits_and_one_that_is_changed_is_not_read() {
        for key in [None, Some(&[7; 32])] {
            let (list, token) = (list(RAILS), [1; TOKEN]);
            let bytes = encode(&list, &token, key).unwrap();
            let (length, answer) = bytes.split_first_chunk().unwrap();
            assert_eq!(usize::from(u16::from_le_bytes(*length)), answer.len());
            assert!((1500..=RAILS_ANSWER).contains(&answer.len()), "{}", answer.len());
            assert_eq!(decode(answer, &token, key), Ok(list));
            assert_eq!(decode(answer, &[2; TOKEN], key), Err(Dropped::Unauthentic), "to another question");
            assert_eq!(decode(answer, &token, Some(&[8; 32])), Err(Dropped::Unauthentic), "another secret");
            let mut changed = answer.to_vec();
            changed[70] ^= 1;
            assert_eq!(decode(&changed, &token, key), Err(Dropped::Unauthentic));
            assert_eq!(decode(&answer[..31], &token, key), Err(Dropped::Malformed));
        }
    }

    #[test]
    fn a_list_that_no_node_sends_is_malformed() {
        let decoded = |list: &[u8]| {
            let token = [1; TOKEN];
            decode(&[list, &hash(HASHED, &token, list, None)].concat(), &token, None)
        };
        let encoded =
            |rails: &[Rail]| bincode::serde::encode_to_vec((HostName::new("b"), rails), config()).unwrap();
        let rail = Rail::example("mlx5_0:1", "eth1", "10.0.0.1");
        let good = encoded(std::slice::from_ref(&rail));
        assert_eq!(decoded(&good).map(|list| list.rails.to_vec()), Ok(vec![rail.clone()]));
        assert_eq!(decoded(&[&good[..], &[0]].concat()), Err(Dropped::Malformed), "a byte is left over");
        assert_eq!(decoded(&good[..good.len() - 1]), Err(Dropped::Malformed));
        let wrong = [
            Rail { name: "\u{1b}[2J:1".to_owned(), ..rail.clone() },
            Rail { interface: "a b".to_owned(), ..rail.clone() },
            Rail { address: [224, 0, 0, 1].into(), ..rail.clone() },
            Rail { address: [0, 0, 0, 0].into(), ..rail.clone() },
        ];
        for wrong in wrong {
            assert_eq!(decoded(&encoded(std::slice::from_ref(&wrong))), Err(Dropped::Malformed), "{wrong:?}");
        }
        assert_eq!(decoded(&encoded(&vec![rail; RAILS + 1])), Err(Dropped::Malformed), "too many");
    }
}
