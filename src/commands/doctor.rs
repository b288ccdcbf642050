//! `mcd doctor`: why an image cannot be read from its registry.

use anyhow::Result;
use serde::Serialize;

use super::{Ended, open, pull};
use crate::error::{Fault, to_fault};
use crate::interrupt::Interrupt;
use crate::model::image_ref::{OsImage, Transport};
use crate::options::{DoctorOptions, Target};
use crate::pipeline::{self, Session};
use crate::plan::doctor::{Diagnosis, Findings, Tried, judge};
use crate::ui::Printer;

/// Version of [`Examination`].
const VERSION: u32 = 1;

/// What was found. `--json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Examination {
    version: u32,
    /// What was asked for.
    pub(crate) image: OsImage,
    /// What is at fault; none where the image can be read.
    pub(crate) fault: Option<Diagnosis>,
    /// What was tried, in order.
    pub(crate) tried: Vec<Tried>,
}

pub(super) fn run(options: DoctorOptions, printer: &Printer) -> Result<Ended> {
    let host = open::host(&Target { sysroot: None, wait: true })?;
    let interrupt = Interrupt::listen()?;
    let image = match options.image {
        Some(image) => image,
        None => host.status()?.booted().and_then(|booted| booted.image.clone()).ok_or_else(|| {
            Fault::usage("no image is named, and what runs did not come from one")
                .next("name one: `mcd doctor IMAGE`")
        })?,
    };
    if image.image.transport != Transport::Registry {
        return Err(Fault::usage(format!("{image} is not read from a registry"))
            .next("name an image of a registry: `mcd doctor HOST/NAME:TAG`")
            .into());
    }
    // Reading the manifest says nothing for people: the answer is the whole of it.
    let session = Session::new(host, std::sync::Arc::new(Silent), interrupt.clone())?;
    let tried = session.host.try_the_way(&image.image)?;
    let read = interrupt.explain(pipeline::read_manifest(&session, &image, &pull::settings(options.fetch)));
    let said = match read {
        Ok(()) => None,
        Err(error) if interrupt.signal().is_some() => return Err(error),
        Err(error) => Some(said(&to_fault(&error))),
    };
    let found = examined(image, tried, said);
    printer.doctor(&found)?;
    Ok(if found.fault.is_none() { Ended::Done } else { Ended::Differs })
}

/// What the container tools said.
pub(super) fn said(fault: &Fault) -> String {
    fault.to_string()
}

fn examined(image: OsImage, tried: Vec<Tried>, said: Option<String>) -> Examination {
    let findings = Findings { tried, said };
    let fault = judge(&findings);
    Examination { version: VERSION, image, fault, tried: findings.tried }
}

/// Hears nothing.
struct Silent;

impl crate::model::event::EventSink for Silent {
    fn event(&self, _: crate::model::event::Event) {}
}
