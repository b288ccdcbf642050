//! `mcd pull`.

use anyhow::Result;
use serde::Serialize;

use super::{Ended, open};
use crate::interrupt::Interrupt;
use crate::model::digest::Digest;
use crate::model::image_ref::OsImage;
use crate::options::{FetchOptions, PullOptions};
use crate::pipeline::{self, PullSettings, Pulled, Session};
use crate::plan::Plan;
use crate::ui::Printer;

/// The last JSON line.
#[derive(Debug, Serialize)]
struct Outcome {
    outcome: &'static str,
    image: OsImage,
    digest: Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Plan>,
}

pub(super) fn run(options: PullOptions, printer: &Printer) -> Result<Ended> {
    let host = open::host(&options.target)?;
    let progress = printer.progress("pull");
    let interrupt = Interrupt::listen()?;
    let session = Session::new(host, progress.clone(), interrupt.clone())?;
    let pulled = interrupt
        .explain(pipeline::pull(&session, &options.image, &settings(options.fetch), options.dry_run))
        .inspect_err(|_| progress.finish())?;
    let image = options.image;
    let (outcome, text) = match pulled {
        Pulled::Present(pulled) => {
            let text = format!("{image} ({}) is in the repo already\n", pulled.digest.short());
            (
                Outcome {
                    outcome: "present",
                    image,
                    digest: pulled.digest,
                    commit: Some(pulled.commit),
                    plan: None,
                },
                text,
            )
        }
        Pulled::Fetched(pulled) => {
            let text = format!(
                "{image} ({}) is in the repo: `mcd pivot` to it needs no network now\n",
                pulled.digest.short()
            );
            (
                Outcome {
                    outcome: "fetched",
                    image,
                    digest: pulled.digest,
                    commit: Some(pulled.commit),
                    plan: None,
                },
                text,
            )
        }
        Pulled::WouldFetch(fetch) => {
            let plan = fetch.plan();
            let text = plan.to_string();
            let digest = fetch.resolved.digest.clone();
            (Outcome { outcome: "planned", image, digest, commit: None, plan: Some(plan) }, text)
        }
    };
    progress.end(&outcome, || text);
    Ok(Ended::Done)
}

/// How the command line says to fetch.
pub(super) fn settings(options: FetchOptions) -> PullSettings {
    PullSettings {
        authfile: options.authfile,
        insecure_skip_tls_verification: options.insecure_skip_tls_verification,
        background: options.background,
        rate_limit: options.rate_limit,
    }
}
