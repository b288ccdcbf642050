//! `mkimage`: an OS image of an OSTree commit, for scripts.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use mcd_test_support::image::{Image, open_repo, resolve};

const USAGE: &str = "usage: mkimage --repo REPO --commit REV --out DIR:TAG
               [--chunks N] [--compression none|gzip|gzip-members|zstd|zstd-chunked] [--derived TAR]…
Writes the commit as an OS image into the OCI layout DIR and prints its digest.";

fn main() -> Result<()> {
    let (mut repo, mut commit, mut out) = (None, None, None);
    let (mut chunks, mut compression, mut derived) = (0, "gzip".to_owned(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value\n{USAGE}"));
        match argument.as_str() {
            "--repo" => repo = Some(PathBuf::from(value()?)),
            "--commit" => commit = Some(value()?),
            "--out" => out = Some(value()?),
            "--chunks" => chunks = value()?.parse().context("--chunks wants a number")?,
            "--compression" => compression = value()?,
            "--derived" => derived.push(PathBuf::from(value()?)),
            _ => bail!("unknown argument {argument}\n{USAGE}"),
        }
    }
    let (Some(repo), Some(commit), Some(out)) = (repo, commit, out) else { bail!(USAGE) };
    let (dir, tag) = out.rsplit_once(':').context("--out wants DIR:TAG")?;
    let repo = open_repo(&repo)?;
    let commit = resolve(&repo, &commit)?;
    let mut image = Image::of(&repo, &commit).chunks(chunks).compression(compression.parse()?);
    for tar in &derived {
        image = image.derived_tar(tar);
    }
    let written = image.write(dir.as_ref(), tag)?;
    println!("{}", written.digest);
    Ok(())
}
