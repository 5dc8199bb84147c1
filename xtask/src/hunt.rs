//! `cargo xtask hunt`: runs more schedules of the race hunter than the tests do, or repeats one.

use std::path::Path;

use crate::process;

/// Runs the selected schedules on every core, in optimized code; returns whether all invariants held.
pub(crate) fn run(root: &Path, options: &HuntOptions) -> bool {
    let package = match options.world {
        World::Direct => "bowline",
        World::Bridged => "bowline-bridge",
    };
    let mut hunt = process::cargo(root);
    hunt.args(["test", "--profile", "hunt", "--package", package])
        .args(["--test", "hunter", "--"])
        .args([TEST, "--exact", "--nocapture"])
        .env("BOWLINE_HUNT_FROM", options.from.to_string())
        .env("BOWLINE_HUNT_SEEDS", options.seeds.to_string())
        .env("BOWLINE_HUNT_MAX_BROKEN", options.max_broken.to_string());
    if let Some(scenes) = &options.scenes {
        hunt.env("BOWLINE_HUNT_SCENES", scenes);
    }
    process::run(&mut hunt).unwrap_or_else(|error| {
        println!("failed to start the race hunter: {error}");
        false
    })
}

/// Which schedules to run.
#[derive(Debug, PartialEq)]
pub(crate) struct HuntOptions {
    from: u64,
    seeds: u64,
    /// The run ends after this many seeds that violated an invariant.
    max_broken: u64,
    /// The scenes to run, separated by commas; all if `None`.
    scenes: Option<String>,
    world: World,
}

/// What is between clients and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    Direct,
    Bridged,
}

impl HuntOptions {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            from: DEFAULT_FROM,
            seeds: DEFAULT_SEEDS,
            max_broken: 1,
            scenes: None,
            world: match words.iter().any(|word| word == BRIDGE) {
                true => World::Bridged,
                false => World::Direct,
            },
        };
        let words: Vec<&String> = words.iter().filter(|word| *word != BRIDGE).collect();
        for pair in words.chunks(2) {
            let [flag, value] = pair else {
                return Err(format!("`{}` needs a value", pair[0]));
            };
            let number = match flag.as_str() {
                "--from" => &mut options.from,
                "--seeds" => &mut options.seeds,
                "--max-broken" => &mut options.max_broken,
                "--scenes" => {
                    options.scenes = Some((*value).clone());
                    continue;
                }
                _ => return Err(format!("unknown option `{flag}` of `hunt`")),
            };
            *number = value
                .parse()
                .map_err(|_| format!("`{value}` is not a number"))?;
        }
        Ok(options)
    }
}

const BRIDGE: &str = "--bridge";
const TEST: &str = "the_invariants_hold_for_the_selected_seeds";
/// Above the seeds that the tests run.
const DEFAULT_FROM: u64 = 10_000_000;
const DEFAULT_SEEDS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<HuntOptions, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        HuntOptions::parse(&words)
    }

    #[test]
    fn one_seed_can_be_repeated() {
        let again = HuntOptions {
            from: 104_261,
            seeds: 1,
            max_broken: 1,
            scenes: None,
            world: World::Direct,
        };

        assert_eq!(parse("--from 104261 --seeds 1"), Ok(again));
    }

    #[test]
    fn scenes_can_be_selected() {
        let options = parse("--scenes restart,half-open --max-broken 5").unwrap();

        assert_eq!(options.scenes.as_deref(), Some("restart,half-open"));
        assert_eq!(options.max_broken, 5);
    }

    #[test]
    fn a_bridge_can_be_put_between() {
        let options = parse("--from 7 --bridge --seeds 1").unwrap();

        assert_eq!((options.world, options.from), (World::Bridged, 7));
    }

    #[test]
    fn an_unknown_option_or_value_is_named() {
        assert!(parse("--forever 1").unwrap_err().contains("`--forever`"));
        assert!(parse("--seeds many").unwrap_err().contains("`many`"));
        assert!(parse("--from").unwrap_err().contains("`--from`"));
    }

    #[test]
    fn the_test_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for package in ["bowline", "bowline-bridge"] {
            let hunter = root.join(format!("crates/{package}/tests/hunter/main.rs"));

            let text = std::fs::read_to_string(hunter).unwrap();

            assert!(text.contains(&format!("fn {TEST}()")));
        }
    }
}
