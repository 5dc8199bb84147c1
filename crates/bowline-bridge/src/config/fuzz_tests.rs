//! Whatever a file contains, the reader returns a configuration or an error.

use serde_json::{Map, Value, json};

use super::*;
use crate::test_random::SplitMix64;

#[test]
fn no_text_makes_the_reader_panic() {
    let valid = include_str!("fuzz_seed.json");
    BridgeConfig::from_json(valid).unwrap();
    let mut random = SplitMix64::new(41);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut text = valid.as_bytes().to_vec();
        for _ in 0..=random.below(4) {
            let (at, length) = (random.below(text.len()), random.below(12));
            let end = (at + length).min(text.len());
            let other = random.text("{}[]\":,0é\\u\u{0}null ", 6);
            text.splice(at..end, other.into_bytes());
            if text.is_empty() {
                break;
            }
        }
        let text = String::from_utf8_lossy(&text);
        accepted += usize::from(read(&text));
    }
    assert!(accepted > 100, "{accepted}");
    for depth in [100, 200, 100_000] {
        read(&"[".repeat(depth));
        read(&format!(
            r#"{{"mcpServers":{{"a":{}"#,
            r#"{"bridge":"#.repeat(depth)
        ));
    }
}

#[test]
fn no_value_makes_the_reader_panic() {
    let mut random = SplitMix64::new(43);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut server = json!({"url": "http://a", "bridge": object(&mut random, &SERVER_MEMBERS)});
        if random.chance(20) {
            server[*random.pick(&SERVER_MEMBERS)] = value(&mut random, 2);
        }
        let file = json!({
            "mcpServers": {"a": server, "b": {"command": "b", "bridge": object(&mut random, &SERVER_MEMBERS)}},
            "bridge": object(&mut random, &BRIDGE_MEMBERS),
        });
        accepted += usize::from(read(&file.to_string()));
    }
    assert!(accepted > 100, "{accepted}");
}

/// Reads a text, uses what it results in, and returns whether it is valid.
fn read(text: &str) -> bool {
    match BridgeConfig::from_json(text) {
        Ok(config) => {
            for upstream in config.upstreams() {
                let _ = upstream.expanded_with(|_| None);
                let principal = bowline::exchange::Principal::anonymous();
                let _ = upstream
                    .settings()
                    .access
                    .allows(ItemKind::Tool, "a", &principal);
            }
            assert_eq!(config.changes_from(&config), ConfigChanges::default());
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

fn object(random: &mut SplitMix64, members: &[&str]) -> Value {
    let mut object = Map::new();
    for _ in 0..random.below(4) {
        let member = (*random.pick(members)).to_owned();
        object.insert(member, value(random, 3));
    }
    object.into()
}

fn value(random: &mut SplitMix64, depth: usize) -> Value {
    let kinds = if depth == 0 { 5 } else { 8 };
    match random.below(kinds) {
        0 => Value::Null,
        1 => random.chance(50).into(),
        2 => random.next().into(),
        3 => (*random.pick(&[
            "5s",
            "never",
            "show",
            "1.2.3.4:5",
            "/a",
            "__",
            "*",
            "${A}",
            "",
        ]))
        .into(),
        4 => random.text("ab*_é \"", 5).into(),
        5 => (0..random.below(3))
            .map(|_| value(random, depth - 1))
            .collect::<Vec<_>>()
            .into(),
        6 => (0..random.below(3))
            .map(|_| Value::from("a*"))
            .collect::<Vec<_>>()
            .into(),
        _ => {
            let members = [&NESTED_MEMBERS[..], &SERVER_MEMBERS].concat();
            let count = random.below(3);
            let members = (0..count).map(|_| (*random.pick(&members)).to_owned());
            let members: Vec<_> = members.collect();
            let object = members.into_iter().map(|it| (it, value(random, depth - 1)));
            object.collect::<Map<_, _>>().into()
        }
    }
}

const SERVER_MEMBERS: [&str; 22] = [
    "prefix",
    "uris",
    "tools",
    "resources",
    "prompts",
    "rules",
    "pin",
    "shared",
    "maxConnections",
    "maxConnectionsEach",
    "idleTimeout",
    "stale",
    "passThrough",
    "oauth",
    "tokenExchange",
    "timeout",
    "listTimeout",
    "connectTimeout",
    "protocolVersion",
    "bridge",
    "",
    "x",
];
const BRIDGE_MEMBERS: [&str; 17] = [
    "http",
    "path",
    "stdio",
    "allowedHosts",
    "allowedOrigins",
    "auth",
    "name",
    "instructions",
    "separator",
    "heartbeat",
    "heartbeatLimit",
    "parkTimeout",
    "parkLimit",
    "maxIncomingBytes",
    "legacyTimeout",
    "maxParked",
    "x",
];
const NESTED_MEMBERS: [&str; 8] = [
    "allow",
    "deny",
    "file",
    "newTools",
    "principals",
    "scopes",
    "issuers",
    "tokenEndpoint",
];
