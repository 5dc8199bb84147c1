//! [`Options`]: the command line.

use std::path::PathBuf;

use cluster_tests::Engine;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Faults,
    Deploy,
    Cost,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) part: Part,
    /// The program of a replica, `interop-server`.
    pub(crate) replica: PathBuf,
    pub(crate) engine: Engine,
    pub(crate) engine_url: String,
    /// Where the engine is stopped and started.
    pub(crate) control: String,
    /// The folder that the replicas share.
    pub(crate) state: PathBuf,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let part = match words.next().as_deref() {
            Some("faults") => Part::Faults,
            Some("deploy") => Part::Deploy,
            Some("cost") => Part::Cost,
            _ => return Err(USAGE.to_owned()),
        };
        let (mut replica, mut engine_url) = (None, None);
        let (mut control, mut state) = (None, None);
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            match name.as_str() {
                "--replica" => replica = Some(value),
                "--engine" => engine_url = Some(value),
                "--control" => control = Some(value),
                "--state" => state = Some(value),
                _ => return Err(USAGE.to_owned()),
            }
        }
        let needed = |value: Option<String>| value.ok_or_else(|| USAGE.to_owned());
        let engine_url = needed(engine_url)?;
        Ok(Self {
            part,
            replica: needed(replica)?.into(),
            engine: Engine::of_url(&engine_url).ok_or_else(|| USAGE.to_owned())?,
            engine_url,
            control: needed(control)?,
            state: needed(state)?.into(),
        })
    }
}

const USAGE: &str = "usage: cluster-load faults|deploy|cost \
    --replica PROGRAM --engine URL --control ADDRESS --state FOLDER";
