//! Who runs a node.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::HostName;

/// The user who runs a node: a login name, and a number for hosts that do not know the name, as in a
/// container. A user without a known name and number differs from nobody.
///
/// The name has 1 to 63 characters of `A-Z a-z 0-9 . _ -`; every other character becomes `_`.
///
/// ```
/// use mingle_core::User;
/// let alice = User::new(Some("alice"), Some(1000));
/// assert!(alice.differs(&User::new(Some("bob"), Some(1000))));
/// assert!(!alice.differs(&User::new(None, Some(1000))));
/// assert_eq!((alice.to_string(), User::new(None, Some(7)).to_string()), ("alice".into(), "user 7".into()));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    name: Option<HostName>,
    number: Option<u32>,
}

impl User {
    /// The user with this name and this number, as far as both are known. An empty name counts as unknown.
    pub fn new(name: Option<&str>, number: Option<u32>) -> Self {
        Self { name: name.filter(|name| !name.is_empty()).map(HostName::new), number }
    }

    /// Whether `other` is certainly another user. If both have a name, the names decide: hosts that are not
    /// managed together may give the same number to several users.
    #[must_use]
    pub fn differs(&self, other: &Self) -> bool {
        match ((&self.name, &other.name), (self.number, other.number)) {
            ((Some(ours), Some(theirs)), _) => ours != theirs,
            (_, (Some(ours), Some(theirs))) => ours != theirs,
            _ => false,
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.number) {
            (Some(name), _) => name.fmt(f),
            (None, Some(number)) => write!(f, "user {number}"),
            (None, None) => f.write_str("an unknown user"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide_where_both_have_one_and_else_numbers_and_the_unknown_differs_from_nobody() {
        let user = |name: &'static str, number| User::new(Some(name), number);
        for (one, other, differs) in [
            (user("alice", Some(1000)), user("alice", Some(1001)), false),
            (user("alice", Some(1000)), user("bob", Some(1000)), true),
            (user("alice", Some(1000)), user("", Some(1000)), false),
            (user("", Some(1000)), user("", Some(1001)), true),
            (user("alice", Some(1000)), user("", Some(0)), true),
            (user("alice", None), user("", Some(1000)), false),
            (user("alice", Some(1)), User::default(), false),
        ] {
            assert_eq!((one.differs(&other), other.differs(&one)), (differs, differs), "{one:?} {other:?}");
        }
    }
}
