//! The end of a rendezvous whose object nobody has closed: the other nodes learn the exit code of the
//! process. Python tells it to none of its own functions, and glibc tells it to those of `on_exit`.

use std::ffi::{c_int, c_void};
use std::mem;
use std::process;
use std::sync::{Arc, Mutex, Once};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mingle_cli::embed::Word;

use crate::queue::{Queue, lock};

/// How long after its object a node leaves, if the process has not ended by then: `sys.exit(main())` drops
/// the objects of `main` first.
const GRACE: Duration = Duration::from_secs(2);

/// The parts in worlds that this process has, for its end.
static STAYING: Mutex<Vec<Arc<Part>>> = Mutex::new(Vec::new());

/// This process's part in a rendezvous.
pub(crate) struct Part {
    pub(crate) queue: Queue,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: u32,
    stays: bool,
}

impl Part {
    pub(crate) fn new(queue: Queue, thread: JoinHandle<()>, stays: bool) -> Arc<Self> {
        static ONCE: Once = Once::new();
        let part = Arc::new(Self { queue, thread: Mutex::new(Some(thread)), process: process::id(), stays });
        if stays {
            ONCE.call_once(|| {
                // Without it the connections of the process say that the node is gone.
                let _ = on_exit(tell, std::ptr::null_mut());
            });
            let mut staying = lock(&STAYING);
            staying.retain(|part| part.is_running());
            staying.push(part.clone());
        }
        part
    }

    fn is_running(&self) -> bool {
        lock(&self.thread).is_some()
    }

    /// Waits until the thread has ended and all its sockets are closed.
    pub(crate) fn finish(&self) {
        let thread = lock(&self.thread).take();
        // A panic of the thread was an error already.
        thread.map(JoinHandle::join);
        self.queue.close();
    }

    /// In a child that `fork` has made.
    pub(crate) fn forget(&self) {
        mem::forget(lock(&self.thread).take());
        self.queue.close();
    }
}

/// The object of this part is no longer there.
pub(crate) fn leave_soon(part: &Arc<Part>) {
    if part.stays && part.is_running() {
        let part = part.clone();
        thread::spawn(move || {
            #[expect(
                clippy::disallowed_methods,
                reason = "nothing tells how the process ends before it does"
            )]
            thread::sleep(GRACE);
            part.queue.say(Word::Leave(0));
            part.finish();
        });
    }
}

/// Tells the exit code to the worlds of this process, and waits until their other nodes know.
extern "C" fn tell(code: c_int, _: *mut c_void) {
    let staying = mem::take(&mut *lock(&STAYING));
    // A child that `fork` has made has copies.
    for part in staying.iter().filter(|part| part.process == process::id()) {
        // Of an exit code 8 bits count.
        part.queue.say(Word::Leave(code.to_le_bytes()[0]));
        part.finish();
    }
}

#[expect(unsafe_code, reason = "no crate has this function")]
// SAFETY: that is its signature in glibc's stdlib.h. It keeps the function, and passes the argument on to it.
unsafe extern "C" {
    safe fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}
