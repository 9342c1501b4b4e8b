use std::io::Read as _;
use std::os::fd::OwnedFd;

use super::*;

#[test]
fn only_the_variables_of_its_own_options_count() {
    let read = |variables: &[(&str, &str)]| {
        let value = |name: &str| variables.iter().find(|(other, _)| *other == name);
        subject(WatchArgs::default(), &|name| value(name).map(|(_, value)| (*value).into()))
    };
    let others = [
        ("MINGLE_SEED", "[x"),
        ("MINGLE_IPV6", "x"),
        ("MINGLE_RANK", "9"),
        ("MINGLE_WORLD", "0"),
        ("MINGLE_SECRET", "short"),
        ("MINGLE_TIMEOUT", "x"),
        ("MINGLE_MASTER_PORT", "29499"),
    ];
    let (job, secret, network, limit) = read(&others).unwrap();
    assert!(job.is_none() && secret.is_none() && limit.is_none());
    assert_eq!(network, Network::default());
    let ours = [
        ("MINGLE_JOB_ID", "foo"),
        ("MINGLE_SECRET", "a secret of many bytes"),
        ("MINGLE_MULTICAST", "239.192.7.7:29498"),
        ("MINGLE_BROADCAST", "1"),
        ("MINGLE_INTERFACE", "eth*"),
    ];
    let (job, secret, network, _) = read(&ours).unwrap();
    let job = job.unwrap();
    assert_eq!((job.as_str(), secret.is_some()), ("foo", true));
    assert_eq!(network.groups(&job)[0], "239.192.7.7:29498".parse().unwrap());
    assert!(network.broadcast && network.interfaces.len() == 1);
    for (name, value) in [("MINGLE_SECRET_FILE", "/nonexistent"), ("MINGLE_MULTICAST", "10.0.0.1")] {
        assert!(read(&[("MINGLE_JOB_ID", "foo"), (name, value)]).unwrap_err().to_string().contains(name));
    }
}

#[test]
fn where_nothing_is_redrawn_only_the_lines_that_are_new_are_shown() {
    let (mut shown, out) = io::pipe().unwrap();
    let mut screen = Screen::Lines(OwnedFd::from(out).into(), BTreeSet::new());
    for lines in [&["a", "b"][..], &["a", "b"], &["b", "c"], &["a", "b"]] {
        assert!(screen.show(lines.iter().map(|&line| line.to_owned()).collect()).unwrap());
    }
    drop(screen);
    let mut text = String::new();
    shown.read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().map(|line| line.split_once("Z ").unwrap().1).collect();
    assert_eq!(lines, ["a", "b", "c", "a"]);
}

#[test]
fn the_lines_are_cut_to_the_window_and_the_last_one_counts_the_hidden_ones() {
    let fit = |width, height| {
        let lines = ["12345678", "a", "b", "c"].map(str::to_owned).to_vec();
        fitted(lines, (width, height)).concat()
    };
    assert_eq!(fit(usize::MAX, usize::MAX), "12345678\na\nb\nc\n");
    assert_eq!(fit(8, 5), "12345678\na\nb\nc\n");
    assert_eq!(fit(4, 5), "1234\na\nb\nc\n");
    assert_eq!(fit(20, 4), "12345678\na\nand 2 more lines\n");
    assert_eq!(fit(3, 1), "and\n");
}
