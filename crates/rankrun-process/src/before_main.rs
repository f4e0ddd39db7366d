//! The one function of this crate that the dynamic linker calls in every program that links it, before `main`.
//!
//! Here: which of the two roles that this program's own code has no part in it is to play. Not here: the roles
//! (`guardian`, `handover`).

/// Called by the dynamic linker.
#[used]
// SAFETY: .init_array holds pointers to functions that take nothing the callee needs and return nothing.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    // SAFETY: `main`, and with it everything that makes threads, comes later.
    unsafe {
        crate::guardian::be_if_asked();
        crate::handover::receive();
    }
}
