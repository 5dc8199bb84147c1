//! What configurations contain, and what their errors name.

use std::time::Duration;

use bowline::exchange::Principal;

use super::*;

fn config(text: &str) -> BridgeConfig {
    BridgeConfig::from_json(text).unwrap()
}

fn error_of(text: &str) -> String {
    BridgeConfig::from_json(text).unwrap_err().to_string()
}

/// Returns the settings of a server over HTTP with these members in `bridge`.
fn upstream(ours: &str) -> UpstreamSettings {
    let text = format!(r#"{{"mcpServers": {{"one": {{"url": "http://a", "bridge": {ours}}}}}}}"#);
    config(&text).get("one").unwrap().settings().clone()
}

/// Returns the error of a server over HTTP with these members in `bridge`.
fn upstream_error(ours: &str) -> String {
    error_of(&format!(
        r#"{{"mcpServers": {{"one": {{"url": "http://a", "bridge": {ours}}}}}}}"#
    ))
}

#[test]
fn the_file_of_a_host_is_a_configuration() {
    let config = config(
        r#"{
            "inputs": [], "theme": "dark",
            "mcpServers": {
                "b": {"command": "b", "tools": ["*"], "timeout": 60, "oauth": {"scope": "x"}, "alwaysAllow": ["x"]},
                "a": {"type": "http", "url": "https://a.example/mcp", "trust": true},
                "c": {"command": "c", "disabled": true, "autoApprove": []}
            }
        }"#,
    );

    assert_eq!(config.settings(), &BridgeSettings::default());
    let names: Vec<_> = config.upstreams().map(UpstreamConfig::name).collect();
    assert_eq!(names, ["a", "b"], "those that are not disabled");
    assert!(
        config
            .upstreams()
            .all(|it| *it.settings() == UpstreamSettings::default())
    );
    assert_eq!(config.get("b").unwrap().server().command(), Some("b"));
    assert_eq!(config.names().prefix_of("a"), Some("a__"));
    assert!(config.get("c").is_some());
}

#[test]
fn all_members_of_the_bridge_are_read() {
    let config = config(
        r#"{"mcpServers": {}, "bridge": {
            "http": "0.0.0.0:80", "path": "/x", "stdio": true, "allowedHosts": ["a"], "allowedOrigins": ["https://b:443"],
            "auth": {"issuers": ["https://id.example"], "resource": "https://b.example/x", "scopes": ["s"]},
            "name": "n", "instructions": "i", "separator": "-", "heartbeat": "5s", "heartbeatLimit": "never",
            "parkTimeout": "1m", "parkLimit": "2m", "maxParked": 7, "maxIncomingBytes": 1000, "legacyTimeout": "2s"
        }}"#,
    );

    let settings = config.settings();
    assert_eq!(settings.http, Some("0.0.0.0:80".parse().unwrap()));
    assert_eq!((&*settings.path, settings.stdio), ("/x", true));
    assert_eq!(
        (&settings.allowed_hosts[..], &settings.allowed_origins[..]),
        (&["a".to_owned()][..], &["https://b".to_owned()][..])
    );
    let auth = settings.auth.as_ref().unwrap();
    assert_eq!(
        (&*auth.issuers[0], &*auth.resource, &*auth.scopes[0]),
        ("https://id.example", "https://b.example/x", "s")
    );
    assert_eq!(
        (settings.name.as_deref(), settings.instructions.as_deref()),
        (Some("n"), Some("i"))
    );
    assert_eq!((&*settings.separator, settings.max_parked.get()), ("-", 7));
    assert_eq!(
        (settings.heartbeat, settings.heartbeat_limit),
        (Some(Duration::from_secs(5)), None)
    );
    assert_eq!(settings.park_timeout, Duration::from_secs(60));
    assert_eq!(settings.park_limit, Duration::from_secs(120));
    assert_eq!(settings.max_incoming_bytes.get(), 1000);
    assert_eq!(settings.legacy_timeout, Some(Duration::from_secs(2)));
}

#[test]
fn changes_that_a_reload_does_not_apply_are_named() {
    let settings = |members: &str| {
        let config = config(&format!(
            r#"{{"mcpServers": {{}}, "bridge": {{{members}}}}}"#
        ));
        config.settings().clone()
    };
    let started = settings("");

    let applied = settings(r#""instructions": "i", "separator": "-""#);
    let others = settings(r#""http": "127.0.0.1:1", "name": "n", "parkTimeout": "1m""#);

    assert_eq!(applied.unapplied_changes(&started), [""; 0]);
    assert_eq!(
        others.unapplied_changes(&started),
        ["http", "name", "parkTimeout"]
    );
}

#[test]
fn parked_calls_have_a_form_and_a_key() {
    let read = |members: &str| {
        let text = format!(r#"{{"bridge": {{{members}}}, "mcpServers": {{}}}}"#);
        BridgeConfig::from_json(&text).map(|config| config.settings().clone())
    };

    let settings = read(r#""parkedCalls": "task", "stateKey": "${KEY}""#).unwrap();
    assert_eq!(settings.parked_calls, ParkedCallForm::Task);
    assert_eq!(settings.state_key, Some(StateKey::new("${KEY}")));
    let default = read("").unwrap();
    assert_eq!(default.parked_calls, ParkedCallForm::Retry);
    assert_eq!(default.state_key, None);
    for (wrong, member) in [
        (r#""parkedCalls": "other""#, "parkedCalls"),
        (r#""stateKey": 7"#, "stateKey"),
    ] {
        let error = read(wrong).unwrap_err().to_string();
        assert!(error.contains(member), "{error}");
    }
}

#[test]
fn a_key_that_is_too_short_is_refused_when_the_bridge_is_created() {
    let text = r#"{"bridge": {"stateKey": "short"}, "mcpServers": {}}"#;
    let config = BridgeConfig::from_json(text).unwrap();

    let refused = crate::Bridge::from_config(&config).unwrap_err();

    assert!(refused.to_string().contains("stateKey"), "{refused}");
}

#[test]
fn all_members_of_a_server_are_read() {
    let settings = upstream(
        r#"{
            "prefix": "p", "uris": ["x:*"], "pin": {"file": "pins.json", "newTools": "quarantine"}, "shared": true,
            "maxConnections": 30, "maxConnectionsEach": 9, "maxPrincipalConnections": 12, "idleTimeout": "never", "stale": "omit", "timeout": "1m", "listTimeout": "1s",
            "connectTimeout": "2s", "protocolVersion": "2025-06-18", "oauth": {"clientId": "i", "clientSecret": "${S}", "clientKey": "${K}", "scopes": ["a"], "withoutMetadata": true}
        }"#,
    );

    assert_eq!(settings.prefix.as_deref(), Some("p"));
    assert_eq!(settings.uris, [NamePattern::new("x:*")]);
    let pin = settings.pin.unwrap();
    assert_eq!(
        (pin.file.to_str(), pin.new_tools),
        (Some("pins.json"), NewToolPolicy::Quarantine)
    );
    assert_eq!(
        (settings.shared, settings.max_connections.get()),
        (true, 30)
    );
    assert_eq!(settings.max_connections_each.get(), 9);
    assert_eq!(settings.max_principal_connections.get(), 12);
    assert_eq!(
        (settings.idle_timeout, settings.stale),
        (None, StalePolicy::Omit)
    );
    assert_eq!(settings.timeout, Some(Duration::from_secs(60)));
    assert_eq!(settings.list_timeout, Duration::from_secs(1));
    assert_eq!(settings.connect_timeout, Duration::from_secs(2));
    let version = settings.protocol_version.as_ref();
    assert_eq!(version.map(|version| version.as_str()), Some("2025-06-18"));
    let UpstreamCredentials::OAuth(oauth) = &settings.credentials else {
        panic!("{:?}", settings.credentials)
    };
    assert_eq!(
        (oauth.client_id.as_deref(), &oauth.scopes[..]),
        (Some("i"), &["a".to_owned()][..])
    );
    assert_eq!(oauth.client_key.as_deref(), Some("${K}"));
    assert!(oauth.without_metadata);
}

#[test]
fn a_server_has_one_way_to_be_authorized() {
    use UpstreamCredentials::{Headers, OAuth, PassThrough, TokenExchange};

    assert_eq!(
        upstream(r#"{"oauth": false, "passThrough": false}"#).credentials,
        Headers
    );
    assert_eq!(
        upstream(r#"{"passThrough": true}"#).credentials,
        PassThrough
    );
    assert_eq!(
        upstream(r#"{"oauth": true}"#).credentials,
        OAuth(OAuthSettings::default())
    );
    let exchange = upstream(
        r#"{"tokenExchange": {"tokenEndpoint": "https://id.example/token", "audience": "a"}}"#,
    );
    let TokenExchange(exchange) = exchange.credentials else {
        panic!("{exchange:?}")
    };
    assert_eq!(
        (&*exchange.token_endpoint, exchange.audience.as_deref()),
        ("https://id.example/token", Some("a"))
    );

    let both = upstream_error(r#"{"passThrough": true, "oauth": true}"#);
    assert_eq!(
        both,
        "server `one`: `bridge.passThrough`: cannot be combined with `oauth`: a request has one credential"
    );
    let header = r#"{"mcpServers": {"one": {"url": "http://a", "headers": {"authorization": "x"}, "bridge": {"oauth": true}}}}"#;
    assert!(error_of(header).contains("`headers.Authorization`"));
    let stdio = r#"{"mcpServers": {"one": {"command": "a", "bridge": {"passThrough": true}}}}"#;
    assert!(error_of(stdio).ends_with("`bridge.passThrough`: expected a server with a `url`"));
    let endpoint = upstream_error(r#"{"tokenExchange": {}}"#);
    assert!(
        endpoint.contains("`bridge.tokenExchange.tokenEndpoint`: expected a URL"),
        "{endpoint}"
    );
}

#[test]
fn secrets_are_replaced_and_never_shown() {
    let text = r#"{"mcpServers": {"one": {"url": "http://a/${S}", "bridge": {"oauth": {"clientSecret": "${S}", "clientKey": "${S}"}}}}}"#;
    let config = config(text);
    let one = config.get("one").unwrap();

    let expanded = one.expanded_with(|_| Some("s3cret".to_owned())).unwrap();

    let UpstreamCredentials::OAuth(oauth) = &expanded.settings().credentials else {
        panic!("{expanded:?}")
    };
    assert_eq!(oauth.client_secret.as_deref(), Some("s3cret"));
    assert_eq!(oauth.client_key.as_deref(), Some("s3cret"));
    assert_eq!(expanded.server().url(), Some("http://a/s3cret"));
    assert!(!format!("{expanded:?}").contains("s3cret"));
    let text = text.replace("a/${S}", "a");
    let error = self::config(&text)
        .get("one")
        .unwrap()
        .expanded_with(|_| None)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "server `one`: `bridge.oauth.clientSecret`: the environment variable `S` is not set"
    );
}

#[test]
fn unknown_members_of_ours_are_errors_with_what_was_meant() {
    assert_eq!(
        upstream_error(r#"{"max_conections": 1}"#),
        "server `one`: `bridge.max_conections`: unknown member; did you mean `maxConnections`?"
    );
    let unknown = upstream_error(r#"{"colour": 1}"#);
    assert!(
        unknown.contains("`bridge.colour`: unknown member; expected one of `prefix`"),
        "{unknown}"
    );
    let nested = upstream_error(r#"{"tools": {"allowed": []}}"#);
    assert!(
        nested.ends_with("`bridge.tools.allowed`: unknown member; did you mean `allow`?"),
        "{nested}"
    );
    let nested =
        upstream_error(r#"{"rules": [{"scopes": ["a"]}, {"anonymous": true, "tool": []}]}"#);
    assert!(
        nested.ends_with("`bridge.rules[1].tool`: unknown member; did you mean `tools`?"),
        "{nested}"
    );
    let top = error_of(r#"{"mcpServers": {}, "bridge": {"heartBeat": "1s"}}"#);
    assert_eq!(
        top,
        "`bridge.heartBeat`: unknown member; did you mean `heartbeat`?"
    );
    assert!(
        upstream_error(r#"{"pin": {"files": "a"}}"#).contains("`bridge.pin.file`: expected a path")
    );
    assert!(upstream_error(r#"{"oauth": {"clientID": "a"}}"#).contains("did you mean `clientId`"));
}

#[test]
fn members_of_ours_in_the_wrong_place_are_errors() {
    let server = |members: &str| {
        error_of(&format!(
            r#"{{"mcpServers": {{"one": {{"command": "a", {members}}}}}}}"#
        ))
    };

    assert_eq!(
        server(r#""prefix": "x""#),
        r#"server `one`: `prefix`: belongs in `bridge`: {"bridge": {"prefix": …}}"#
    );
    assert!(server(r#""tools": {"deny": ["*"]}"#).contains("`tools`: belongs in `bridge`"));
    assert!(server(r#""brigde": {}"#).contains("`brigde`: unknown member; did you mean `bridge`?"));
}

#[test]
fn values_of_the_wrong_kind_are_errors_that_name_the_member() {
    for (ours, problem) in [
        ("[]", "`bridge`: expected an object, got an array"),
        (
            r#"{"prefix": 1}"#,
            "`bridge.prefix`: expected a string, got `1`",
        ),
        (
            r#"{"prefix": "a b"}"#,
            "`bridge.prefix`: expected letters, digits, `_`, `-` and `.`, got ` `",
        ),
        (
            r#"{"idleTimeout": 30}"#,
            "`bridge.idleTimeout`: expected a duration with a unit",
        ),
        (
            r#"{"listTimeout": "never"}"#,
            "`bridge.listTimeout`: expected a duration with a unit",
        ),
        (
            r#"{"maxConnections": 0}"#,
            "`bridge.maxConnections`: expected a whole number of at least 1, got `0`",
        ),
        (
            r#"{"stale": "hide"}"#,
            "`bridge.stale`: expected one of `show`, `omit`, got `hide`",
        ),
        (
            r#"{"tools": {"deny": "x"}}"#,
            "`bridge.tools.deny`: expected an array of strings",
        ),
        (
            r#"{"tools": [1]}"#,
            "`bridge.tools`: expected an array of strings",
        ),
        (
            r#"{"rules": {}}"#,
            "`bridge.rules`: expected an array of rules",
        ),
        (
            r#"{"rules": [{}]}"#,
            "`bridge.rules[0]`: applies to no principal",
        ),
        (
            r#"{"shared": "yes"}"#,
            "`bridge.shared`: expected true or false",
        ),
        (
            r#"{"oauth": 1}"#,
            "`bridge.oauth`: expected true, false or an object",
        ),
        (r#"{"pin": ""}"#, "`bridge.pin`: expected a path"),
    ] {
        let error = upstream_error(ours);
        assert!(
            error.starts_with(&format!("server `one`: {problem}")),
            "{error}"
        );
    }
}

#[test]
fn values_of_the_wrong_kind_in_the_bridge_are_errors_that_name_the_member() {
    for (ours, problem) in [
        (r#"{"http": 8000}"#, "`bridge.http`: expected an address"),
        (
            r#"{"path": "mcp"}"#,
            "`bridge.path`: expected a path such as",
        ),
        (
            r#"{"allowedHosts": ["https://a.example"]}"#,
            "`bridge.allowedHosts`: expected a host such as",
        ),
        (
            r#"{"allowedOrigins": ["a.example"]}"#,
            "`bridge.allowedOrigins`: expected an origin such as",
        ),
        (
            r#"{"separator": ""}"#,
            "`bridge.separator`: expected one to four",
        ),
        (
            r#"{"heartbeat": "0s"}"#,
            "`bridge.heartbeat`: expected a duration above zero",
        ),
        (
            r#"{"auth": {"resource": "x"}}"#,
            "`bridge.auth.issuers`: expected the URL of an issuer",
        ),
        (
            r#"{"auth": {"issuers": ["x"], "resource": "https://b.example/mcp"}}"#,
            "`bridge.auth.issuers`: expected the URL of an issuer, got `x`",
        ),
        (
            r#"{"auth": {"issuers": ["https://x.example"]}}"#,
            "`bridge.auth.resource`: expected the URL of the bridge",
        ),
    ] {
        let error = error_of(&format!(r#"{{"mcpServers": {{}}, "bridge": {ours}}}"#));
        assert!(error.starts_with(problem), "{error}");
    }
}

#[test]
fn errors_name_the_file() {
    let directory = std::env::temp_dir().join(format!("bowline-config-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("bridge.json");
    let shown = file.display();

    let missing = BridgeConfig::from_file(&file).unwrap_err();
    assert!(
        missing
            .to_string()
            .starts_with(&format!("{shown}: failed to read the file"))
    );
    for (text, problem) in [
        ("{", "expected JSON"),
        ("{}", "expected an object `mcpServers`"),
        (
            r#"{"mcpServers": {"one": {}}}"#,
            "server `one`: expected a `command` or a `url`",
        ),
        (
            r#"{"mcpServers": {}, "bridge": {"x": 1}}"#,
            "`bridge.x`: unknown member",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = BridgeConfig::from_file(&file).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("{shown}: {problem}")),
            "{error}"
        );
        assert_eq!(error.file(), Some(&*file));
    }
    std::fs::write(
        &file,
        r#"{"mcpServers": {"one": {"command": "a", "bridge": {"pin": "p.json"}}}}"#,
    )
    .unwrap();
    let config = BridgeConfig::from_file(&file).unwrap();
    let pin = config.get("one").unwrap().settings().pin.clone().unwrap();
    assert_eq!(pin.file, directory.join("p.json"), "relative to the file");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn prefixes_that_overlap_are_errors_of_the_second_server() {
    let error = error_of(
        r#"{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b", "bridge": {"prefix": "a"}}}}"#,
    );

    assert!(
        error
            .starts_with("server `b`: `bridge.prefix`: names begin with `a__`, as those of `a` do"),
        "{error}"
    );
}

#[test]
fn the_first_rule_for_a_principal_decides() {
    let access = upstream(
        r#"{
            "tools": ["a*", "b"],
            "rules": [
                {"subjects": ["root"]},
                {"principals": ["https://id.example *"], "scopes": ["x", "y"], "tools": {"deny": ["a2"]}},
                {"principals": ["*"], "tools": ["b"], "resources": []},
                {"anonymous": true, "tools": {"allow": ["a1"]}}
            ]
        }"#,
    )
    .access;
    let tools = |principal: &Principal| {
        let names = ["a1", "a2", "b", "c"].into_iter();
        names
            .filter(|name| access.allows(ItemKind::Tool, name, principal))
            .collect::<Vec<_>>()
    };
    let user = Principal::named("https://id.example ada");

    assert_eq!(tools(&user), ["b"]);
    assert_eq!(tools(&user.clone().with_scopes(["x"])), ["b"]);
    assert_eq!(tools(&user.clone().with_scopes(["x", "y"])), ["a1", "b"]);
    assert_eq!(
        tools(&Principal::named("other root").with_subject("root")),
        ["a1", "a2", "b"]
    );
    assert_eq!(tools(&Principal::anonymous()), ["a1"]);
    assert!(!access.allows(ItemKind::Resource, "x:", &user));
    assert!(!access.allows(ItemKind::ResourceTemplate, "x:{y}", &user));
    assert!(access.allows(ItemKind::Prompt, "p", &user));
    assert!(access.depend_on_principal() && access.admits(&user));
}

#[test]
fn a_principal_without_a_rule_sees_nothing() {
    let access = upstream(r#"{"rules": [{"anonymous": true}]}"#).access;
    let named = Principal::named("ada");

    assert!(!access.admits(&named) && !access.allows(ItemKind::Prompt, "p", &named));
    assert!(access.admits(&Principal::anonymous()));
    let none = upstream(r#"{"rules": []}"#).access;
    assert!(!none.admits(&named) && !none.admits(&Principal::anonymous()));
    let all = AccessRules::default();
    assert!(
        all.admits(&named) && all.allows(ItemKind::Tool, "x", &named) && !all.depend_on_principal()
    );
}

#[test]
fn a_reload_touches_only_what_has_changed() {
    let old = config(
        r#"{"mcpServers": {
            "same": {"command": "a"}, "gone": {"command": "a"}, "off": {"command": "a"}, "on": {"command": "a", "disabled": true},
            "moved": {"command": "a"}, "authorized": {"url": "http://a"}, "settings": {"command": "a"}, "limited": {"command": "a"},
            "version": {"command": "a"}
        }}"#,
    );
    let new = config(
        r#"{"mcpServers": {
            "same": {"command": "a"}, "new": {"command": "a"}, "off": {"command": "a", "disabled": true}, "on": {"command": "a"},
            "moved": {"command": "b"}, "authorized": {"url": "http://a", "bridge": {"oauth": true}},
            "settings": {"command": "a", "bridge": {"maxConnectionsEach": 2}}, "limited": {"command": "a", "bridge": {"maxConnections": 2}},
            "version": {"command": "a", "bridge": {"protocolVersion": "2025-11-25"}}
        }}"#,
    );

    let changes = new.changes_from(&old);

    assert_eq!(changes.added, ["new", "on"]);
    assert_eq!(changes.removed, ["gone", "off"]);
    assert_eq!(
        changes.reconnected,
        ["authorized", "limited", "moved", "version"]
    );
    assert_eq!(changes.adjusted, ["settings"]);
    assert_eq!(new.changes_from(&new), ConfigChanges::default());
}
