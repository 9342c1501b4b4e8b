use super::*;

#[test]
fn only_the_variables_of_its_own_options_count() {
    let read = |variables: &[(&str, &str)]| {
        let value = |name: &str| variables.iter().find(|(other, _)| *other == name);
        WatchedJobs::read(WatchArgs::default(), |name| value(name).map(|(_, value)| OsString::from(value)))
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
    let watched = read(&others).unwrap();
    assert!(watched.job.is_none() && watched.secret.is_none() && watched.limit.is_none());
    assert_eq!(watched.network, Network::default());
    let ours = [
        ("MINGLE_JOB_ID", "foo"),
        ("MINGLE_SECRET", "a secret of many bytes"),
        ("MINGLE_MULTICAST", "239.192.7.7:29498"),
        ("MINGLE_BROADCAST", "1"),
        ("MINGLE_INTERFACE", "eth*"),
    ];
    let WatchedJobs { job, secret, network, .. } = read(&ours).unwrap();
    let job = job.unwrap();
    assert_eq!((job.as_str(), secret.is_some()), ("foo", true));
    assert_eq!(network.groups(&job)[0], "239.192.7.7:29498".parse().unwrap());
    assert!(network.broadcast && network.interfaces.len() == 1);
    for (name, value) in [("MINGLE_SECRET_FILE", "/nonexistent"), ("MINGLE_MULTICAST", "10.0.0.1")] {
        assert!(read(&[("MINGLE_JOB_ID", "foo"), (name, value)]).unwrap_err().to_string().contains(name));
    }
}

#[test]
fn a_table_is_cut_to_the_window_and_counts_the_hidden_lines() {
    let table = "12345678\na\nb\nc\n";
    assert_eq!(fitted(table, (usize::MAX, usize::MAX)), table);
    assert_eq!(fitted(table, (8, 5)), table);
    assert_eq!(fitted(table, (4, 5)), "1234\na\nb\nc\n");
    assert_eq!(fitted(table, (20, 4)), "12345678\na\nand 2 more lines\n");
    assert_eq!(fitted(table, (3, 1)), "and\n");
}

#[test]
fn a_line_is_printed_once_and_a_flood_of_lines_is_bounded() {
    let lines = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
    let before = lines(2).into_iter().collect();
    assert_eq!(changes(&before, &lines(2)), [""; 0]);
    assert_eq!(changes(&before, &lines(3)), ["2"]);
    let news = changes(&before, &lines(MOST_LINES + 5));
    assert_eq!((news.len(), news[MOST_LINES].as_str()), (MOST_LINES + 1, "and 3 more changes at once"));
}
