//! The part of the Python module `mingle` that is not Python: a rendezvous on a thread of its own.
//!
//! The thread never takes Python's lock. It puts what it has to say into a queue, and a socket becomes
//! readable, for which Python waits as for any other: with `poll`, which a signal interrupts, or in an event
//! loop.

mod descriptors;
mod queue;

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};
use std::thread::{self, JoinHandle};

use mingle_cli::embed;
use pyo3::prelude::*;

use queue::{Item, Queue, lock};

/// A rendezvous with the arguments of the program, which begins at once. If `stays`, it goes on after the
/// world has formed, until Python says that this node leaves, or until all nodes have finished.
#[pyclass(frozen, weakref, module = "mingle._mingle")]
struct Joining {
    queue: Queue,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[pymethods]
impl Joining {
    #[new]
    fn new(py: Python<'_>, arguments: Vec<String>, keeps_listener: bool, stays: bool) -> PyResult<Self> {
        LazyLock::force(&descriptors::OF_TOKIO);
        let (queue, writer) = Queue::new()?;
        let (sender, separated) = std::sync::mpsc::channel();
        let fd = writer.fd();
        let thread = thread::Builder::new().name("mingle".to_owned()).spawn(move || {
            let is_separate = descriptors::separate(fd).is_ok();
            // The caller is gone only if its process ends.
            let _ = sender.send(is_separate);
            // Where a table has no room for a copy, no rendezvous begins, and Python sees the end.
            let Ok(ends) = writer.socket() else { return };
            embed::join(arguments, (keeps_listener, stays), ends, move |told| writer.tell(&told));
        })?;
        // The socket of the thread is in both tables, and this one's stays open for each child.
        if py.detach(move || separated.recv()).unwrap_or(false) {
            let _ = nix::unistd::close(fd);
        }
        Ok(Self { queue, thread: Mutex::new(Some(thread)) })
    }

    /// The descriptor that is readable while there is something to take; -1 after the end.
    fn fileno(&self) -> i32 {
        self.queue.fd()
    }

    /// What has happened since the last call, in order: a kind, a text of JSON, and a descriptor.
    fn take(&self) -> PyResult<Vec<Item>> {
        Ok(self.queue.take()?)
    }

    /// Says a word of [`embed::join`] to the thread.
    fn say(&self, word: &str, code: u8) {
        self.queue.say(word, code);
    }

    /// Waits until the thread has ended and all its sockets are closed.
    fn finish(&self, py: Python<'_>) {
        py.detach(|| {
            let thread = lock(&self.thread).take();
            // After a panic, Python has seen that the thread has ended.
            thread.map(JoinHandle::join);
            self.queue.close();
        });
    }

    /// For a child that `fork` has made, which has neither the thread nor the thread's sockets.
    #[pyo3(name = "_forget")]
    fn forget(&self) {
        std::mem::forget(lock(&self.thread).take());
        self.queue.close();
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        self.queue.say("leave", 0);
        // Other threads of Python go on until the other nodes know.
        Python::attach(|py| self.finish(py));
    }
}

/// The options of `join`, or of a world that stays. Each has the number of its values: 0, 1, or 2 for many.
#[pyfunction]
fn options(stays: bool) -> BTreeMap<String, u8> {
    embed::options(stays).into_iter().map(|(name, values)| (name.replace('-', "_"), values)).collect()
}

/// The native part of the module `mingle`.
#[pymodule]
fn _mingle(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(options, module)?)?;
    module.add_class::<Joining>()
}
