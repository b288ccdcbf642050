//! The layer reader on arbitrary bytes: the entry of the fuzz target (`fuzz/`) and of its bounded
//! run in the tests.

use std::sync::Arc;
use std::thread::Scope;

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;
use sha2::{Digest as _, Sha256};

use super::decode::{Compressed, Piece, ZstdState};
use super::derived::{LayerReader, Legacy, MetadataWriter, object_set_commit};
use super::encapsulated::ObjectLayer;
use super::label::Labels;
use super::place::Base;
use super::space::SpaceGuard;
use super::staging::Staging;
use super::stop::Stop;
use super::tarball::Tarball;
use super::unpack::{Unpacked, unpack};
use super::writer::{LayerWrites, Writers};
use crate::model::digest::Digest;
use crate::model::oci::{Compression, Layer, LayerKind};

/// Reads `data` as an import reads a layer, into a staging folder of `repo` that is gone afterwards.
/// The first byte says which kind of layer it is; the rest is the blob. Any error will do; a panic,
/// a hang or much memory will not.
pub fn read_layer(repo: &Dir, data: &[u8]) -> Result<()> {
    let Some((first, blob)) = data.split_first() else { return Ok(()) };
    let kind = [LayerKind::Commit, LayerKind::Component, LayerKind::Derived][usize::from(first % 3)];
    let digest = Digest::from_raw(Sha256::digest(blob).into());
    let layer = Layer {
        digest: digest.clone(),
        size: blob.len() as u64,
        media: if first & 0x80 == 0 { Compression::Gzip } else { Compression::None },
        // Of a plain tar that is true.
        diff_id: digest,
        kind,
        title: String::new(),
    };
    let base = if first & 0x40 == 0 { Base::Ostree } else { Base::None };
    let staging = Staging::create(repo)?;
    let stop = Stop::default();
    let space = SpaceGuard::new(repo.try_clone()?, 0);
    let writers = Writers::new(staging.objects().try_clone()?, space, stop.clone());
    let (folder, dirs) = staging.layer("layer-0", 1)?;
    let writes = Arc::new(LayerWrites::new(folder, dirs));
    let mut zstd = ZstdState::default();
    std::thread::scope(|scope| {
        scope.spawn(|| writers.work(0));
        let result = unpacked(scope, &layer, blob, stop, &mut zstd)
            .and_then(|unpacked| read(&writers, &writes, &layer, base, unpacked));
        // Jobs of a reader that failed may still be there.
        let written = writers.finish(&writes);
        writers.close();
        result.and(written.map(drop))
    })
}

fn unpacked<'scope>(
    scope: &'scope Scope<'scope, '_>,
    layer: &'scope Layer,
    blob: &[u8],
    stop: Stop,
    zstd: &'scope mut ZstdState,
) -> Result<Unpacked> {
    let (sender, receiver) = tokio::sync::mpsc::channel(2);
    sender.try_send(Piece::Data(blob.to_vec()))?;
    sender.try_send(Piece::End)?;
    Ok(unpack(scope, Compressed::new(receiver, layer.size, stop), layer, zstd))
}

fn read(
    writers: &Writers,
    writes: &Arc<LayerWrites>,
    layer: &Layer,
    base: Base,
    unpacked: Unpacked,
) -> Result<()> {
    let mut tar = Tarball::new(unpacked);
    let mut out = MetadataWriter::new(writers, writes);
    if layer.kind == LayerKind::Derived {
        let (tree, mut labels) =
            LayerReader::new(writers, writes, Labels::none(), base, Legacy::Maybe).read(&mut tar)?;
        tar.into_inner().finish(layer)?;
        tree.commit(&writers.finish(writes)?, &mut labels, &mut out)?;
    } else {
        let with_commit = layer.kind == LayerKind::Commit;
        let objects = ObjectLayer::new(writers, writes, with_commit).read(&mut tar)?;
        tar.into_inner().finish(layer)?;
        writers.finish(writes)?;
        object_set_commit(&objects.content, &mut out)?;
    }
    Ok(())
}
