//! [`Recorded`]: a call that a tap has recorded.

use std::path::PathBuf;

use serde_json::Value;

use crate::target::{Target, Tool, Words};
use crate::{Outcome, Result};

/// A recording in the folder of temporary files, removed on drop.
pub(crate) struct Recorded(PathBuf);

impl Recorded {
    /// Calls a tool through a tap; `code` is the expected exit code.
    pub(crate) fn call(
        tool: &Tool,
        options: &[&str],
        arguments: &[&str],
        code: i32,
    ) -> Result<Self> {
        let name = format!("bowline-interop-tool-{}.jsonl", std::process::id());
        let recorded = Self(std::env::temp_dir().join(name));
        recorded.remove(); // a tap does not overwrite the file of a process that had this id
        let file = recorded.0.display().to_string();
        let words = Words {
            command: "call",
            options,
            arguments,
        };
        let ended = match tool.target() {
            Target::Command(command) => {
                let tapped = tool.tapped(&["--quiet", "--record", &file], command);
                tool.start_at(words, &tapped)?.end()?
            }
            Target::Url(url) => {
                let tap = tool.start_tap(&file, url)?;
                let line = tap.stderr_line(LISTENING)?;
                let (_, url) = line.split_once(LISTENING).unwrap_or_default();
                let ended = tool.start_at(words, &Target::Url(url.to_owned()))?.end()?;
                tap.interrupt()?;
                tap.end()?.expect(0)?;
                ended
            }
        };
        ended.expect(code)?;
        Ok(recorded)
    }

    /// Returns the recorded call of a tool, as `bowline show` prints it.
    pub(crate) fn exchange(&self, tool: &Tool, name: &str) -> Result<Value> {
        let file = self.0.display().to_string();
        let shown = tool.run_alone(&["show", "--json", "--tool", name, &file])?;
        let exchanges = shown.expect(0)?.json_lines()?;
        let call = exchanges
            .into_iter()
            .find(|it| it["method"] == "tools/call");
        call.ok_or_else(|| format!("no call of `{name}` in {}", shown.describe()))
    }

    /// Fails if `bowline check` finds something.
    pub(crate) fn check(&self, tool: &Tool) -> Result<Outcome> {
        let file = self.0.display().to_string();
        let checked = tool.run_alone(&["check", "--json", &file])?;
        let findings = checked.json()?["findings"].clone();
        let findings: Vec<String> = findings
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| format!("{}: {}", it["law"], it["what"]))
            .collect();
        match findings.is_empty() {
            true => checked.expect(0).map(|_| Outcome::Ok),
            false => Err(format!("`bowline check` finds {}", findings.join("; "))),
        }
    }

    fn remove(&self) {
        // It may not exist.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.remove();
    }
}

const LISTENING: &str = "listening on ";
