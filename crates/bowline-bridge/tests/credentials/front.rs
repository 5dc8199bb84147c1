//! The front that requires tokens, as the configuration says, and what is refused when targets are created.

use bowline::Client;
use bowline_bridge::credentials::{Credentials, check_front, check_reload, guard};
use bowline_bridge::{Bridge, BridgeConfig};
use serde_json::{Value, json};

use crate::world::*;

fn config(upstream: Value, settings: Value) -> BridgeConfig {
    let text = json!({"mcpServers": {"up": upstream}, "bridge": settings}).to_string();
    BridgeConfig::from_json(&text).unwrap()
}

fn auth() -> Value {
    json!({"auth": {"issuers": [ISSUER, "https://other.example"], "resource": RESOURCE, "scopes": ["use"]}})
}

#[tokio::test]
async fn the_front_requires_tokens_if_the_configuration_says_so() {
    let (url, heads) = start_upstream("2026-07-28").await;
    let config = config(json!({"url": url}), auth());
    let target = Credentials::new().target(config.get("up").unwrap());
    let bridge = Bridge::new(target.unwrap());
    let bound = bridge.http().bind("127.0.0.1:0").await.unwrap();
    let front = format!("http://{}/mcp", bound.local_addr());
    let serving = bound.layer(guard(&config).unwrap().unwrap());
    tokio::spawn(async move { serving.serve().await });

    let error = Client::connect(&front).await.unwrap_err();

    let bowline::Error::Unauthorized { challenges, .. } = &error else {
        panic!("expected `Unauthorized`, got {error:?}");
    };
    assert_eq!(challenges[0].scope(), Some("use"));
    assert_eq!(
        challenges[0].resource_metadata(),
        Some("https://bridge.example/.well-known/oauth-protected-resource/mcp")
    );
    assert_eq!(heads.all(), []);
}

#[test]
fn a_front_without_auth_is_open_and_cannot_serve_what_needs_tokens() {
    let plain = json!({"url": "https://a.example/mcp"});
    let passed = json!({"url": "https://a.example/mcp", "bridge": {"passThrough": true}});
    let endpoint = json!({"tokenEndpoint": "https://id.example/token"});
    let exchanged = json!({"url": "https://a.example/mcp", "bridge": {"tokenExchange": endpoint}});

    assert!(guard(&config(plain.clone(), json!({}))).unwrap().is_none());
    check_front(&config(plain, json!({}))).unwrap();
    check_front(&config(passed.clone(), auth())).unwrap();
    for (upstream, member) in [(passed, "passThrough"), (exchanged, "tokenExchange")] {
        let error = check_front(&config(upstream, json!({}))).unwrap_err();
        let expected = format!("server `up`: `bridge.{member}` needs the access tokens of clients");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
fn a_reload_that_the_running_front_cannot_serve_is_refused() {
    let plain = || json!({"url": "https://a.example/mcp"});
    let passed = || json!({"url": "https://a.example/mcp", "bridge": {"passThrough": true}});
    let (open, guarded) = (config(plain(), json!({})), config(plain(), auth()));
    let passing = config(passed(), auth());

    check_reload(&guarded, &guarded).unwrap();
    check_reload(&passing, &guarded).unwrap();
    check_reload(&passing, &passing).unwrap();
    for (started, next, expected) in [
        (&open, &guarded, "`bridge.auth` has changed"),
        (&guarded, &open, "`bridge.auth` has changed"),
        (
            &open,
            &config(passed(), json!({})),
            "set `auth` in `bridge`",
        ),
        (
            &guarded,
            &passing,
            "server `up`: `bridge.passThrough` needs",
        ),
    ] {
        let error = check_reload(started, next).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn tokens_of_clients_are_not_sent_unencrypted() {
    let target = |url: &str, settings: Value| {
        let config = config(json!({"url": url, "bridge": settings}), auth());
        let target = Credentials::new().target(config.get("up").unwrap());
        target.map_err(|error| error.to_string())
    };
    let endpoint = json!({"tokenEndpoint": "https://id.example/token", "clientSecret": "hunter2"});

    for settings in [
        json!({"passThrough": true}),
        json!({"tokenExchange": endpoint}),
    ] {
        for url in [
            "https://a.example/mcp",
            "http://localhost:1/mcp",
            "http://[::1]:1/mcp",
        ] {
            let target = target(url, settings.clone()).unwrap();
            assert!(!format!("{target:?}").contains("hunter2"));
        }
        let error = target("http://a.internal/mcp", settings).unwrap_err();
        assert!(error.starts_with("server `up`: tokens "), "{error}");
        assert!(error.contains("would be sent unencrypted"), "{error}");
    }
    let robot = target(
        "https://a.example/mcp",
        json!({"oauth": {"clientCredentials": true}}),
    );
    assert!(robot.unwrap_err().contains("needs `oauth.clientId`"));
}
