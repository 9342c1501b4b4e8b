//! NCCL's configuration files. Their values count as set by the user.

/// The longest name or value in bytes: NCCL cuts what is longer.
const LONGEST: usize = 1023;

/// The variables of NCCL's configuration files (`setEnvFile` in NCCL's `src/misc/param.cc`).
///
/// ```
/// use mingle_core::env::NcclConf;
/// let conf = NcclConf::new(["NCCL_IB_HCA==mlx5_0\n", "# of the site\nNCCL_IB_HCA=mlx5\nNCCL_DEBUG=WARN\n"]);
/// assert_eq!(conf.value("NCCL_IB_HCA"), Some("=mlx5_0"));
/// assert_eq!(conf.value("NCCL_DEBUG"), Some("WARN"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NcclConf(Vec<(String, String)>);

impl NcclConf {
    /// The variables of these texts. The first value of a name counts, as in NCCL.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut variables: Vec<(String, String)> = Vec::new();
        // NCCL removes no white space: neither around a name nor around a value. Since 2.30.3 it removes a
        // carriage return at the end.
        let lines = texts.into_iter().flat_map(|text| text.split('\n'));
        let lines = lines.map(|line| line.strip_suffix('\r').unwrap_or(line));
        let lines = lines.filter(|line| !line.starts_with('#'));
        for (name, value) in lines.filter_map(|line| line.split_once('=')) {
            let name = cut(name);
            if !variables.iter().any(|(known, _)| known == name) {
                variables.push((name.to_owned(), cut(value).to_owned()));
            }
        }
        Self(variables)
    }

    /// All variables, in the order of the files.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of a variable.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_nccl_reads_it() {
        let conf = NcclConf::new(["#A=1\n A=2\nB= 3 \nC\n=4\nD==e\nD=f", "B=5\r\nG=6\r\nH=7\r\r\n"]);
        for (name, value) in [
            ("A", None),
            (" A", Some("2")),
            ("B", Some(" 3 ")),
            ("C", None),
            ("D", Some("=e")),
            ("G", Some("6")),
            ("H", Some("7\r")),
        ] {
            assert_eq!(conf.value(name), value, "{name}");
        }
        let long = format!("H={}", "é".repeat(600));
        assert_eq!(NcclConf::new([&*long]).value("H").map(str::len), Some(1022));
    }
}
