//! `bowline bridge --check-pins` and `--accept-pins`: shows and accepts the definitions of tools that are quarantined.

use std::collections::BTreeSet;
use std::path::Path;

use bowline_bridge::BridgeConfig;
use bowline_bridge::pins::Pins;

use super::BoxError;

/// What is to be done with the pins of a configuration, in place of serving it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PinsAction {
    /// Print what has changed.
    Check,
    /// Accept these tools: `SERVER/TOOL`, `SERVER` or `all`.
    Accept(Vec<String>),
}

impl PinsAction {
    /// Runs on the calling thread. Diffs are printed to stdout, in the order of servers and tools.
    ///
    /// # Errors
    ///
    /// Also if a check finds tools that are quarantined, so that scripts notice it.
    pub(crate) fn run(&self, file: &Path) -> Result<(), BoxError> {
        let config = BridgeConfig::from_file(file)?;
        let selected: &[String] = match self {
            Self::Check => &[],
            Self::Accept(selected) => selected,
        };
        check_names(&config, selected)?;
        let mut unused: BTreeSet<&String> = selected.iter().collect();
        let (mut accepted, mut left) = (0, 0);
        let mut failed = None;
        for pins in quarantines(&config)? {
            let Quarantine { mut pins, tools } = pins;
            for (server, tool) in tools {
                let name = format!("{server}/{tool}");
                let is_meant = |it: &&String| **it == name || **it == server || *it == ALL;
                let selector = selected.iter().find(is_meant);
                if selector.is_some() || *self == Self::Check {
                    println!("{}", pins.diff(&server, &tool).unwrap_or_default());
                }
                match selector {
                    Some(selector) => {
                        unused.remove(selector);
                        // That which was read and printed, and not a later one in the file.
                        match pins.accept(&server, &tool) {
                            Ok(_) => {
                                accepted += 1;
                                eprintln!("bowline: accepted {name}");
                            }
                            // The others may be accepted all the same.
                            Err(error) => {
                                if let Some(before) = failed.replace(error) {
                                    eprintln!("bowline: {before}");
                                }
                            }
                        }
                    }
                    None => left += 1,
                }
            }
        }
        if accepted > 0 {
            eprintln!("bowline: send SIGHUP to a bridge that is running, so that it offers them");
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        unused.retain(|name| *name != ALL);
        match (unused.first(), left) {
            (Some(name), _) => Err(format!("nothing is quarantined that `{name}` names").into()),
            (None, 0) => {
                if accepted == 0 {
                    eprintln!("bowline: nothing is quarantined so far");
                }
                Ok(())
            }
            (None, left) if *self != Self::Check => {
                eprintln!("bowline: {left} more are quarantined; --check-pins shows them");
                Ok(())
            }
            (None, left) => Err(format!(
                "{left} quarantined; accept them with --accept-pins SERVER/TOOL, SERVER or all"
            )
            .into()),
        }
    }
}

/// Refuses names of servers that the configuration does not have.
fn check_names(config: &BridgeConfig, selected: &[String]) -> Result<(), BoxError> {
    let names: Vec<&str> = config.upstreams().map(|server| server.name()).collect();
    let is_known = |it: &String| {
        // The name of a server may contain slashes.
        let is_of = |name: &&str| {
            it.strip_prefix(*name)
                .is_some_and(|it| it.is_empty() || it.starts_with('/'))
        };
        it == ALL || names.iter().any(is_of)
    };
    match selected.iter().find(|it| !is_known(it)) {
        Some(unknown) => {
            let names = names.join("`, `");
            Err(format!("no server of the file is called `{unknown}`; it has `{names}`").into())
        }
        None => Ok(()),
    }
}

/// Accepts the tools of all servers.
const ALL: &str = "all";

/// The tools of a file of pins that are quarantined.
struct Quarantine {
    pins: Pins,
    tools: Vec<(String, String)>,
}

/// Reads the files of a configuration. Another bridge may have other servers in them, which are left out.
fn quarantines(config: &BridgeConfig) -> Result<Vec<Quarantine>, BoxError> {
    let pinned = config.upstreams().filter_map(|server| {
        let pin = server.settings().pin.as_ref()?;
        Some((&pin.file, server.name()))
    });
    let pinned: BTreeSet<_> = pinned.collect();
    let files: BTreeSet<_> = pinned.iter().map(|(file, _)| *file).collect();
    if files.is_empty() {
        return Err("no server of the file has `pin` in its `bridge`".into());
    }
    let open = |file| {
        let pins = Pins::open(file)?;
        let tools = pins.quarantined();
        let tools = tools.filter(|(server, _)| pinned.contains(&(file, *server)));
        let tools = tools.map(|(server, tool)| (server.to_owned(), tool.to_owned()));
        let tools = tools.collect();
        Ok(Quarantine { pins, tools })
    };
    files.into_iter().map(open).collect()
}
