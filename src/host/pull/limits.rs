//! What a layer may claim. Nothing in a layer is trusted before it is checked against these.

/// A small object is handed to a writer whole; a larger one is streamed to it in pieces of this
/// size. Big enough that most files of an OS go in one piece, small enough that a full queue
/// stays within the memory bound.
pub(super) const CHUNK: usize = 256 * 1024;

/// Bytes that may wait for the writers, over all layers. With the decoders' own buffers this keeps
/// the importer below 64 MB whatever the image.
pub(super) const QUEUE_BYTES: usize = 4 * 1024 * 1024;

/// Extended attributes of one object. The value that ostree-ext enforces too.
pub(super) const MAX_XATTRS: u64 = 1024 * 1024;

/// Distinct extended attributes that one layer may share between its objects (first encoding).
pub(super) const MAX_SHARED_XATTRS: usize = 16 * 1024 * 1024;

/// One commit, dirtree or dirmeta object. libostree refuses larger ones.
pub(super) const MAX_METADATA: u64 = 10 * 1024 * 1024;

/// A path, link target or PAX header in a layer. Linux's PATH_MAX is 4096; PAX headers also carry
/// extended attributes.
pub(super) const MAX_PATH: u64 = 4096;

/// A PAX extended header: extended attributes in clear plus a few fields.
pub(super) const MAX_PAX: u64 = MAX_XATTRS + 64 * 1024;

/// What the tree of a plain layer may take in memory: it is held until the layer's end. A hundred
/// thousand files in ten thousand directories take 20 MB.
pub(super) const MAX_TREE: usize = 32 * 1024 * 1024;

/// What a directory takes there beside its name and attributes, and a file.
pub(super) const TREE_DIR: usize = 1024;
pub(super) const TREE_FILE: usize = 64;

/// How deep a path may go. libostree walks trees recursively.
pub(super) const MAX_DEPTH: usize = 128;

/// Entries in one layer. A whole distribution has about a million files; an OS image a tenth.
pub(super) const MAX_ENTRIES: u64 = 1_000_000;

/// The window of a zstd frame, as a power of two: 16 MiB. The format asks decoders for 8 MiB; every
/// decoder that runs may hold one.
pub(super) const MAX_ZSTD_WINDOW_LOG: u32 = 24;

/// A layer may unpack to this many bytes in any case …
pub(super) const UNPACKED_ALWAYS: u64 = 4 * 1024 * 1024 * 1024;

/// … and beyond that to this many times its compressed size. Real layers reach 10.
pub(super) const UNPACKED_FACTOR: u64 = 100;

/// How many bytes a layer of this compressed size may unpack to.
pub(super) fn unpacked(compressed: u64) -> u64 {
    compressed.saturating_mul(UNPACKED_FACTOR).max(UNPACKED_ALWAYS)
}
