//! The entry of a server in a host's configuration: what is wrong with it, and `--fix-config`, which mends it.
//!
//! ```text
//! entry ── rules ──▶ problems ── edit ──▶ new text ── diff ── consent ──▶ backup, write
//! ```

mod diff;

mod edit;

mod rules;

mod write;

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::programs;
use super::report::Finding;
use crate::failure::Failure;
use crate::hosts::{ConfiguredServer, FileFormat};
use crate::output::{Output, Style, visible, visible_line, wrap};
use edit::{EntryPath, apply, find_entry};
pub(crate) use rules::Surroundings;
use rules::{Problem, problems};

/// The entry of a server, and what is wrong with it.
#[derive(Clone, Debug)]
pub(crate) struct ConfigCheck {
    server: ConfiguredServer,
    text: String,
    path: EntryPath,
    problems: Vec<Problem>,
}

/// Whether to change the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    Given,
    /// If stdin is a terminal.
    Asked,
}

impl ConfigCheck {
    /// Reads the entry. `redirect` is where the URL of the server redirects to.
    ///
    /// # Errors
    ///
    /// With a sentence, if the entry cannot be read again.
    pub(crate) fn read(server: &ConfiguredServer, redirect: Option<&str>) -> Result<Self, String> {
        let file = server.file.display();
        let text =
            std::fs::read_to_string(&server.file).map_err(|error| format!("{file}: {error}"))?;
        let search = std::env::var_os("PATH").unwrap_or_default();
        let search: Vec<PathBuf> = std::env::split_paths(&search).collect();
        let is_found = |program: &str| {
            let is_path = Path::new(program).components().count() > 1;
            (is_path && Path::new(program).is_file())
                || programs::find_in(program, &search).is_some()
        };
        let surroundings = Surroundings {
            is_found: &is_found,
            find_elsewhere: &programs::find_elsewhere,
            redirect,
        };
        Self::of_text(server, text, &surroundings).map_err(|why| format!("{file}: {why}"))
    }

    /// Reads the entry from the text of its file.
    ///
    /// # Errors
    ///
    /// With a sentence, if the text has no such entry.
    pub(crate) fn of_text(
        server: &ConfiguredServer,
        text: String,
        surroundings: &Surroundings<'_>,
    ) -> Result<Self, String> {
        let project = server
            .project
            .as_ref()
            .map(|it| it.to_string_lossy().into_owned());
        let format = FileFormat::of(&server.file);
        let (path, entry) = find_entry(&text, format, project.as_deref(), &server.name)?;
        let problems = problems(server.host, &entry, surroundings);
        Ok(Self {
            server: server.clone(),
            text,
            path,
            problems,
        })
    }

    /// What is wrong, with the command that mends it.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mend = |problem: &Problem| {
            let how = format!(
                "bowline doctor '{}#{}' --fix-config",
                self.server.file.display(),
                self.server.name
            );
            problem
                .finding
                .clone()
                .mend(format!("{} Or: {how}", problem.finding.code.mend))
        };
        self.problems.iter().map(mend).collect()
    }

    /// Returns the file as it should be.
    ///
    /// # Errors
    ///
    /// With a sentence, if the file cannot be changed.
    pub(crate) fn mended(&self) -> Result<String, String> {
        let edits: Vec<_> = self
            .problems
            .iter()
            .flat_map(|it| it.edits.clone())
            .collect();
        let format = FileFormat::of(&self.server.file);
        apply(&self.text, format, &self.path, &edits)
    }

    /// Shows the change, asks for consent, and changes the file. Returns what was done, for programs.
    ///
    /// # Errors
    ///
    /// If the file cannot be changed.
    pub(crate) fn fix(&self, consent: Consent, output: Output) -> Result<Fix, Failure> {
        let file = self.server.file.display().to_string();
        if self.problems.is_empty() {
            return Ok(Fix {
                file,
                ..Fix::default()
            });
        }
        let cannot = |why: &str| {
            Failure::other(format!("failed to change {file}: {why}"))
                .hint("change the entry by yourself; the findings say how")
        };
        let mended = self.mended().map_err(|why| cannot(&why))?;
        let diff = diff::diff(&self.text, &mended);
        let mut fix = Fix {
            file: file.clone(),
            diff,
            backup: None,
        };
        if !output.is_json() {
            fix.show(output)?;
        }
        if consent == Consent::Asked && !ask(&file)? {
            return Ok(fix);
        }
        let backup = write::replace(&self.server.file, &self.text, &mended);
        let backup = backup
            .map_err(|error| Failure::other(format!("failed to write {file}")).caused_by(error))?;
        fix.backup = Some(backup.display().to_string());
        if !output.is_json() {
            output.line(format!(
                "changed {}; the old file is {}",
                visible_line(&file),
                backup.display()
            ))?;
        }
        Ok(fix)
    }
}

/// A change of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fix {
    file: String,
    diff: Vec<String>,
    /// The copy of the old file, if the file was changed.
    backup: Option<String>,
}

impl Fix {
    pub(crate) fn is_applied(&self) -> bool {
        self.backup.is_some()
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"file": self.file, "diff": self.diff, "applied": self.is_applied(), "backup": self.backup})
    }

    fn show(&self, output: Output) -> Result<(), Failure> {
        output.line("")?;
        output.line(output.style(Style::Bold, visible_line(&self.file)))?;
        for line in &self.diff {
            let style = match line.chars().next() {
                Some('-') => Style::Red,
                Some('+') => Style::Green,
                _ => Style::Dim,
            };
            for part in wrap(&visible(line), output.width) {
                output.line(output.style(style, part))?;
            }
        }
        Ok(())
    }
}

/// Asks on the terminal; no consent where there is none.
fn ask(file: &str) -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        eprintln!(
            "bowline: {} was not changed; pass --yes to change it",
            visible_line(file)
        );
        return Ok(false);
    }
    eprint!("change the file? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}
