//! The limits of one server behind the bridge.

use std::num::NonZeroUsize;
use std::time::Duration;

use bowline_bridge::BridgeBuilder;
use clap::Args;

use crate::values::{parse_count, parse_duration};

// Limits that replace the defaults of the bridge.
// No doc comment: it would be the description of every command with these options.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// The maximum number of connections to the server, or of its processes [default: 100].
    #[arg(long, value_name = "N", value_parser = parse_count)]
    max_connections: Option<NonZeroUsize>,
    /// How many connections or processes one client, or the clients of one principal, may use at a time if the server
    /// may ask about their calls [default: 1]. With more, calls at the same time do not share the state of the server.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    max_connections_each: Option<NonZeroUsize>,
    /// How many connections or processes one authenticated principal may use in all [default: 50].
    #[arg(long, value_name = "N", value_parser = parse_count)]
    max_principal_connections: Option<NonZeroUsize>,
    /// How long connecting may take in all, with the start of the command, or the sign-in to a URL [default: 30s, without
    /// the sign-in].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    connect_timeout: Option<Duration>,
    /// How long a connection is kept that no client uses [default: 5m].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    idle_timeout: Option<Duration>,
    /// How long a legacy client over HTTP may be silent before its connection or process is ended [default: 30m].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    legacy_timeout: Option<Duration>,
    /// How long a call waits for the answer to a question of the server, between two requests of a client of 2026-07-28
    /// [default: 5m].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    park_timeout: Option<Duration>,
    /// How long a call may run without progress [default: 1h].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

impl LimitOptions {
    /// Returns an option that is given, and what has its meaning in a configuration file.
    pub(crate) fn given(&self) -> Option<(&'static str, &'static str)> {
        let options = [
            (
                self.max_connections.is_some(),
                "--max-connections",
                "`bridge.maxConnections` of the servers",
            ),
            (
                self.max_connections_each.is_some(),
                "--max-connections-each",
                "`bridge.maxConnectionsEach` of the servers",
            ),
            (
                self.max_principal_connections.is_some(),
                "--max-principal-connections",
                "`bridge.maxPrincipalConnections` of the servers",
            ),
            (
                self.connect_timeout.is_some(),
                "--connect-timeout",
                "`bridge.connectTimeout` of the servers",
            ),
            (
                self.idle_timeout.is_some(),
                "--idle-timeout",
                "`bridge.idleTimeout` of the servers",
            ),
            (
                self.legacy_timeout.is_some(),
                "--legacy-timeout",
                "`bridge.legacyTimeout`",
            ),
            (
                self.park_timeout.is_some(),
                "--park-timeout",
                "`bridge.parkTimeout`",
            ),
            (
                self.timeout.is_some(),
                "--timeout",
                "`bridge.timeout` of the servers",
            ),
        ];
        let given = options.into_iter().find(|(is_given, ..)| *is_given);
        given.map(|(_, option, member)| (option, member))
    }

    pub(crate) fn apply(&self, mut builder: BridgeBuilder) -> BridgeBuilder {
        let Self {
            max_connections,
            max_connections_each,
            max_principal_connections,
            connect_timeout,
            idle_timeout,
            legacy_timeout,
            park_timeout,
            timeout,
        } = *self;
        if let Some(max) = max_connections {
            builder = builder.max_connections(max.get());
        }
        if let Some(max) = max_connections_each {
            builder = builder.max_connections_each(max.get());
        }
        if let Some(max) = max_principal_connections {
            builder = builder.max_principal_connections(max.get());
        }
        if let Some(time) = connect_timeout {
            builder = builder.connect_timeout(time);
        }
        if let Some(time) = idle_timeout {
            builder = builder.idle_timeout(time);
        }
        if let Some(time) = legacy_timeout {
            builder = builder.legacy_timeout(time);
        }
        if let Some(time) = park_timeout {
            builder = builder.park_timeout(time);
        }
        if let Some(time) = timeout {
            builder = builder.call_idle_timeout(time);
        }
        builder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        limits: LimitOptions,
    }

    #[test]
    fn limits_are_those_given() {
        let line = "bridge --max-connections 3 --max-connections-each 1 --max-principal-connections 2 --connect-timeout 2m --idle-timeout 90 --legacy-timeout 9m --park-timeout 2s --timeout 1h";

        let limits = Line::parse_from(line.split(' ')).limits;

        let number = NonZeroUsize::new;
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let expected = LimitOptions {
            max_connections: number(3),
            max_connections_each: number(1),
            max_principal_connections: number(2),
            connect_timeout: seconds(120),
            idle_timeout: seconds(90),
            legacy_timeout: seconds(540),
            park_timeout: seconds(2),
            timeout: seconds(3600),
        };
        assert_eq!(limits, expected);
    }

    #[test]
    fn a_given_limit_is_named_with_its_member_of_the_file() {
        let options = [
            ("--max-connections", "maxConnections"),
            ("--max-connections-each", "maxConnectionsEach"),
            ("--max-principal-connections", "maxPrincipalConnections"),
            ("--connect-timeout", "connectTimeout"),
            ("--idle-timeout", "idleTimeout"),
            ("--legacy-timeout", "legacyTimeout"),
            ("--park-timeout", "parkTimeout"),
            ("--timeout", "timeout"),
        ];
        let all = LimitOptions::augment_args(clap::Command::new("bridge"));
        assert_eq!(all.get_arguments().count(), options.len());
        for (option, member) in options {
            let limits = Line::parse_from(["bridge", option, "9"]).limits;
            let (named, in_file) = limits.given().unwrap();
            assert_eq!(named, option);
            assert!(
                in_file.starts_with(&format!("`bridge.{member}`")),
                "{in_file}"
            );
        }
        assert_eq!(Line::parse_from(["bridge"]).limits.given(), None);
    }
}
