//! Keeping the peak of memory low.

use nix::libc;

/// Tells the C library's allocator to use one arena. With one for each thread, buffers that a decoder
/// allocates and a writer frees stay with an arena that has no use for them: an import of 51 layers
/// peaked at 73 MiB, and at 35 MiB with one arena, in the same CPU time (docs/benchmarks.md).
///
/// Call it before the first thread.
#[allow(unsafe_code)]
pub fn bound() {
    // SAFETY: mallopt changes a tunable of the allocator; there are no other threads yet, and the
    // return value only says whether the tunable is known.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}
