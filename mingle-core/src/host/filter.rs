//! The user's choice of interfaces and addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::interface::{Interface, Kind};
use super::select::Unusable;

/// Admits interfaces and addresses, or excludes them if a `^` stands in front. A filter names an interface, a
/// pattern of interface names, or a network of addresses.
///
/// In a pattern `*` matches any text and `?` any single character. mingle uses an address if some filter
/// admits it and no filter excludes it; if all filters exclude, every other address is admitted. mingle
/// prefers the addresses of earlier filters.
///
/// ```
/// use mingle_core::Filter;
/// for text in ["ib0", "eth*", "en?s0", "10.1.0.0/16", "fd00::/8", "^docker*", "^10.7.0.0/16"] {
///     assert_eq!(text.parse::<Filter>()?.to_string(), text);
/// }
/// assert_eq!("10.1.2.3".parse::<Filter>()?.to_string(), "10.1.2.3/32");
/// assert!("10.1.0.0/33".parse::<Filter>().is_err());
/// # Ok::<(), mingle_core::error::InvalidFilter>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Filter {
    excludes: bool,
    pattern: Pattern,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Pattern {
    /// A name, or a pattern of names.
    Name(String),
    Net(IpNet),
}

/// Why a text is not a [`Filter`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFilter {
    /// The text looks like an address or a network, but is neither.
    #[error("{0:?} is no IP address or network; write 10.1.2.3, 10.1.0.0/16 or fd00::/8")]
    Net(String),
    /// A link-local address identifies a host only together with an interface, so other hosts cannot use it.
    #[error("{0:?} is link-local, and can be no MASTER_ADDR; write the interface's name, such as eth0")]
    LinkLocal(String),
    /// No interface can have this name, or match this pattern.
    #[error(
        "{0:?} cannot be an interface: a name has 1 to 15 characters, none of them '/', ':' or a space; \
         to name several, or a name and a network, give each on its own"
    )]
    Name(String),
    /// A pattern with special characters other than `*` and `?`.
    #[error("{0:?}: a pattern has '*' for any text and '?' for any one character; write eth*, or give each")]
    Pattern(String),
    /// Nothing follows the `^`.
    #[error("{0:?} does not say what to exclude; write ^docker0, ^docker* or ^10.7.0.0/16")]
    Exclusion(String),
}

impl FromStr for Filter {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        let (excludes, rest) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        // The kernel allows '^' and '!' in names, but they are not used.
        if rest.starts_with(['^', '!']) || (excludes && rest.is_empty()) {
            return Err(InvalidFilter::Exclusion(text.to_owned()));
        }
        Ok(Self { excludes, pattern: rest.parse()? })
    }
}

impl FromStr for Pattern {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, InvalidFilter> {
        let unscoped = text.split_once('%').map_or(text, |(address, _interface)| address);
        let address: Option<IpAddr> = unscoped.parse().ok();
        let net: Option<IpNet> = address.map(IpNet::from).or_else(|| unscoped.parse().ok());
        if matches!(net, Some(IpNet::V6(net)) if net.network().is_unicast_link_local()) {
            return Err(InvalidFilter::LinkLocal(text.to_owned()));
        }
        // The kernel allows the names "300.1.1.1" and "10.*", but the user means an address.
        let numeric = text.contains('.')
            && !text.starts_with(['*', '?'])
            && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '*' | '?'));
        match net {
            Some(net) if unscoped == text => return Ok(Self::Net(net)),
            _ if numeric || text.contains(['/', ':']) => return Err(InvalidFilter::Net(text.to_owned())),
            _ => {}
        }
        if text.contains(['[', ']', '{', '}', '(', ')', '|', '\\', '$']) {
            return Err(InvalidFilter::Pattern(text.to_owned()));
        }
        // The kernel's own rule (dev_valid_name): 15 bytes, no '/', no ':', no space. A comma is legal there,
        // but more likely separates two names.
        let shortest = text.len() - text.matches('*').count();
        let valid = shortest <= 15
            && !text.is_empty()
            && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',');
        if valid { Ok(Self::Name(text.to_owned())) } else { Err(InvalidFilter::Name(text.to_owned())) }
    }
}

impl Filter {
    /// Whether the filter admits this address of the interface with this name.
    pub fn admits(&self, interface: &str, address: IpAddr) -> bool {
        !self.excludes && self.pattern.wants(interface, Some(address), address.is_loopback())
    }

    /// Whether the filter excludes this address of the interface with this name.
    pub fn excludes(&self, interface: &str, address: IpAddr) -> bool {
        self.excludes && self.pattern.has(interface, Some(address))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.excludes { "^" } else { "" }, self.pattern)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(text) => f.write_str(text),
            Self::Net(net) => net.fmt(f),
        }
    }
}

/// All filters of a user: those that admit are in order of preference.
#[derive(Clone, Copy)]
pub(crate) struct Filters<'a>(pub(crate) &'a [Filter]);

impl<'a> Filters<'a> {
    /// The patterns that exclude, or those that admit.
    fn patterns(self, excludes: bool) -> impl Iterator<Item = &'a Pattern> {
        self.0.iter().filter(move |filter| filter.excludes == excludes).map(|filter| &filter.pattern)
    }

    /// Whether no pattern admits: then everything suitable that is not excluded is used.
    pub(crate) fn want_all(self) -> bool {
        self.patterns(false).next().is_none()
    }

    /// The position of the filter that admits one of the interface's addresses, or the interface itself. The
    /// smaller number is preferred.
    pub(super) fn judge(self, interface: &Interface, address: Option<IpAddr>) -> Result<usize, Unusable> {
        let is_loopback = interface.kind == Kind::Loopback;
        let wanted =
            self.patterns(false).position(|pattern| pattern.wants(&interface.name, address, is_loopback));
        match wanted {
            None if !self.want_all() => Err(Unusable::NotAsked),
            _ if self.patterns(true).any(|pattern| pattern.has(&interface.name, address)) => {
                Err(Unusable::Excluded)
            }
            place => Ok(place.unwrap_or(0)),
        }
    }
}

/// Displayed as "allows only eth*, 10.0.0.0/8, and not docker0".
impl fmt::Display for Filters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [wanted, excluded] = [false, true]
            .map(|excludes| self.patterns(excludes).map(ToString::to_string).collect::<Vec<_>>().join(", "));
        match (wanted.as_str(), excluded.as_str()) {
            (wanted, "") => write!(f, "allows only {wanted}"),
            ("", excluded) => write!(f, "allows all but {excluded}"),
            (wanted, excluded) => write!(f, "allows only {wanted}, and not {excluded}"),
        }
    }
}

impl Pattern {
    /// Whether it names the interface, or is a network of the address.
    fn has(&self, interface: &str, address: Option<IpAddr>) -> bool {
        match self {
            Self::Name(glob) => matches(glob, interface),
            Self::Net(net) => address.is_some_and(|ip| net.contains(&ip)),
        }
    }

    /// The same, except that neither `*` nor 0.0.0.0/0 means loopback, which no other host can reach.
    fn wants(&self, interface: &str, address: Option<IpAddr>, is_loopback: bool) -> bool {
        let means_it = match self {
            Self::Name(glob) => !is_loopback || !glob.contains(['*', '?']),
            Self::Net(net) => net.addr().is_loopback() || !address.is_some_and(|ip| ip.is_loopback()),
        };
        means_it && self.has(interface, address)
    }
}

/// Whether `glob` matches the whole of `name`. Both are short: a name has 15 characters at most.
fn matches(glob: &str, name: &str) -> bool {
    // reached[i]: whether the part of the glob read so far matches the first i characters of the name.
    let name: Vec<char> = name.chars().collect();
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for sign in glob.chars() {
        let before = reached.clone();
        for i in 0..=name.len() {
            reached[i] = match (sign, i) {
                ('*', 0) => before[0],
                ('*', _) => before[i] || reached[i - 1],
                (_, 0) => false,
                (sign, _) => before[i - 1] && (sign == '?' || sign == name[i - 1]),
            };
        }
    }
    reached[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Filter, InvalidFilter> {
        text.parse()
    }

    #[test]
    fn one_filter_judges_an_address_alone() {
        let filter = |text| parse(text).unwrap();
        let address = IpAddr::from([10, 1, 0, 5]);
        for (text, admits, excludes) in [
            ("bond0.7", true, false),
            ("bond0", false, false),
            ("bond*", true, false),
            ("10.1.0.0/16", true, false),
            ("^bond0.7", false, true),
            ("^eth0", false, false),
        ] {
            let filter = filter(text);
            let judged = (filter.admits("bond0.7", address), filter.excludes("bond0.7", address));
            assert_eq!(judged, (admits, excludes), "{text}");
        }
    }

    #[test]
    fn a_filter_is_a_name_a_pattern_an_address_or_a_network_or_excludes_one_of_these() {
        for (text, shown) in [
            ("eth0", "eth0"),
            ("enp3s0f1np1", "enp3s0f1np1"),
            ("bond0.100", "bond0.100"),
            ("fifteen-letters", "fifteen-letters"),
            ("*", "*"),
            ("en?s0", "en?s0"),
            ("*.100", "*.100"),
            ("**fifteen-letters*", "**fifteen-letters*"),
            ("10.0.0.5", "10.0.0.5/32"),
            ("10.0.0.5/24", "10.0.0.5/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("fd00::1", "fd00::1/128"),
            ("fd00::/8", "fd00::/8"),
            ("^docker0", "^docker0"),
            ("^docker*", "^docker*"),
            ("^10.0.0.0/8", "^10.0.0.0/8"),
            ("^fd00::1", "^fd00::1/128"),
        ] {
            assert_eq!(parse(text).map(|filter| filter.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn an_invalid_filter_is_classified_by_what_the_user_meant() {
        let wrong = [
            "10.0.0.0/33",
            "300.1.1.1",
            "10.0.0",
            "10.*",
            "10.0.0.1/255.255.255.0",
            "eth0/24",
            "eth0:1",
            "fd00::/200",
            "fd00::1%eth0",
        ];
        for text in wrong {
            assert_eq!(parse(text), Err(InvalidFilter::Net(text.to_owned())));
            assert_eq!(parse(&format!("^{text}")), Err(InvalidFilter::Net(text.to_owned())));
        }
        for text in ["", "sixteen-letters-", "sixteen?letters?*", "eth 0", "eth0,eth1", "e\u{1b}th"] {
            assert_eq!(parse(text), Err(InvalidFilter::Name(text.to_owned())));
        }
        for text in ["fe80::1", "fe80::1%eth0", "fe80::/10", "fe80::/64"] {
            assert_eq!(parse(text), Err(InvalidFilter::LinkLocal(text.to_owned())));
        }
        for text in ["eth[01]", "eth{0,1}", "^(eth|ib).*", "eth0$"] {
            assert!(matches!(parse(text), Err(InvalidFilter::Pattern(_))), "{text}");
        }
        for text in ["^", "^^eth0", "!docker0", "^!docker0"] {
            assert_eq!(parse(text), Err(InvalidFilter::Exclusion(text.to_owned())));
        }
    }

    #[test]
    fn every_error_quotes_the_text_and_says_what_to_write() {
        for (text, cure) in [
            ("10.0.0.0/33", "write 10.1.2.3, 10.1.0.0/16 or fd00::/8"),
            ("fe80::1%eth0", "write the interface's name"),
            ("sixteen-letters-", "1 to 15 characters"),
            ("eth[01]", "write eth*"),
            ("!docker0", "write ^docker0"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?}")) && error.contains(cure), "{error}");
        }
    }

    #[test]
    fn a_star_matches_any_text_and_a_question_mark_one_character() {
        for (glob, name, expected) in [
            ("*", "eth0", true),
            ("eth*", "eth", true),
            ("eth*", "eth10", true),
            ("eth*", "veth1", false),
            ("*eth*", "veth1", true),
            ("en?s0", "ens0", false),
            ("en?s0", "en1s0", true),
            ("en?s0", "en1s01", false),
            ("e*s*0", "enp3s0f0", true),
            ("e*s*1", "enp3s0f0", false),
            ("*.1??", "bond0.100", true),
            ("???", "ib0", true),
            ("ib?", "ibä", true),
            ("Eth*", "eth0", false),
            ("***************a*b", "aaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(matches(glob, name), expected, "{glob} {name}");
        }
    }
}
