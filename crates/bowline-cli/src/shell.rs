//! `bowline completions` and `bowline man`: what a package installs next to the program.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::options::CliCommand;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct CompletionsOptions {
    /// The shell.
    pub(crate) shell: Shell,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ManOptions {
    /// Write bowline.1, bowline-ls.1 and so on to this folder.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the completions of a shell.
///
/// # Errors
///
/// If stdout is closed.
pub(crate) fn print_completions(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CliCommand::definition(), "bowline", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(Exit::Success)
}

/// Prints or writes the man pages.
///
/// # Errors
///
/// If stdout is closed, or a file cannot be written.
pub(crate) fn print_man(options: &ManOptions) -> Result<Exit, Failure> {
    let definition = CliCommand::definition();
    match &options.dir {
        Some(dir) => clap_mangen::generate_to(definition, dir).map_err(|error| {
            Failure::other(format!("failed to write to {}", dir.display())).caused_by(error)
        })?,
        None => clap_mangen::Man::new(definition).render(&mut std::io::stdout().lock())?,
    }
    Ok(Exit::Success)
}
