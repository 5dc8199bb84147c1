//! Parses the arguments of `cargo xtask` and runs the command.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::{
    api, bench, ci, cluster, conformance, crash, deny, docs, fuzz, hunt, interop, msrv, mutants,
    otel, package, pictures, semver, symbols, tidy, typos,
};

/// Parses `words` and runs the command; fails if the command or one of its checks does.
pub fn run(words: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<String> = words.collect();
    let passed = match Command::parse(&words) {
        Ok(Command::Usage) => {
            println!("{USAGE}");
            true
        }
        Ok(Command::Ci(options)) => ci::run(&workspace_root(), &options),
        Ok(Command::Tidy) => tidy::run(&workspace_root()),
        Ok(Command::Mutants { only }) => mutants::run(&workspace_root(), &only),
        Ok(Command::Sweep { options }) => {
            reported("mutants", mutants::sweep(&workspace_root(), &options))
        }
        Ok(Command::Api(mode)) => reported("api", api::run(&workspace_root(), mode)),
        Ok(Command::Typos) => reported("typos", typos::run(&workspace_root())),
        Ok(Command::Otel) => reported("otel", otel::run(&workspace_root())),
        Ok(Command::Docs) => reported("docs", docs::run(&workspace_root())),
        Ok(Command::Package(mode)) => reported("package", package::run(&workspace_root(), mode)),
        Ok(Command::Pictures { only }) => {
            reported("pictures", pictures::run(&workspace_root(), &only))
        }
        Ok(Command::Symbols { mode, folder }) => reported(
            "symbols",
            symbols::run(&workspace_root(), mode, folder.as_deref()),
        ),
        Ok(Command::Msrv) => reported("msrv", msrv::run(&workspace_root())),
        Ok(Command::Semver { baseline }) => reported(
            "semver",
            semver::run(&workspace_root(), baseline.as_deref()),
        ),
        Ok(Command::Deny) => deny::run(&workspace_root()),
        Ok(Command::Conformance) => conformance::run(&workspace_root()),
        Ok(Command::Bench { words }) => bench::run(&workspace_root(), &words),
        Ok(Command::Counts(mode)) => bench::counts(&workspace_root(), mode),
        Ok(Command::Cluster(options)) => {
            reported("cluster", cluster::run(&workspace_root(), &options))
        }
        Ok(Command::Crash(options)) => crash::run(&workspace_root(), &options),
        Ok(Command::Hunt(options)) => hunt::run(&workspace_root(), &options),
        Ok(Command::Interop(peers)) => {
            interop::run(&workspace_root(), peers, interop::ResultsMode::Write)
        }
        Ok(Command::Fuzz { target, seconds }) => fuzz::run(&workspace_root(), &target, seconds),
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            false
        }
    };
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints an error as a failure of the command `name`.
fn reported(name: &str, outcome: io::Result<bool>) -> bool {
    outcome.unwrap_or_else(|error| {
        println!("failed to run `{name}`: {error}");
        false
    })
}

#[derive(Debug, PartialEq)]
enum Command {
    Usage,
    Ci(ci::CiOptions),
    Tidy,
    Mutants {
        only: Vec<String>,
    },
    Sweep {
        options: Vec<String>,
    },
    Api(api::ApiMode),
    Typos,
    Otel,
    Deny,
    Docs,
    Package(package::PackageMode),
    Pictures {
        only: Vec<String>,
    },
    Symbols {
        mode: symbols::SymbolsMode,
        folder: Option<String>,
    },
    Msrv,
    Semver {
        baseline: Option<String>,
    },
    Conformance,
    Bench {
        words: Vec<String>,
    },
    Counts(bench::CountsMode),
    Cluster(cluster::ClusterOptions),
    Crash(crash::CrashOptions),
    Hunt(hunt::HuntOptions),
    Interop(interop::Peers),
    Fuzz {
        target: String,
        seconds: u64,
    },
}

impl Command {
    fn parse(words: &[String]) -> Result<Self, String> {
        let Some((name, rest)) = words.split_first() else {
            return Ok(Self::Usage);
        };
        match name.as_str() {
            "help" | "--help" | "-h" => Ok(Self::Usage),
            "ci" => ci::CiOptions::parse(rest).map(Self::Ci),
            "tidy" if rest.is_empty() => Ok(Self::Tidy),
            "tidy" => Err("`tidy` takes no arguments".to_owned()),
            "mutants" if rest.first().is_some_and(|word| word == "--sweep") => Ok(Self::Sweep {
                options: rest[1..].to_vec(),
            }),
            "mutants" => Ok(Self::Mutants {
                only: rest.to_vec(),
            }),
            "api" if rest.is_empty() => Ok(Self::Api(api::ApiMode::Compare)),
            "api" if rest == ["--bless"] => Ok(Self::Api(api::ApiMode::Bless)),
            "api" => Err("`api` takes only `--bless`".to_owned()),
            "typos" if rest.is_empty() => Ok(Self::Typos),
            "typos" => Err("`typos` takes no arguments".to_owned()),
            "otel" if rest.is_empty() => Ok(Self::Otel),
            "otel" => Err("`otel` takes no arguments".to_owned()),
            "deny" if rest.is_empty() => Ok(Self::Deny),
            "deny" => Err("`deny` takes no arguments".to_owned()),
            "docs" if rest.is_empty() => Ok(Self::Docs),
            "docs" => Err("`docs` takes no arguments".to_owned()),
            "package" if rest.is_empty() => Ok(Self::Package(package::PackageMode::Pack)),
            "package" if rest == ["--build"] => Ok(Self::Package(package::PackageMode::Build)),
            "package" => Err("`package` takes only `--build`".to_owned()),
            "pictures" => Ok(Self::Pictures {
                only: rest.to_vec(),
            }),
            "symbols" => {
                let (mode, rest) = match rest.split_first() {
                    Some((first, rest)) if first == "--check" => {
                        (symbols::SymbolsMode::Check, rest)
                    }
                    _ => (symbols::SymbolsMode::Write, rest),
                };
                match rest {
                    [] => Ok(Self::Symbols { mode, folder: None }),
                    [folder] => Ok(Self::Symbols {
                        mode,
                        folder: Some(folder.clone()),
                    }),
                    _ => Err("`symbols` takes only `--check` and a folder".to_owned()),
                }
            }
            "msrv" if rest.is_empty() => Ok(Self::Msrv),
            "msrv" => Err("`msrv` takes no arguments".to_owned()),
            "semver" if rest.len() <= 1 => Ok(Self::Semver {
                baseline: rest.first().cloned(),
            }),
            "semver" => Err("`semver` takes at most one revision".to_owned()),
            "conformance" if rest.is_empty() => Ok(Self::Conformance),
            "conformance" => Err("`conformance` takes no arguments".to_owned()),
            "bench" => Ok(Self::Bench {
                words: rest.to_vec(),
            }),
            "counts" if rest.is_empty() => Ok(Self::Counts(bench::CountsMode::Check)),
            "counts" if rest == ["--bless"] => Ok(Self::Counts(bench::CountsMode::Bless)),
            "counts" => Err("`counts` takes only `--bless`".to_owned()),
            "cluster" => cluster::ClusterOptions::parse(rest).map(Self::Cluster),
            "crash" => crash::CrashOptions::parse(rest).map(Self::Crash),
            "hunt" => hunt::HuntOptions::parse(rest).map(Self::Hunt),
            "interop" if rest.is_empty() => Ok(Self::Interop(interop::Peers::Sdks)),
            "interop" if rest == ["--real"] => Ok(Self::Interop(interop::Peers::Real)),
            "interop" if rest == ["--real-tool"] => Ok(Self::Interop(interop::Peers::RealTool)),
            "interop" if rest == ["--mock"] => Ok(Self::Interop(interop::Peers::Mocked)),
            "interop" if rest == ["--trace"] => Ok(Self::Interop(interop::Peers::Traced)),
            "interop" => {
                let options = "`--mock`, `--real`, `--real-tool` or `--trace`";
                Err(format!("`interop` takes only {options}"))
            }
            "fuzz" => parse_fuzz(rest),
            other => Err(format!("unknown command `{other}`")),
        }
    }
}

fn parse_fuzz(words: &[String]) -> Result<Command, String> {
    let (target, seconds) = match words {
        [target] => (target, fuzz::DEFAULT_SECONDS),
        [target, flag, seconds] if flag == "--seconds" => (
            target,
            seconds
                .parse()
                .map_err(|_| format!("`{seconds}` is not a number of seconds"))?,
        ),
        _ => return Err("`fuzz` takes one target and an optional `--seconds N`".to_owned()),
    };
    Ok(Command::Fuzz {
        target: target.clone(),
        seconds,
    })
}

/// Returns the workspace that this program was built from, independent of the current directory.
fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the workspace")
        .to_owned()
}

const USAGE: &str = "\
Usage: cargo xtask <command>

  ci [--skip STEP]… [--keep-going]   all checks, in order; `deny`, `packages`, `semver`, `docs`, `counts`,
                                     `real` and `mutants` with --all only
                                     steps: fmt, tidy, typos, otel, deny, clippy, features, test, hostile, doc,
                                     package, packages, msrv, api, semver, docs, no-legacy, counts, conformance,
                                     interop, real, cluster, patches, mutants
  tidy                               the house rules that a text search can check
  typos                              spelling (Python)
  otel                               the names of telemetry against the published conventions (Python)
  api [--bless]                      the public API against its committed text in api/, or write that text
  deny                               licenses, sources and bans of dependencies, and advisories if there is a network
  docs                               the guide in docs/ as HTML (mdBook)
  package [--build]                  packages the published crates, and builds them from their packages
  pictures [NAME]… [FOLDER/]         terminal sessions of the command for the guide, as SVG (tmux); of a program in
                                     FOLDER, or of one that is built
  symbols [--check] [FOLDER]         the order of functions in the command, for the linker (valgrind), or whether it is
                                     still that of this compiler and these dependencies; of a program in FOLDER, or
                                     of one that is built
  msrv                               builds with the oldest supported Rust, if it is installed
  semver [REVISION]                  the public API against that of a revision, or of the last release
  mutants [NAME]…                    planted bugs; the test of each must fail
  mutants --sweep [OPTION]…          cargo-mutants over bowline-core, with these options of it; takes hours
  conformance                        the official suite against our server and client (npm)
  bench [--quick] [--json] [LEG]…    the cost of a message, compared with plain hyper and with rmcp
  counts [--bless]                   the instructions per message, compared with bench/counts.txt (valgrind)
  hunt [--from SEED] [--seeds N]     seeded schedules of the race hunter
       [--scenes A,B] [--max-broken N]   of these scenes only; continue after a seed that violates an invariant
       [--bridge]                    with a bridge between clients and server
  cluster [--only ENGINE]… [TEST]…   Postgres, Redis and NATS: the tests of their crates (--engines), the scenarios
                                     (--scenarios [--quick]) and our client (--fixture) with three replicas
          --report                   writes CLUSTER.md; or parts of it: --faults, --deploy, --cost, --peers
          --serve                    keeps the engines running instead
  crash [--rounds N] [--tasks N]     two servers with tasks in one database, killed at random moments
        [--lease-ms N]
  interop                            other SDKs, as servers and as clients (npm and Python)
  interop --mock                     only a recording of two SDKs, served to their clients
  interop --trace                    only one trace through SDKs, bridge and server
  interop --real                     published programs, unmodified (npm, Python and git)
  interop --real-tool                only the command `bowline` with the published reference servers
  fuzz TARGET [--seconds N]          random input for one decoder (nightly and cargo-fuzz)
                                     targets: json, message, sse, headers, admission, mux, challenge, jws, jwks,
                                     callback, recording, host_config";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Command, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Command::parse(&words)
    }

    #[test]
    fn without_arguments_the_usage_is_printed() {
        assert_eq!(parse(""), Ok(Command::Usage));
    }

    #[test]
    fn counts_are_compared_unless_blessed() {
        assert_eq!(
            parse("counts"),
            Ok(Command::Counts(bench::CountsMode::Check))
        );
        assert_eq!(
            parse("counts --bless"),
            Ok(Command::Counts(bench::CountsMode::Bless))
        );
        assert!(parse("counts --bles").is_err());
    }

    #[test]
    fn the_options_of_a_sweep_are_those_of_cargo_mutants() {
        let options = ["--shard", "0/8"].map(str::to_owned).to_vec();

        assert_eq!(
            parse("mutants --sweep --shard 0/8"),
            Ok(Command::Sweep { options })
        );
    }

    #[test]
    fn semver_takes_an_optional_revision() {
        let command = |baseline: Option<&str>| {
            let baseline = baseline.map(String::from);
            Ok(Command::Semver { baseline })
        };

        assert_eq!(parse("semver"), command(None));
        assert_eq!(parse("semver v0.1.0"), command(Some("v0.1.0")));
        assert!(parse("semver v0.1.0 v0.2.0").is_err());
    }

    #[test]
    fn interop_runs_sdks_unless_told_otherwise() {
        let command = |peers| Ok(Command::Interop(peers));

        assert_eq!(parse("interop"), command(interop::Peers::Sdks));
        assert_eq!(parse("interop --real"), command(interop::Peers::Real));
        let real_tool = command(interop::Peers::RealTool);
        assert_eq!(parse("interop --real-tool"), real_tool);
        assert_eq!(parse("interop --mock"), command(interop::Peers::Mocked));
        assert_eq!(parse("interop --trace"), command(interop::Peers::Traced));
        assert!(parse("interop --reel").is_err());
    }

    #[test]
    fn an_unknown_command_is_named_in_the_error() {
        assert!(parse("tidyy").unwrap_err().contains("`tidyy`"));
    }

    #[test]
    fn fuzz_takes_a_target_and_a_duration() {
        let expected = Command::Fuzz {
            target: "sse".to_owned(),
            seconds: 5,
        };

        assert_eq!(parse("fuzz sse --seconds 5"), Ok(expected));
        assert!(parse("fuzz").is_err());
        assert!(parse("fuzz sse --seconds soon").is_err());
    }
}
