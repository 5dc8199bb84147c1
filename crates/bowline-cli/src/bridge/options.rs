//! The options of `bowline bridge`, and what they mean together.

use std::ffi::OsString;
use std::path::PathBuf;

use bowline_core::era::Dialect;
use bowline_core::http::source_policy::{parse_host, parse_origin};
use clap::Args;

use super::cluster_plan::{ClusterOptions, ClusterPlan};
use super::limits::LimitOptions;
use super::pins::PinsAction;
use super::state_key::StateKeySource;
use crate::options::DrainOptions;
use crate::sign_in::SignIn;
use crate::target::{CommandTarget, UrlTarget};
use crate::telemetry::TelemetryOptions;
use crate::values::{NamedValue, parse_address, parse_path, parse_url};

#[derive(Debug, Args)]
pub(crate) struct BridgeOptions {
    /// The URL of the server.
    #[arg(value_parser = parse_url, conflicts_with = "command")]
    url: Option<String>,
    /// The command that starts the server, and its arguments.
    #[arg(last = true)]
    command: Vec<OsString>,
    /// Serve the servers of a configuration file (`mcpServers`, as hosts write it).
    #[arg(help_heading = "Server", long, value_name = "FILE", conflicts_with_all = ["url", "command"])]
    config: Option<PathBuf>,

    /// Check the file and the variables that it names, and exit. No server is started.
    #[arg(help_heading = "Configuration file", long, requires = "config", conflicts_with_all = ["check_pins", "accept_pins", "url", "command"])]
    check_config: bool,
    /// Print what has changed in the tools of the file that are quarantined, and exit; with 1 if there are any.
    #[arg(help_heading = "Configuration file", long, requires = "config", conflicts_with_all = ["accept_pins", "url", "command"])]
    check_pins: bool,
    /// Accept the new definition of quarantined tools of the file, and exit: SERVER/TOOL, SERVER or `all` (repeatable).
    #[arg(help_heading = "Configuration file", long, value_name = "TOOL", requires = "config", conflicts_with_all = ["url", "command"])]
    accept_pins: Vec<String>,

    /// Serve clients over HTTP at this address; port 0 selects a free one [default: 127.0.0.1:8000].
    #[arg(help_heading = "Clients", long, value_name = "ADDR", value_parser = parse_address)]
    http: Option<String>,
    /// Serve one client over stdin and stdout.
    #[arg(help_heading = "Clients", long, conflicts_with = "http")]
    stdio: bool,
    /// The path of the HTTP endpoint [default: /mcp]. HTTP+SSE, the transport of 2024-11-05, is also served at `/sse`.
    #[arg(help_heading = "Clients", long, value_parser = parse_path)]
    path: Option<String>,
    /// Accept requests from web pages of this origin (repeatable).
    #[arg(help_heading = "Clients", long, value_name = "ORIGIN", value_parser = parse_origin)]
    cors: Vec<String>,
    /// Accept requests whose `Host` header has this name, in addition to loopback names (repeatable).
    #[arg(help_heading = "Clients", long, value_name = "NAME", value_parser = parse_host)]
    allow_host: Vec<String>,

    /// Use this protocol version to the server and no other, for example 2025-11-25 [default: the newest that it has; for
    /// legacy clients the newest before 2026-07-28, if it has one].
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    protocol_version: Option<String>,
    /// Send this header to the URL, `Name: value` (repeatable). `${NAME}` is replaced by an environment variable.
    #[arg(help_heading = "Server", long, value_name = "HEADER")]
    header: Vec<String>,
    /// Set an environment variable of the command, `NAME=VALUE`, or pass on that of this process, `NAME` (repeatable).
    #[arg(help_heading = "Server", long, value_name = "VARIABLE")]
    env: Vec<String>,
    /// Pass the whole environment to the command, including secrets.
    #[arg(help_heading = "Server", long)]
    inherit_env: bool,

    /// Do not sign in with OAuth when the server at the URL refuses a request, or a server of the file with `oauth`.
    #[arg(help_heading = "Server", long)]
    no_oauth: bool,
    /// The folder for OAuth tokens. Only its owner can read the files.
    #[arg(
        help_heading = "Server",
        long,
        value_name = "DIR",
        conflicts_with = "no_oauth"
    )]
    token_dir: Option<PathBuf>,

    #[command(flatten)]
    limits: LimitOptions,

    /// The key that seals what clients keep of calls that wait for an answer: `@FILE`, created if missing,
    /// or `${NAME}`, an environment variable with 32 bytes in base64 or as 64 hexadecimal digits. With it, a client that
    /// continues such a call after a restart is told that the call was lost [default: a random one].
    #[arg(help_heading = "Clients", long, value_name = "KEY", value_parser = StateKeySource::parse, conflicts_with_all = ["config", "cluster"])]
    state_key: Option<StateKeySource>,

    #[command(flatten)]
    cluster: ClusterOptions,

    #[command(flatten)]
    drain: DrainOptions,

    #[command(flatten)]
    telemetry: TelemetryOptions,

    /// Log more to stderr; twice for everything.
    #[arg(help_heading = "Telemetry", short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// What `bowline bridge` is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BridgePlan {
    pub(crate) upstream: UpstreamPlan,
    pub(crate) front: FrontPlan,
    /// Whether options choose the front, and not a default.
    pub(crate) is_front_chosen: bool,
    pub(crate) protocol_version: Option<String>,
    pub(crate) limits: LimitOptions,
    pub(crate) state_key: Option<StateKeySource>,
    pub(crate) cluster: Option<ClusterPlan>,
    pub(crate) drain: DrainOptions,
    pub(crate) telemetry: TelemetryOptions,
    pub(crate) verbosity: u8,
}

/// The server behind the bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamPlan {
    Command(CommandTarget),
    Url(UrlTarget),
    Config {
        file: PathBuf,
        /// For those of its servers that have `oauth`.
        sign_in: SignIn,
        action: ConfigAction,
    },
}

/// What is to be done with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigAction {
    Serve,
    Check,
    Pins(PinsAction),
}

/// How clients reach the bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrontPlan {
    Stdio,
    Http(HttpFront),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpFront {
    pub(crate) address: String,
    /// `None` for the default.
    pub(crate) path: Option<String>,
    pub(crate) cors: Vec<String>,
    pub(crate) allow_hosts: Vec<String>,
}

impl HttpFront {
    pub(crate) fn path(&self) -> &str {
        self.path.as_deref().unwrap_or("/mcp")
    }
}

impl BridgeOptions {
    /// Checks what clap cannot check, and replaces variables.
    pub(crate) fn plan(self) -> Result<BridgePlan, String> {
        let front = self.front()?;
        let version = (
            "--protocol-version",
            "`bridge.protocolVersion` of the servers",
        );
        let of_one_server = match &self.protocol_version {
            Some(_) => Some(version),
            None => self.limits.given(),
        };
        if let (Some(_), Some((option, member))) = (&self.config, of_one_server) {
            return Err(format!(
                "{option} is for one server; set {member} in the file"
            ));
        }
        let is_front_chosen = self.stdio || self.http.is_some();
        let (drain, verbosity) = (self.drain, self.verbose);
        let (telemetry, cluster) = (self.telemetry.clone(), self.cluster.clone());
        let (limits, protocol_version) = (self.limits.clone(), self.protocol_version.clone());
        let state_key = self.state_key.clone();
        let upstream = self.upstream()?;
        let cluster = cluster.plan(&upstream)?;
        if cluster.is_some() && front == FrontPlan::Stdio {
            return Err("--cluster is for clients over HTTP; add --http ADDR".to_owned());
        }
        Ok(BridgePlan {
            upstream,
            front,
            is_front_chosen,
            protocol_version,
            limits,
            state_key,
            cluster,
            drain,
            telemetry,
            verbosity,
        })
    }

    fn front(&self) -> Result<FrontPlan, String> {
        let is_stdio = self.stdio || (self.url.is_some() && self.http.is_none());
        if !is_stdio {
            return Ok(FrontPlan::Http(HttpFront {
                address: self.http.clone().unwrap_or_else(|| DEFAULT_ADDRESS.into()),
                path: self.path.clone(),
                cors: self.cors.clone(),
                allow_hosts: self.allow_host.clone(),
            }));
        }
        let of_http = [
            ("--cors", !self.cors.is_empty()),
            ("--allow-host", !self.allow_host.is_empty()),
            ("--path", self.path.is_some()),
        ];
        match of_http.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(format!(
                "{option} is for clients over HTTP; add --http ADDR"
            )),
            None => Ok(FrontPlan::Stdio),
        }
    }

    fn upstream(self) -> Result<UpstreamPlan, String> {
        let has_header = !self.header.is_empty();
        let has_env = !self.env.is_empty() || self.inherit_env;
        let mut words = self.command.into_iter();
        match (self.url, words.next(), self.config) {
            (_, _, _) if has_header && has_env => {
                Err("--header is for a URL and --env for a command; give one of them".to_owned())
            }
            (Some(_), _, _) if has_env => {
                Err("--env and --inherit-env are for a command, not for a URL".to_owned())
            }
            (Some(url), _, _) => {
                let headers = NamedValue::parse_headers(&self.header)?;
                let has_token = headers.iter().any(|header| header.is("authorization"));
                let sign_in = match self.no_oauth || has_token {
                    true => SignIn::Never,
                    false => SignIn::WhenRefused(self.token_dir),
                };
                Ok(UpstreamPlan::Url(UrlTarget {
                    url,
                    headers,
                    sign_in,
                }))
            }
            (None, None, Some(file)) if !has_header && !has_env => {
                let sign_in = match self.no_oauth {
                    true => SignIn::Never,
                    false => SignIn::WhenRefused(self.token_dir),
                };
                let action = match (self.check_config, self.check_pins, self.accept_pins) {
                    (true, ..) => ConfigAction::Check,
                    (_, true, _) => ConfigAction::Pins(PinsAction::Check),
                    (_, _, tools) if tools.is_empty() => ConfigAction::Serve,
                    (_, _, tools) => ConfigAction::Pins(PinsAction::Accept(tools)),
                };
                Ok(UpstreamPlan::Config {
                    file,
                    sign_in,
                    action,
                })
            }
            (None, None, Some(_)) => Err(
                "--header and --env are for one server; set `headers` and `env` of the servers in the file"
                    .to_owned(),
            ),
            (None, _, _) if has_header || self.no_oauth || self.token_dir.is_some() => Err(
                "--header, --no-oauth and --token-dir are for a server at a URL; this one is not"
                    .to_owned(),
            ),
            (None, Some(program), _) => Ok(UpstreamPlan::Command(CommandTarget {
                program,
                args: words.collect(),
                env: NamedValue::parse_variables(&self.env)?,
                inherit_env: self.inherit_env,
                cwd: None,
            })),
            (None, None, None) => Err(
                "expected a server: a URL, `--` and a command, or --config FILE".to_owned()
            ),
        }
    }
}

fn parse_version(text: &str) -> Result<String, String> {
    let known: Vec<_> = Dialect::ALL.iter().map(|it| it.version).collect();
    match known.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected one of {}", known.join(", "))),
    }
}

const DEFAULT_ADDRESS: &str = "127.0.0.1:8000";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::options::CliCommand;

    fn plan(line: &str) -> BridgePlan {
        match parse(line) {
            Ok(plan) => plan,
            Err(error) => panic!("{line}: {error}"),
        }
    }

    fn parse(line: &str) -> Result<BridgePlan, String> {
        match CliCommand::parse(line.split_whitespace()) {
            Ok(CliCommand::Bridge(plan)) => Ok(*plan),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    fn address(plan: &BridgePlan) -> Option<&str> {
        match &plan.front {
            FrontPlan::Stdio => None,
            FrontPlan::Http(front) => Some(&front.address),
        }
    }

    #[test]
    fn a_command_is_served_over_http_and_a_url_over_stdio_unless_told_otherwise() {
        let cells = [
            ("bridge -- server --http x", Some("127.0.0.1:8000")),
            ("bridge --http 0.0.0.0:80 -- server", Some("0.0.0.0:80")),
            ("bridge --http 9000 -- server", Some("127.0.0.1:9000")),
            ("bridge --stdio -- server", None),
            ("bridge https://a.example/mcp", None),
            (
                "bridge https://a.example/mcp --http localhost:1",
                Some("localhost:1"),
            ),
            ("bridge --config servers.json", Some("127.0.0.1:8000")),
            ("bridge --config servers.json --stdio", None),
        ];
        for (line, expected) in cells {
            assert_eq!(address(&plan(line)), expected, "{line}");
        }
    }

    #[test]
    fn words_after_two_hyphens_belong_to_the_command() {
        let plan = plan("bridge -- npx -y server --stdio -- x");

        let UpstreamPlan::Command(command) = plan.upstream else {
            panic!("{plan:?}");
        };
        assert_eq!(command.program, "npx");
        assert_eq!(command.args, ["-y", "server", "--stdio", "--", "x"]);
    }

    #[test]
    fn a_given_token_replaces_signing_in() {
        let sign_in = |line: &str| match plan(line).upstream {
            UpstreamPlan::Url(url) => url.sign_in,
            other => panic!("{other:?}"),
        };

        assert_eq!(
            sign_in("bridge https://a.example"),
            SignIn::WhenRefused(None)
        );
        assert_eq!(
            sign_in("bridge https://a.example --token-dir t"),
            SignIn::WhenRefused(Some("t".into()))
        );
        assert_eq!(
            sign_in("bridge https://a.example --no-oauth"),
            SignIn::Never
        );
        let with_token = "bridge https://a.example --header AUTHORIZATION:secret";
        assert_eq!(sign_in(with_token), SignIn::Never);
        assert!(!format!("{:?}", plan(with_token)).contains("secret"));
    }

    #[test]
    fn options_that_contradict_each_other_are_refused_with_the_reason() {
        let lines = [
            ("bridge", "expected a server"),
            ("bridge npx", "put a command after `--`"),
            ("bridge npx some-server", "unexpected argument"),
            ("bridge https://a.example -- server", "cannot be used with"),
            (
                "bridge https://a.example --http 1 --stdio",
                "cannot be used with",
            ),
            ("bridge https://a.example --env A=1", "for a command"),
            ("bridge --header A:1 -- server", "for a server at a URL"),
            (
                "bridge --header A:1 --config a",
                "of the servers in the file",
            ),
            ("bridge --env A=1 --config a", "of the servers in the file"),
            (
                "bridge --header A:1 --env A=1 -- server",
                "give one of them",
            ),
            (
                "bridge --stdio --cors https://b.example -- server",
                "add --http",
            ),
            ("bridge --cors b.example -- server", "expected an origin"),
            ("bridge --allow-host b:80 -- server", "without scheme, port"),
            ("bridge --header A -- server", "for a server at a URL"),
            ("bridge https://a.example --header A", "`Name: value`"),
            ("bridge https://a.example --idle-timeout soon", "soon"),
            ("bridge --max-connections 0 -- server", "0"),
            ("bridge --path mcp -- server", "start with `/`"),
            ("bridge --http nowhere -- server", "ADDRESS:PORT"),
            ("bridge --cluster mysql://a -- server", "postgres://"),
            ("bridge --cluster-name a -- server", "--cluster"),
            ("bridge --state-key secret -- server", "`@FILE`"),
            (
                "bridge --max-connections 9 --config a",
                "set `bridge.maxConnections` of the servers in the file",
            ),
            (
                "bridge --protocol-version 2025-11-25 --config a",
                "set `bridge.protocolVersion` of the servers",
            ),
            (
                "bridge --protocol-version 2025 -- server",
                "expected one of 2026-07-28, 2025-11-25",
            ),
            ("bridge --check-config", "--config"),
            (
                "bridge --check-config --check-pins --config a",
                "cannot be used with",
            ),
            ("bridge --check-pins", "--config"),
            ("bridge --check-pins -- server", "cannot be used with"),
            ("bridge --accept-pins a -- server", "cannot be used with"),
            ("bridge --state-key @a --config b", "cannot be used with"),
            (
                "bridge --cluster-root-certificates a -- server",
                "--cluster",
            ),
        ];
        for (line, reason) in lines {
            let error = parse(line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn the_times_of_the_end_are_those_given() {
        let plan = plan("bridge --drain-delay 0 --grace 3s -- server");

        assert_eq!(plan.drain.drain_delay, Some(Duration::ZERO));
        assert_eq!(plan.drain.grace, Some(Duration::from_secs(3)));
    }
}
