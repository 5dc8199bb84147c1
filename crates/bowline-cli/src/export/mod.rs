//! `bowline export`: a recording in the format of another program.

use std::path::PathBuf;

use bowline_recording::{to_har, to_otlp};
use clap::Args;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::OutputOptions;
use crate::show::open;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ExportOptions {
    /// The recording.
    file: PathBuf,
    /// Print HAR 1.2.
    #[arg(long, required_unless_present = "otlp", conflicts_with = "otlp")]
    har: bool,
    /// Print OTLP/JSON, which the endpoint `/v1/traces` of a collector accepts.
    #[arg(long)]
    otlp: bool,
    /// Write to this file instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// Prints or writes the recording.
///
/// # Errors
///
/// If it cannot be read or written.
pub(crate) fn run(options: &ExportOptions) -> Result<Exit, Failure> {
    let recording = open(&options.file)?;
    let exported = match options.har {
        true => to_har(&recording),
        false => to_otlp(&recording),
    };
    match &options.to {
        None => OutputOptions::default().output().json(&exported)?,
        Some(file) => std::fs::write(file, exported.to_string()).map_err(|error| {
            Failure::other(format!("failed to write {}", file.display())).caused_by(error)
        })?,
    }
    Ok(Exit::Success)
}
