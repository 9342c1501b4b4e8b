//! The part of the Python module `mingle` that is not Python: a rendezvous on a thread of its own.
//!
//! The thread never takes Python's lock. It puts what it has to say into a queue, and a socket becomes
//! readable, for which Python waits as for any other: with `poll`, which a signal interrupts, or in an event
//! loop.

mod descriptors;
mod end;
mod queue;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use mingle_cli::embed::{self, Failed, Takes, Word};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Value, json};

use end::Part;
use queue::{Item, Queue};

/// A kind, a text or a dictionary, and a descriptor.
type Taken<'py> = (&'static str, Bound<'py, PyAny>, Option<i32>);

/// A rendezvous with the arguments of the program, which begins at once. If `stays`, it goes on after the
/// world has formed, until Python says that this node leaves, or until all nodes have finished.
#[pyclass(frozen, weakref, module = "mingle._mingle")]
struct Joining(Arc<Part>);

#[pymethods]
impl Joining {
    #[new]
    #[pyo3(signature = (arguments, keeps_listener, stays = false))]
    fn new(py: Python<'_>, arguments: Vec<String>, keeps_listener: bool, stays: bool) -> PyResult<Self> {
        descriptors::of_tokio();
        let (queue, writer) = Queue::new()?;
        let (sender, separated) = std::sync::mpsc::channel();
        let fd = writer.fd();
        let thread = thread::Builder::new().name("mingle".to_owned()).spawn(move || {
            let is_separate = descriptors::separate(fd).is_ok();
            // The caller is gone only if its process ends.
            let _ = sender.send(is_separate);
            // Where a table has no room for a copy, no rendezvous begins, and Python sees the end.
            let Ok(ends) = writer.socket() else { return };
            let teller = writer.clone();
            let told = move |told| teller.tell(told);
            if let Err(failed) = embed::join(arguments, (keeps_listener, stays), ends, told) {
                writer.put(Item::Failed(failed));
            }
        })?;
        // The socket of the thread is in both tables, and this one's stays open for each child.
        if py.detach(move || separated.recv()).unwrap_or(false) {
            let _ = nix::unistd::close(fd);
        }
        Ok(Self(Part::new(queue, thread, stays)))
    }

    /// The descriptor that is readable while there is something to take; -1 after the end.
    fn fileno(&self) -> i32 {
        self.0.queue.fd()
    }

    /// What has happened since the last call, in order.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<Taken<'py>>> {
        self.0
            .queue
            .take()?
            .into_iter()
            .map(|(item, fd)| {
                Ok(match item {
                    Item::Line(line) => ("line", line.into_bound_py_any(py)?, fd),
                    Item::Event(event) => ("event", object(py, &event)?, fd),
                    Item::Formed(document) => ("formed", object(py, &document)?, fd),
                    Item::Failed(Failed { code, kind, message, facts }) => {
                        let failed =
                            json!({ "code": code, "kind": kind, "message": message, "facts": facts });
                        ("failed", object(py, &failed)?, fd)
                    }
                })
            })
            .collect()
    }

    /// The program wants to start again. A world that is not over yet ends for all nodes, with this exit
    /// code. With `holds_port` the next world takes another port at once.
    fn next(&self, code: u8, holds_port: bool) {
        self.0.queue.say(Word::Next { code: code.max(1), holds_port });
    }

    /// The program has succeeded.
    fn succeed(&self) {
        self.0.queue.say(Word::Finish);
    }

    /// The program has failed with this exit code and does not start again.
    fn fail(&self, code: u8) {
        self.0.queue.say(Word::Fail(code.max(1)));
    }

    /// The node leaves; a code other than 0 is a failure of its program.
    fn leave(&self, code: u8) {
        self.0.queue.say(Word::Leave(code));
    }

    /// Waits until the thread has ended and all its sockets are closed.
    fn finish(&self, py: Python<'_>) {
        py.detach(|| self.0.finish());
    }

    /// Leaves, and returns once all sockets are closed.
    fn end(&self, py: Python<'_>) {
        self.0.queue.ask_for_the_end();
        self.finish(py);
    }

    /// For a child that `fork` has made, which has neither the thread nor the thread's sockets.
    #[pyo3(name = "_forget")]
    fn forget(&self) {
        self.0.forget();
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        end::leave_soon(&self.0);
    }
}

/// A document as dictionaries and lists.
fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Bool(value) => value.into_bound_py_any(py),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into_bound_py_any(py),
            None => number.as_f64().into_bound_py_any(py),
        },
        Value::String(text) => text.into_bound_py_any(py),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(|value| object(py, value)).collect::<PyResult<_>>()?;
            Ok(PyList::new(py, values)?.into_any())
        }
        Value::Object(values) => {
            let dict = PyDict::new(py);
            for (name, value) in values {
                dict.set_item(name, object(py, value)?)?;
            }
            Ok(dict.into_any())
        }
    }
}

/// The options of `join`, or of a world that stays. Each has the number of its values: 0, 1, or 2 for many.
#[pyfunction]
fn options(stays: bool) -> BTreeMap<String, u8> {
    let number = |takes| match takes {
        Takes::Nothing => 0,
        Takes::One => 1,
        Takes::Many => 2,
    };
    embed::options(stays).into_iter().map(|(name, takes)| (name.replace('-', "_"), number(takes))).collect()
}

/// The native part of the module `mingle`.
#[pymodule]
fn _mingle(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(options, module)?)?;
    module.add_class::<Joining>()
}
