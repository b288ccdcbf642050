//! `mcd generate`: manual pages and completions from the command line's types, for packagers.

use std::path::Path;

use anyhow::Result;
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;
use cap_std_ext::dirext::CapStdExtDirExt as _;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use fn_error_context::context;

use super::Ended;
use crate::cli::Cli;
use crate::options::GenerateOptions;
use crate::ui::Printer;

/// The shells that completions are made for.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

pub(super) fn run(options: GenerateOptions, printer: &Printer) -> Result<Ended> {
    let (folder, files) = match options {
        GenerateOptions::Man(folder) => (folder, manuals()?),
        GenerateOptions::Completions(folder) => (folder, completions()?),
    };
    write(&folder, &files)?;
    printer.say(&format!("wrote {} files to {}", files.len(), folder.display()));
    Ok(Ended::Done)
}

#[context("Writing generated files to {}", folder.display())]
fn write(folder: &Path, files: &[(String, Vec<u8>)]) -> Result<()> {
    let folder = Dir::open_ambient_dir(folder, ambient_authority())?;
    for (name, contents) in files {
        folder.atomic_write(name, contents)?;
    }
    Ok(())
}

/// A page for the program and one for every verb that is no secret.
#[context("Rendering manual pages")]
fn manuals() -> Result<Vec<(String, Vec<u8>)>> {
    let mut command = Cli::command();
    // The pages name their neighbours and the whole command, not the bare verb.
    command.build();
    let mut pages = vec![page("mcd", command.clone())?];
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        pages.push(page(&format!("mcd-{}", verb.get_name()), verb.clone())?);
    }
    Ok(pages)
}

fn page(name: &str, command: Command) -> Result<(String, Vec<u8>)> {
    let manual = clap_mangen::Man::new(command.version(env!("CARGO_PKG_VERSION")))
        .title(name)
        .section("8")
        .date("")
        .manual("System administration");
    let mut contents = Vec::new();
    manual.render(&mut contents)?;
    Ok((format!("{name}.8"), contents))
}

#[context("Rendering completions")]
fn completions() -> Result<Vec<(String, Vec<u8>)>> {
    let files = SHELLS.map(|shell| {
        let mut contents = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "mcd", &mut contents);
        let name = match shell {
            Shell::Zsh => "_mcd",
            Shell::Fish => "mcd.fish",
            _ => "mcd.bash",
        };
        (name.to_owned(), contents)
    });
    Ok(files.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_public_verb_has_a_page() {
        let names: Vec<String> = manuals().unwrap().into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"mcd-pivot.8".to_owned()), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("generate")), "{names:?}");
    }

    #[test]
    fn three_shells() {
        for (name, contents) in completions().unwrap() {
            assert!(String::from_utf8(contents).unwrap().contains("karg-append"), "{name}");
        }
    }
}
