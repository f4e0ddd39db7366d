//! Watching panics while a function runs under `record`: what they said, where, and their backtraces.
//! Not here: what is done with them (`record`).
//!
//! A panic hook is the only place where a panic's location and backtrace are to be had. Ours is there only while a
//! watch is, and always calls the one that was there before.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use crate::backtrace::shortened;

/// Panics that are remembered of all threads together: the first ones, as later ones often follow from them.
const MAX_NOTES: usize = 8;

/// Panics of one thread that can follow from each other: one, one of a destructor while that unwinds, and that this aborts.
const MAX_CHAIN: usize = 3;

/// What the standard library says when a panic cannot go on because of another one, or of where it is.
const IN_DESTRUCTOR: &str = "panic in a destructor during cleanup";
const CANNOT_UNWIND: &str = "panic in a function that cannot unwind";

/// What a panic said.
#[derive(Debug)]
pub(crate) struct PanicNote {
    thread: ThreadId,
    thread_name: String,
    location: String,
    message: String,
    backtrace: Backtrace,
}

impl PanicNote {
    /// `thread 'main' panicked at src/main.rs:3:5: boom`.
    pub(crate) fn headline(&self) -> String {
        format!("thread '{}' panicked at {}: {}", self.thread_name, self.location, self.message)
    }

    /// The headline and the backtrace.
    pub(crate) fn in_full(&self) -> String {
        format!("{}\n{}", self.headline(), shortened(&self.backtrace.to_string()))
    }
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;
/// Takes the last panics of a thread, the newest last.
pub(crate) type OnPanic = dyn Fn(&[Arc<PanicNote>]) + Send + Sync;

/// How many watches there are. Changed only with [`INSTALLED`] locked; the hook reads it without, as whoever holds the
/// lock may be waiting for the hook to return.
static WATCHES: AtomicUsize = AtomicUsize::new(0);

struct Installed {
    /// The hook that was there before ours.
    previous: Arc<Box<Hook>>,
    /// Where ours lies, by which it is known again.
    address: usize,
}

static INSTALLED: Mutex<Option<Installed>> = Mutex::new(None);
static FIRST: Mutex<Vec<Arc<PanicNote>>> = Mutex::new(Vec::new());

thread_local! {
    /// The last ones of this thread, the newest last.
    static LAST: RefCell<Vec<Arc<PanicNote>>> = const { RefCell::new(Vec::new()) };
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(hook: &Hook) -> usize {
    std::ptr::from_ref(hook).cast::<()>().addr()
}

/// While it lives, panics of all threads are noted.
pub(crate) struct PanicWatch(());

impl PanicWatch {
    /// Starts to watch; `on_panic` is called for each panic as it starts, on its thread, if given.
    ///
    /// Of several watches at a time, the `on_panic` of the one that began first counts.
    pub(crate) fn begin(on_panic: Option<Box<OnPanic>>) -> Self {
        LAST.take();
        let mut installed = lock(&INSTALLED);
        WATCHES.fetch_add(1, Ordering::Relaxed);
        // The hook cannot be changed from a thread that is panicking: then only the payload will be known.
        if installed.is_none() && !thread::panicking() {
            lock(&FIRST).clear();
            let previous: Arc<Box<Hook>> = Arc::new(std::panic::take_hook());
            let chained = Arc::clone(&previous);
            let ours: Box<Hook> = Box::new(move |info| {
                if WATCHES.load(Ordering::Relaxed) > 0 {
                    note(info, on_panic.as_deref());
                }
                chained(info);
            });
            *installed = Some(Installed { previous, address: address(&*ours) });
            std::panic::set_hook(ours);
        }
        Self(())
    }

    /// The panic that unwound out of the watched function, and panics of other threads that came before it.
    pub(crate) fn caught(&self, payload: &(dyn Any + Send)) -> (Option<Arc<PanicNote>>, Vec<Arc<PanicNote>>) {
        let message = payload_message(payload);
        let mut others: Vec<_> = lock(&FIRST).iter().map(Arc::clone).collect();
        // A payload that was resumed from another thread, as by `join`, passed the hook there and not here.
        let own = LAST.take().pop().filter(|note| note.message == message);
        let own = own.or_else(|| others.iter().rev().find(|note| note.message == message).map(Arc::clone));
        others.retain(|note| own.as_ref().is_none_or(|own| !Arc::ptr_eq(own, note)));
        others.retain(|note| note.thread != thread::current().id());
        (own, others)
    }

    /// Panics of other threads than this one since the watch began.
    pub(crate) fn of_other_threads(&self) -> Vec<Arc<PanicNote>> {
        let here = thread::current().id();
        lock(&FIRST).iter().filter(|note| note.thread != here).map(Arc::clone).collect()
    }
}

impl Drop for PanicWatch {
    fn drop(&mut self) {
        let mut installed = lock(&INSTALLED);
        if WATCHES.fetch_sub(1, Ordering::Relaxed) > 1 || thread::panicking() {
            return;
        }
        let Some(ours) = installed.take() else { return };
        let current = std::panic::take_hook();
        if address(&*current) != ours.address {
            // Somebody put a hook over ours; leave it. Ours stays below and only passes on.
            std::panic::set_hook(current);
            return;
        }
        drop(current);
        match Arc::try_unwrap(ours.previous) {
            Ok(previous) => std::panic::set_hook(previous),
            Err(shared) => std::panic::set_hook(Box::new(move |info| shared(info))),
        }
    }
}

/// Runs inside the panic hook: must not panic.
fn note(info: &PanicHookInfo<'_>, on_panic: Option<&OnPanic>) {
    let current = thread::current();
    let note = Arc::new(PanicNote {
        thread: current.id(),
        thread_name: current.name().unwrap_or("<unnamed>").to_owned(),
        location: info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string),
        message: payload_message(info.payload()),
        backtrace: Backtrace::force_capture(),
    });
    // Fails only while the thread ends.
    let mut last = LAST.try_with(RefCell::take).unwrap_or_default();
    last.drain(..last.len().saturating_sub(MAX_CHAIN - 1));
    last.push(Arc::clone(&note));
    if let Some(on_panic) = on_panic {
        on_panic(&last);
    }
    let _ = LAST.try_with(|slot| slot.replace(last));
    let mut first = lock(&FIRST);
    if first.len() < MAX_NOTES {
        first.push(note);
    }
}

/// Which of a thread's last panics is the one that the newest follows from.
///
/// Only the text tells the standard library's own panics from others; where it does not, the newest is told by itself.
pub(crate) fn first_of(notes: &[Arc<PanicNote>]) -> usize {
    let followed = match notes.last().map(|note| note.message.as_str()) {
        Some(IN_DESTRUCTOR) => 2,
        Some(CANNOT_UNWIND) => 1,
        _ => 0,
    };
    notes.len().saturating_sub(1 + followed)
}

/// The text that a panic was given.
pub(crate) fn payload_message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a value that is no text".to_owned()
    }
}
