//! [`InstalledBridges`]: the bridges of others, as `cargo xtask bench` has installed them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::program::Subject;

/// The bridges of others, by their names in the report.
#[derive(Debug, Default)]
pub(crate) struct InstalledBridges(BTreeMap<String, InstalledBridge>);

#[derive(Debug)]
struct InstalledBridge {
    version: String,
    /// The first words of the command line, or why there are none.
    command: Result<Vec<String>, String>,
}

impl InstalledBridges {
    /// Reads the file that `cargo xtask bench` writes.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let name = file.display();
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|error| format!("failed to read {name}: {error}"))?;
        Self::parse(&text).ok_or_else(|| format!("failed to parse {name}"))
    }

    /// Parses lines of name, version, `command` and its words, or name, version, `error` and the reason.
    fn parse(text: &str) -> Option<Self> {
        let bridge = |line: &str| {
            let mut fields = line.split('\t').map(str::to_owned);
            let (name, version, kind) = (fields.next()?, fields.next()?, fields.next()?);
            let command = match kind.as_str() {
                "command" => Ok(fields.collect()),
                _ => Err(fields.next()?),
            };
            Some((name, InstalledBridge { version, command }))
        };
        let bridges: Option<_> = text.lines().map(bridge).collect();
        Some(Self(bridges?))
    }

    /// Returns the first words of the command line of a bridge.
    ///
    /// # Errors
    ///
    /// Why it cannot run.
    pub(crate) fn command(&self, subject: Subject) -> Result<&[String], String> {
        let Some(bridge) = self.0.get(subject.name()) else {
            return Err("not installed; `cargo xtask bench` installs it".to_owned());
        };
        match &bridge.command {
            Ok(command) => Ok(command),
            Err(error) => Err(format!("failed to install: {error}")),
        }
    }

    /// Returns the names with versions.
    pub(crate) fn versions(&self) -> Vec<String> {
        let bridges = self.0.iter();
        bridges
            .map(|(name, bridge)| format!("{name} {}", bridge.version))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_has_a_command_or_the_reason_why_it_has_none() {
        let text = "mcp-proxy\t1\tcommand\tnode\tmcp-proxy\nFastMCP\t2\terror\tno network\n";
        let bridges = InstalledBridges::parse(text).unwrap();

        let command = bridges.command(Subject::McpProxy).unwrap();
        assert_eq!(command, ["node", "mcp-proxy"]);
        let error = bridges.command(Subject::FastMcp).unwrap_err();
        assert_eq!(error, "failed to install: no network");
        assert!(bridges.command(Subject::Supergateway).is_err());
        assert_eq!(bridges.versions(), ["FastMCP 2", "mcp-proxy 1"]);
    }
}
