//! Responses of malicious servers and forged redirects, which a flow must refuse.

use super::*;

/// An attack, the error that ends the flow, and its last step.
struct FlowAttack(&'static str, FakeDocuments, &'static str, &'static str);

impl FlowAttack {
    fn fails(self) {
        let Self(attack, documents, end, last) = self;

        let run = run_flow(&documents, setup());

        assert!(run.end.contains(end), "{attack}: {}", run.end);
        assert_eq!(run.requests().last(), Some(&last), "{attack}");
        assert_eq!(run.credentials.tokens, None, "{attack}");
    }
}

const RESOURCE: &str = "GET https://mcp.example/.well-known/oauth-protected-resource/mcp";
const ISSUER: &str = "GET https://as.example/.well-known/oauth-authorization-server";
const REGISTERED: &str = "POST https://as.example/register";
const OPENED: &str = "OPEN https://as.example/authorize";
const TOKEN_REQUESTED: &str = "POST https://as.example/token";

fn with_resource_member(member: &str, value: Value) -> FakeDocuments {
    FakeDocuments::new().with_member("/oauth-protected-resource/mcp", member, value)
}

fn with_issuer_member(member: &str, value: Value) -> FakeDocuments {
    FakeDocuments::new().with_member("/oauth-authorization-server", member, value)
}

#[test]
fn metadata_of_another_resource_or_issuer_end_the_flow() {
    let other = "describe another resource";
    let issuer = "describe another issuer";
    [
        FlowAttack(
            "a swapped resource",
            with_resource_member("resource", json!("https://evil.example/mcp")),
            other,
            RESOURCE,
        ),
        FlowAttack(
            "a mixed-up issuer",
            with_issuer_member("issuer", json!("https://honest.example")),
            issuer,
            ISSUER,
        ),
        FlowAttack(
            "an issuer that is spelled differently",
            with_issuer_member("issuer", json!("https://as.example/")),
            issuer,
            ISSUER,
        ),
    ]
    .into_iter()
    .for_each(FlowAttack::fails);
}

#[test]
fn private_and_plain_http_urls_are_not_requested() {
    let cleartext = "is not an https:// URL";
    let private = "is not a public address";
    let no_host = "has no host";
    let servers = |issuer: &str| with_resource_member("authorization_servers", json!([issuer]));
    let endpoint = |name: &str, address: &str| with_issuer_member(name, json!(address));
    [
        FlowAttack(
            "a cloud metadata service",
            servers("http://169.254.169.254/x"),
            cleartext,
            RESOURCE,
        ),
        FlowAttack(
            "the same, with TLS",
            servers("https://169.254.169.254/x"),
            private,
            RESOURCE,
        ),
        FlowAttack(
            "this machine",
            servers("https://127.0.0.1"),
            private,
            RESOURCE,
        ),
        FlowAttack(
            "a script",
            endpoint("authorization_endpoint", "javascript:alert(1)"),
            no_host,
            REGISTERED,
        ),
        FlowAttack(
            "a program",
            endpoint("authorization_endpoint", "file:///bin/sh"),
            no_host,
            REGISTERED,
        ),
        FlowAttack(
            "a code over plain HTTP",
            endpoint("token_endpoint", "http://as.example/token"),
            cleartext,
            OPENED,
        ),
        FlowAttack(
            "a code for a private network",
            endpoint("token_endpoint", "https://10.0.0.1/token"),
            private,
            OPENED,
        ),
        FlowAttack(
            "a registration in a private network",
            endpoint("registration_endpoint", "https://192.168.0.1/"),
            private,
            ISSUER,
        ),
    ]
    .into_iter()
    .for_each(FlowAttack::fails);
}

#[test]
fn a_server_without_pkce_s256_is_refused_before_registration() {
    let methods = "code_challenge_methods_supported";
    let server = "/oauth-authorization-server";
    [
        FlowAttack(
            "no methods are listed",
            FakeDocuments::new().without_member(server, methods),
            "does not support PKCE",
            ISSUER,
        ),
        FlowAttack(
            "the list is empty",
            with_issuer_member(methods, json!([])),
            "does not support PKCE",
            ISSUER,
        ),
        FlowAttack(
            "S256 is not listed",
            with_issuer_member(methods, json!(["plain"])),
            "does not support PKCE",
            ISSUER,
        ),
    ]
    .into_iter()
    .for_each(FlowAttack::fails);
}

#[test]
fn unsupported_token_types_are_refused() {
    [
        FlowAttack(
            "an unknown token type",
            FakeDocuments::new().with_member("/token", "token_type", json!("mac")),
            "token type `mac`",
            TOKEN_REQUESTED,
        ),
        FlowAttack(
            "a DPoP token without a proof",
            FakeDocuments::new().with_member("/token", "token_type", json!("DPoP")),
            "token type `dpop`",
            TOKEN_REQUESTED,
        ),
    ]
    .into_iter()
    .for_each(FlowAttack::fails);
}

#[test]
fn unsafe_metadata_urls_in_challenges_are_refused() {
    for address in [
        "http://mcp.example/metadata",
        "https://169.254.169.254/",
        "file:///etc/passwd",
        "/relative",
    ] {
        let asked = FlowSetup {
            challenge: challenge(&format!("Bearer resource_metadata=\"{address}\"")),
            ..setup()
        };

        let run = run_flow(&FakeDocuments::new(), asked);

        assert!(run.end.starts_with("not trusted"), "{}", run.end);
        assert!(run.steps.is_empty(), "{:?}", run.steps);
    }
}

#[test]
fn a_code_from_another_server_is_not_redeemed() {
    for redirect_query in [
        "code=c&iss=https://evil.example",
        "code=c&iss=https://as.example/",
        "code=c",
        "error=access_denied&iss=https://evil.example",
    ] {
        let run = run_flow_with_redirect(&FakeDocuments::new(), setup(), redirect_query);

        assert!(
            run.end.starts_with("not trusted"),
            "{redirect_query}: {}",
            run.end
        );
        assert!(!run.end.contains("access_denied"), "{}", run.end);
        assert_eq!(
            run.requests().last(),
            Some(&"OPEN https://as.example/authorize")
        );
    }
}

#[test]
fn redirects_of_metadata_are_not_followed() {
    let moved = FakeDocuments::new().with(
        "https://as.example/.well-known/oauth-authorization-server",
        json!({"status": 302, "issuer": "https://as.example"}),
    );

    let run = run_flow(&moved, setup());

    assert!(run.end.contains("publishes no metadata"), "{}", run.end);
    assert_eq!(run.steps.len(), 3, "{:?}", run.steps);
}

#[test]
fn debug_output_of_a_flow_hides_secrets() {
    let asked = FlowSetup {
        application: application_with(RegisteredClient::new(ISSUER, "own").secret("hush")),
        credentials: stored_credentials(""),
        ..setup()
    };
    let mut flow = Flow::new(asked);
    flow.state = FlowState::RequestingToken(TokenRequest::new("x").with("code", "hush"));

    let shown = format!("{flow:?}");

    for secret in ["hush", "r0\"", "t0\""] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}

#[test]
fn plain_http_redirect_uris_must_be_loopback() {
    let back_to = |redirect_uri: &str| {
        let asked = FlowSetup {
            redirect_uri: Some(redirect_uri.into()),
            ..setup()
        };
        let run = run_flow(&FakeDocuments::new(), asked);
        run.steps.iter().any(|step| step.starts_with("OPEN"))
    };

    assert!(back_to("http://127.0.0.1:7/callback"));
    assert!(back_to("http://localhost:3000/callback"));
    assert!(back_to("https://app.example/callback"));
    assert!(back_to("com.example.app:/callback"));
    assert!(!back_to("http://app.example/callback"));
    assert!(!back_to("http://192.168.0.1/callback"));
}
