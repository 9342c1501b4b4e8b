//! A world that stays, for a caller in the same process: the caller runs what the world is for, and this
//! thread answers the other nodes, however long the caller does not.
//!
//! ```text
//! caller                          this thread
//! next, or the first call    ->   looks for the others              -> formed
//!                                 hears what the world does         -> event
//! next     start again       ->   ends this world for all, unless it is over already; then as above
//! finish   all is done       ->   waits until all nodes have said so -> event, and the end
//! fail     it has failed     ->   ends this world for all, and takes part in no other
//! leave, or a closed socket  ->   the same, and the others go on with another node
//! ```
//!
//! A word is one packet; see [`join`](crate::embed::join). While this node looks for others, every word makes
//! it leave at once: the caller says none then but `fail` and `leave`.

use std::io;

use mingle_core::{Change, End, Happening, Session};
use tokio::net::UnixStream;

use crate::caller;
use crate::config::Settings;
use crate::events::Journal;
use crate::exit::Stop;
use crate::formation::Formation;
use crate::join;
use crate::prepare::prepare;
use crate::signals::Signals;

/// Looks for the others, and where the node stays, goes on until the caller leaves or all have finished.
pub(crate) fn all_worlds(config: &mut Settings, journal: &mut Journal) -> Result<(), Stop> {
    let mut found = prepare(config)?;
    let mut session = config.session();
    join::block_on(config, async {
        let missing = || Err(Stop::System("hear the caller", io::Error::other("there is no caller")));
        let words = caller::ends().unwrap_or_else(missing)?;
        loop {
            // The word that was read has made the earlier ones ready.
            let mut signals = Signals::new(&[])?;
            let assignment = join::meet(&mut session, config, journal, &mut signals).await?;
            let written = Formation::new(config, &found, assignment, journal)
                .and_then(|formation| formation.write_outputs().map(|()| formation));
            match written {
                Ok(formation) => formation.tell(session.generation()),
                Err(stop) => {
                    session.leave(End::Exited(stop.code().get())).await;
                    return Err(stop);
                }
            }
            if !config.rendezvous.stays || !attend(&mut session, &words, journal).await? {
                return Ok(());
            }
            found.renew(config, &mut session);
        }
    })
}

/// Stays with the world until the caller starts again, and returns whether it does.
async fn attend(session: &mut Session, words: &UnixStream, journal: &mut Journal) -> Result<bool, Stop> {
    loop {
        let happening = tokio::select! {
            biased;
            happening = session.next() => happening?,
            (word, code) = next(words) => {
                match word.as_str() {
                    "finish" => {
                        session.succeed();
                        continue;
                    }
                    "next" => {
                        session.fail(End::Exited(code));
                        session.stopped();
                        return Ok(true);
                    }
                    "fail" => session.give_up(End::Exited(code)).await,
                    _ => session.leave(if code == 0 { End::Left } else { End::Exited(code) }).await,
                }
                return Ok(false);
            }
        };
        join::tell(session, &happening, journal);
        if matches!(happening, Happening::Running(Change::Finished)) {
            return Ok(false);
        }
    }
}

/// A word of the caller, and its code. Cancel-safe. A socket that the caller has closed says `leave`, again
/// and again.
async fn next(words: &UnixStream) -> (String, u8) {
    loop {
        let left = ("leave".to_owned(), 0);
        if words.readable().await.is_err() {
            return left;
        }
        // The socket keeps packets apart.
        let mut packet = [0; 32];
        match words.try_read(&mut packet) {
            Ok(length @ 1..) => return (String::from_utf8_lossy(&packet[1..length]).into_owned(), packet[0]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return left,
        }
    }
}
