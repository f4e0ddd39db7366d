//! sigaction(2): what is installed for a signal, and what is to be. Not here: the handlers.

use std::mem::MaybeUninit;

use libc::c_int;

use crate::sys::errno;

/// What is installed for a signal now.
pub(crate) fn action(signal: c_int) -> Result<libc::sigaction, i32> {
    let mut current = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only asks; the other pointer is to live memory, valid when zeroed.
    unsafe {
        if libc::sigaction(signal, std::ptr::null(), current.as_mut_ptr()) < 0 {
            return Err(errno());
        }
        Ok(current.assume_init())
    }
}

/// Installs an action: SIG_DFL, SIG_IGN, what [`action`] gave, or an async-signal-safe handler.
///
/// # Safety
/// A handler in it must be async-signal-safe.
pub(crate) unsafe fn set_action(signal: c_int, new: &libc::sigaction) -> Result<(), i32> {
    // SAFETY: the caller vouches for the handler.
    if unsafe { libc::sigaction(signal, new, std::ptr::null_mut()) } < 0 { Err(errno()) } else { Ok(()) }
}
