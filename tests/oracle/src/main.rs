//! `ostree-ext`'s command line: `mcd-oracle container image pull REPO IMGREF`, and the like.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    ostree_ext::cli::run_from_iter(std::env::args_os()).await
}
