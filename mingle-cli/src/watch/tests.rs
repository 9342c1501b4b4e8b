use super::*;

#[test]
fn only_the_variables_of_its_own_options_count() {
    let read = |variables: &[(&str, &str)]| {
        let value = |name: &str| variables.iter().find(|(other, _)| *other == name);
        Watched::read(WatchArgs::default(), |name| value(name).map(|(_, value)| OsString::from(value)))
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
        ("MINGLE_DISCOVERY_PORT", "29498"),
        ("MINGLE_GROUP", "239.192.7.7"),
        ("MINGLE_BROADCAST", "1"),
        ("MINGLE_INTERFACE", "eth*"),
    ];
    let Watched { job, secret, network, .. } = read(&ours).unwrap();
    let job = job.unwrap();
    assert_eq!((job.as_str(), secret.is_some()), ("foo", true));
    assert_eq!(network.groups(&job)[0], "239.192.7.7:29498".parse().unwrap());
    assert!(network.broadcast && network.interfaces.len() == 1);
    for (name, value) in [("MINGLE_SECRET_FILE", "/nonexistent"), ("MINGLE_GROUP", "10.0.0.1")] {
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

/// Counts how often its changes are taken.
struct Talker(usize);

impl Scene for Talker {
    fn hear(&mut self, _: Duration, _: SocketAddr, _: &[u8]) {}
    fn news(&mut self, _: Duration) -> Vec<String> {
        self.0 += 1;
        Vec::new()
    }
    fn table(&self, _: Duration) -> String {
        String::new()
    }
    fn document(&self, _: Duration) -> Value {
        Value::Null
    }
    fn has_heard(&self) -> bool {
        true
    }
    fn silence(&self) -> String {
        String::new()
    }
}

#[test]
fn the_changes_are_taken_on_every_screen() {
    let null = || File::options().write(true).open("/dev/null").unwrap();
    for mut screen in [Screen::Dark, Screen::Live(null(), 0), Screen::Lines(null())] {
        let mut talker = Talker(0);
        assert!(screen.show(&mut talker, Duration::ZERO).unwrap());
        assert_eq!(talker.0, 1);
    }
}
