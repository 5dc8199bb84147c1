//! [`ClusterPlan`]: the options of a bridge that is one of several replicas.

use std::env;
use std::fmt;
use std::path::PathBuf;

use bowline::client::ServerConfig;
use bowline::seal::Sealer;
use bowline_bridge::config::StateKey;
use clap::Args;

use super::options::UpstreamPlan;

// The options for replicas.
// No doc comment: it would be the description of every command with these options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Replicas")]
pub(crate) struct ClusterOptions {
    /// Be one of several replicas, which share this engine: `postgres://…`, `redis://…` or `nats://…`. `${NAME}` is
    /// replaced by an environment variable.
    #[arg(long, value_name = "URL")]
    cluster: Option<String>,
    /// The keys that all replicas share, separated by commas: 32 bytes in base64, or as 64 hexadecimal digits. The first
    /// one encrypts [default: the environment variable BOWLINE_CLUSTER_KEYS]. Give `${NAME}`, not the key itself.
    #[arg(long, value_name = "KEYS", requires = "cluster")]
    cluster_keys: Option<String>,
    /// The name that all replicas share, if they are not started with the same server.
    #[arg(long, value_name = "NAME", requires = "cluster")]
    cluster_name: Option<String>,
    /// Require TLS, and trust only the authorities in this file, in PEM [default: those of the system].
    #[arg(long, value_name = "FILE", requires = "cluster")]
    cluster_root_certificates: Option<PathBuf>,
}

/// The cluster that a bridge joins.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClusterPlan {
    pub(super) engine: EngineKind,
    pub(super) url: String,
    /// Bridges with other names do not forward requests to each other.
    pub(super) name: String,
    /// The file of [`ClusterOptions`].
    #[allow(dead_code, reason = "used with the feature `cluster` only")]
    pub(super) root_certificates: Option<PathBuf>,
    /// Encrypts.
    key: [u8; 32],
    /// Decrypt as well.
    old_keys: Vec<[u8; 32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineKind {
    Postgres,
    Redis,
    Nats,
}

impl ClusterOptions {
    /// Checks the options, and replaces variables; `None` if there is no cluster.
    pub(crate) fn plan(&self, upstream: &UpstreamPlan) -> Result<Option<ClusterPlan>, String> {
        self.plan_with(upstream, |name| env::var(name).ok())
    }

    fn plan_with(
        &self,
        upstream: &UpstreamPlan,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<ClusterPlan>, String> {
        let Some(url) = &self.cluster else {
            return Ok(None);
        };
        let expand = |option: &str, text: &str| {
            let expanded = ServerConfig::expand(text, &variable);
            expanded.map_err(|error| format!("{option}: {error}"))
        };
        let url = expand("--cluster", url)?;
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        let engine = match scheme {
            "postgres" | "postgresql" => EngineKind::Postgres,
            "redis" | "rediss" => EngineKind::Redis,
            "nats" | "tls" => EngineKind::Nats,
            // Without the URL, which may contain a password.
            _ => return Err("--cluster: expected postgres://…, redis://… or nats://…".to_owned()),
        };
        let keys = self.cluster_keys.as_deref().unwrap_or(DEFAULT_KEYS);
        let keys = expand("--cluster-keys", keys)?;
        let mut keys = keys.split(',').map(|key| {
            StateKey::decode(key.trim()).ok_or(
                "--cluster-keys: expected 32 bytes in base64, or as 64 hexadecimal digits, for each key",
            )
        });
        let key = keys.next().ok_or("--cluster-keys: expected a key")??;
        let old_keys = keys.collect::<Result<_, _>>()?;
        let name = self.cluster_name.clone();
        Ok(Some(ClusterPlan {
            engine,
            url,
            name: name.unwrap_or_else(|| name_of(upstream)),
            root_certificates: self.cluster_root_certificates.clone(),
            key,
            old_keys,
        }))
    }
}

impl ClusterPlan {
    #[allow(dead_code, reason = "used with the feature `cluster` only")]
    pub(super) fn keys(&self) -> Sealer {
        let add = |sealer: Sealer, key: &[u8; 32]| sealer.also_decrypt(*key);
        self.old_keys.iter().fold(Sealer::new(self.key), add)
    }
}

/// Returns a name that bridges to other servers do not have. Servers that are started by one program, such as `npx`, have
/// other arguments.
fn name_of(upstream: &UpstreamPlan) -> String {
    match upstream {
        UpstreamPlan::Command(command) => {
            let words = [&command.program].into_iter().chain(&command.args);
            let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
            words.join(" ")
        }
        UpstreamPlan::Url(url) => url.url.clone(),
        UpstreamPlan::Config { file, .. } => {
            let name = file.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        }
    }
}

impl fmt::Debug for ClusterPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterPlan")
            .field("engine", &self.engine)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

const DEFAULT_KEYS: &str = "${BOWLINE_CLUSTER_KEYS}";

#[cfg(test)]
mod tests {
    use super::super::options::ConfigAction;
    use super::*;
    use crate::sign_in::SignIn;

    fn options(url: &str, keys: Option<&str>) -> ClusterOptions {
        ClusterOptions {
            cluster: Some(url.to_owned()),
            cluster_keys: keys.map(str::to_owned),
            cluster_name: None,
            cluster_root_certificates: None,
        }
    }

    fn plan(options: &ClusterOptions) -> Result<Option<ClusterPlan>, String> {
        let variable = |name: &str| match name {
            "BOWLINE_CLUSTER_KEYS" => Some("07".repeat(32)),
            "PASSWORD" => Some("secret".to_owned()),
            _ => None,
        };
        let upstream = UpstreamPlan::Config {
            file: "etc/servers.json".into(),
            sign_in: SignIn::Never,
            action: ConfigAction::Serve,
        };
        options.plan_with(&upstream, variable)
    }

    #[test]
    fn the_scheme_selects_the_engine_and_keys_come_from_the_environment() {
        let cells = [
            ("postgres://u:${PASSWORD}@db/x", EngineKind::Postgres),
            ("rediss://cache:6379", EngineKind::Redis),
            ("nats://bus", EngineKind::Nats),
        ];
        for (url, engine) in cells {
            let plan = plan(&options(url, None)).unwrap().unwrap();
            assert_eq!(plan.engine, engine, "{url}");
            assert_eq!((plan.key, plan.old_keys.len()), ([7; 32], 0));
            assert_eq!(plan.name, "servers.json");
            assert!(!format!("{plan:?}").contains("secret"));
        }
        assert_eq!(plan(&ClusterOptions::default()), Ok(None));
    }

    #[test]
    fn keys_are_rotated_with_a_list() {
        let two = format!("{}, {}", "01".repeat(32), "02".repeat(32));

        let plan = plan(&options("redis://a", Some(&two))).unwrap().unwrap();

        assert_eq!((plan.key, plan.old_keys), ([1; 32], vec![[2; 32]]));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let cells = [
            ("mysql://a", None, "postgres://"),
            ("redis://a", Some(""), "--cluster-keys"),
            ("redis://a", Some("short"), "--cluster-keys"),
            ("redis://a", Some("${UNSET}"), "UNSET"),
            ("redis://${UNSET}", None, "--cluster:"),
        ];
        for (url, keys, expected) in cells {
            let error = plan(&options(url, keys)).unwrap_err();
            assert!(error.contains(expected), "{url}: {error}");
        }
    }
}
