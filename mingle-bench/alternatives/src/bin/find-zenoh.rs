//! `find-zenoh JOB INDEX WORLD`: a peer with a liveliness token, prints a line once it sees the tokens of
//! all, and stays until its input ends, since others may not have seen its own yet.

use std::collections::BTreeSet;
use std::io::Read;

fn main() {
    let mut args = std::env::args().skip(1);
    let job = args.next().expect("a job");
    let index = args.next().expect("an index");
    let world: usize = args.next().expect("a world").parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(find(&job, &index, world));
}

async fn find(job: &str, index: &str, world: usize) {
    let session = zenoh::open(zenoh::Config::default()).await.expect("a session");
    let tokens = session.liveliness().declare_subscriber(format!("{job}/*")).history(true).await.expect("heard");
    let _token = session.liveliness().declare_token(format!("{job}/{index}")).await.expect("a token is declared");
    let mut seen = BTreeSet::new();
    while seen.len() < world {
        let sample = tokens.recv_async().await.expect("a token");
        seen.insert(sample.key_expr().to_string());
    }
    println!("{seen:?}");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
