//! What servers and strangers say that must not be believed.

use super::*;

/// What an attacker says, how the flow ends, and the last place that it went to.
struct Attack(&'static str, World, &'static str, &'static str);

impl Attack {
    fn fails(self) {
        let Self(attack, world, end, last) = self;

        let walked = walk(&world, setup());

        assert!(walked.end.contains(end), "{attack}: {}", walked.end);
        assert_eq!(walked.way().last(), Some(&last), "{attack}");
        assert_eq!(walked.credentials.tokens, None, "{attack}");
    }
}

const RESOURCE: &str = "GET https://mcp.example/.well-known/oauth-protected-resource/mcp";
const ISSUER: &str = "GET https://as.example/.well-known/oauth-authorization-server";
const REGISTERED: &str = "POST https://as.example/register";
const OPENED: &str = "OPEN https://as.example/authorize";
const REDEEMED: &str = "POST https://as.example/token";

fn resource_says(member: &str, value: Value) -> World {
    World::new().says("/oauth-protected-resource/mcp", member, value)
}

fn issuer_says(member: &str, value: Value) -> World {
    World::new().says("/oauth-authorization-server", member, value)
}

#[test]
fn metadata_that_speaks_for_somebody_else_ends_the_flow() {
    let other = "is that of another resource";
    let issuer = "is that of another issuer";
    [
        Attack(
            "a swapped resource",
            resource_says("resource", json!("https://evil.example/mcp")),
            other,
            RESOURCE,
        ),
        Attack(
            "a mixed-up issuer",
            issuer_says("issuer", json!("https://honest.example")),
            issuer,
            ISSUER,
        ),
        Attack(
            "an issuer that is spelled differently",
            issuer_says("issuer", json!("https://as.example/")),
            issuer,
            ISSUER,
        ),
    ]
    .into_iter()
    .for_each(Attack::fails);
}

#[test]
fn addresses_that_nobody_should_visit_are_not_visited() {
    let cleartext = "is not an https:// address";
    let private = "is not a public address";
    let no_host = "names no host";
    let servers = |issuer: &str| resource_says("authorization_servers", json!([issuer]));
    let endpoint = |name: &str, address: &str| issuer_says(name, json!(address));
    [
        Attack(
            "a cloud's secrets",
            servers("http://169.254.169.254/x"),
            cleartext,
            RESOURCE,
        ),
        Attack(
            "the same, with TLS",
            servers("https://169.254.169.254/x"),
            private,
            RESOURCE,
        ),
        Attack(
            "this machine",
            servers("https://127.0.0.1"),
            private,
            RESOURCE,
        ),
        Attack(
            "a script",
            endpoint("authorization_endpoint", "javascript:alert(1)"),
            no_host,
            REGISTERED,
        ),
        Attack(
            "a program",
            endpoint("authorization_endpoint", "file:///bin/sh"),
            no_host,
            REGISTERED,
        ),
        Attack(
            "a code in the clear",
            endpoint("token_endpoint", "http://as.example/token"),
            cleartext,
            OPENED,
        ),
        Attack(
            "a code for a private network",
            endpoint("token_endpoint", "https://10.0.0.1/token"),
            private,
            OPENED,
        ),
        Attack(
            "a registration in a private network",
            endpoint("registration_endpoint", "https://192.168.0.1/"),
            private,
            ISSUER,
        ),
    ]
    .into_iter()
    .for_each(Attack::fails);
}

#[test]
fn an_authorization_server_without_pkce_by_s256_is_refused_before_it_is_sent_anything() {
    let methods = "code_challenge_methods_supported";
    let server = "/oauth-authorization-server";
    [
        Attack(
            "no methods are listed",
            World::new().leaves_out(server, methods),
            "does not protect authorization codes",
            ISSUER,
        ),
        Attack(
            "the list is empty",
            issuer_says(methods, json!([])),
            "does not protect authorization codes",
            ISSUER,
        ),
        Attack(
            "S256 is not listed",
            issuer_says(methods, json!(["plain"])),
            "does not protect authorization codes",
            ISSUER,
        ),
    ]
    .into_iter()
    .for_each(Attack::fails);
}

#[test]
fn what_is_weaker_than_it_must_be_is_not_used() {
    [
        Attack(
            "a token of no known kind",
            World::new().says("/token", "token_type", json!("mac")),
            "of the type `mac`",
            REDEEMED,
        ),
        Attack(
            "a token that is bound to a key that nobody proved to have",
            World::new().says("/token", "token_type", json!("DPoP")),
            "of the type `dpop`",
            REDEEMED,
        ),
    ]
    .into_iter()
    .for_each(Attack::fails);
}

#[test]
fn a_challenge_does_not_lead_us_astray() {
    for address in [
        "http://mcp.example/metadata",
        "https://169.254.169.254/",
        "file:///etc/passwd",
        "/relative",
    ] {
        let asked = Setup {
            challenge: challenge(&format!("Bearer resource_metadata=\"{address}\"")),
            ..setup()
        };

        let walked = walk(&World::new(), asked);

        assert!(walked.end.starts_with("not trusted"), "{}", walked.end);
        assert!(walked.steps.is_empty(), "{:?}", walked.steps);
    }
}

#[test]
fn a_code_from_another_server_is_not_redeemed() {
    for brings in [
        "code=c&iss=https://evil.example",
        "code=c&iss=https://as.example/",
        "code=c",
        "error=access_denied&iss=https://evil.example",
    ] {
        let walked = walk_back(&World::new(), setup(), brings);

        assert!(
            walked.end.starts_with("not trusted"),
            "{brings}: {}",
            walked.end
        );
        assert!(!walked.end.contains("access_denied"), "{}", walked.end);
        assert_eq!(
            walked.way().last(),
            Some(&"OPEN https://as.example/authorize")
        );
    }
}

#[test]
fn a_document_that_has_moved_is_not_followed() {
    let moved = World::new().with(
        "https://as.example/.well-known/oauth-authorization-server",
        json!({"status": 302, "issuer": "https://as.example"}),
    );

    let walked = walk(&moved, setup());

    assert!(
        walked.end.contains("publishes no metadata"),
        "{}",
        walked.end
    );
    assert_eq!(walked.steps.len(), 3, "{:?}", walked.steps);
}

#[test]
fn a_flow_shows_no_secrets() {
    let asked = Setup {
        application: known(RegisteredClient::new(ISSUER, "own").secret("hush")),
        credentials: held(""),
        ..setup()
    };
    let mut flow = Flow::new(asked);
    flow.state = State::Redeeming(TokenRequest::new("x").with("code", "hush"));

    let shown = format!("{flow:?}");

    for secret in ["hush", "r0\"", "t0\""] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}

#[test]
fn a_code_travels_in_the_clear_only_on_this_machine() {
    let back_to = |redirect_uri: &str| {
        let asked = Setup {
            redirect_uri: Some(redirect_uri.into()),
            ..setup()
        };
        let walked = walk(&World::new(), asked);
        walked.steps.iter().any(|step| step.starts_with("OPEN"))
    };

    assert!(back_to("http://127.0.0.1:7/callback"));
    assert!(back_to("http://localhost:3000/callback"));
    assert!(back_to("https://app.example/callback"));
    assert!(back_to("com.example.app:/callback"));
    assert!(!back_to("http://app.example/callback"));
    assert!(!back_to("http://192.168.0.1/callback"));
}
