//! Flows against fixed documents: the requests that they send, the responses that they accept, and their errors.

mod application_settings;

mod attacks;

mod grants;

mod registration;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::client::application::RegisteredClient;
use crate::client::credentials::{AuthMethod, Tokens};

const SERVER: &str = "https://mcp.example/mcp";
const ISSUER: &str = "https://as.example";
const REDIRECT_URI: &str = "http://127.0.0.1:7/callback";
const NOW: u64 = 1_000_000;

/// The documents by URL; all other URLs are 404. A document with a numeric `status` member has that status.
#[derive(Clone)]
struct FakeDocuments(BTreeMap<String, Value>);

impl FakeDocuments {
    /// Returns a server, and an authorization server with dynamic client registration.
    fn new() -> Self {
        Self(BTreeMap::new())
            .with(
                "https://mcp.example/.well-known/oauth-protected-resource/mcp",
                json!({"resource": SERVER, "authorization_servers": ["https://as.example"]}),
            )
            .with(
                "https://as.example/.well-known/oauth-authorization-server",
                json!({
                    "issuer": "https://as.example",
                    "authorization_endpoint": "https://as.example/authorize",
                    "token_endpoint": "https://as.example/token",
                    "registration_endpoint": "https://as.example/register",
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["none"],
                    "authorization_response_iss_parameter_supported": true,
                }),
            )
            .with(
                "https://as.example/register",
                json!({"client_id": "registered"}),
            )
            .with(
                "https://as.example/token",
                json!({"access_token": "t1", "token_type": "Bearer", "expires_in": 60, "refresh_token": "r1"}),
            )
    }

    fn with(mut self, address: &str, document: Value) -> Self {
        self.0.insert(address.to_owned(), document);
        self
    }

    fn without(mut self, address: &str) -> Self {
        self.0.remove(address);
        self
    }

    /// Sets a member of the document whose URL ends with `address`.
    fn with_member(mut self, address: &str, member: &str, value: Value) -> Self {
        let mut documents = self.0.iter_mut();
        let found = documents.find(|(own, _)| own.ends_with(address));
        found.unwrap().1[member] = value;
        self
    }

    /// Removes a member of the document whose URL ends with `address`.
    fn without_member(mut self, address: &str, member: &str) -> Self {
        let mut documents = self.0.iter_mut();
        let (_, found) = documents.find(|(own, _)| own.ends_with(address)).unwrap();
        found.as_object_mut().unwrap().remove(member).unwrap();
        self
    }

    fn response(&self, address: &str) -> Response<Bytes> {
        let document = self.0.get(address);
        let status = match document {
            Some(document) => document["status"].as_u64().unwrap_or(200),
            None => 404,
        };
        let body = document.map_or_else(String::new, Value::to_string);
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = (status as u16).try_into().unwrap();
        response
    }
}

/// The steps of a flow as text, and its result.
struct FlowRun {
    steps: Vec<String>,
    end: String,
    credentials: Credentials,
}

impl FlowRun {
    /// Returns the query or form of the first step with this prefix.
    fn sent(&self, to: &str) -> BTreeMap<String, String> {
        let mut steps = self.steps.iter();
        let step = steps.find(|step| step.starts_with(to));
        let step = step.unwrap_or_else(|| panic!("no {to} in {:?}", self.steps));
        let (_, query) = step.split_once(['?', ' ']).unwrap();
        let query = query.split_once(['?', ' ']).map_or(query, |(_, rest)| rest);
        url::form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect()
    }

    /// Returns the steps without queries and bodies.
    fn requests(&self) -> Vec<&str> {
        let steps = self.steps.iter();
        steps
            .map(|step| step.split(['?']).next().unwrap_or_default())
            .map(|step| {
                step.match_indices(' ')
                    .nth(1)
                    .map_or(step, |(at, _)| &step[..at])
            })
            .collect()
    }
}

fn setup() -> FlowSetup {
    let stored = ProofKey::generate().unwrap();
    FlowSetup {
        server: Url::parse(SERVER).unwrap(),
        application: Arc::new(Application::new("test")),
        address_policy: AddressPolicy::Public,
        intent: Intent::Obtain,
        challenge: None,
        credentials: Credentials::default(),
        proof_key: Arc::new(ProofKey::read(&stored).unwrap()),
        redirect_uri: Some(REDIRECT_URI.into()),
    }
}

fn challenge(text: &str) -> Option<Challenge> {
    Challenge::parse_all([text]).pop()
}

fn time_and_randomness() -> TimeAndRandomness {
    TimeAndRandomness::new(NOW, [[1; 32], [2; 32]])
}

/// Runs a flow in which the user consents, with a regular redirect.
fn run_flow(documents: &FakeDocuments, setup: FlowSetup) -> FlowRun {
    run_flow_with_redirect(documents, setup, "code=c&iss=https://as.example")
}

fn run_flow_with_redirect(
    documents: &FakeDocuments,
    setup: FlowSetup,
    redirect_query: &str,
) -> FlowRun {
    let mut flow = Flow::new(setup);
    let mut steps = Vec::new();
    let mut step = flow.begin();
    let end = loop {
        step = match step {
            Ok(FlowStep::Send(request)) => {
                let body = String::from_utf8(request.body().to_vec()).unwrap();
                let line = format!("{} {} {body}", request.method(), request.uri());
                steps.push(line.trim_end().to_owned());
                if let Some(basic) = request.headers().get(header::AUTHORIZATION) {
                    steps.push(basic.to_str().unwrap().to_owned());
                }
                flow.handle_response(
                    &documents.response(&request.uri().to_string()),
                    &time_and_randomness(),
                )
            }
            Ok(FlowStep::Open(url)) => {
                steps.push(format!("OPEN {url}"));
                let state = url.query_pairs().find(|(name, _)| name == "state");
                let state = state.unwrap().1.into_owned();
                flow.handle_redirect(
                    &format!("{REDIRECT_URI}?state={state}&{redirect_query}"),
                    &time_and_randomness(),
                )
            }
            Ok(FlowStep::Assert(issuer)) => {
                let assertion = format!("assertion for {issuer}");
                steps.push(assertion.clone());
                flow.handle_assertion(&Secret::new(assertion), &time_and_randomness())
            }
            Ok(FlowStep::Done) => break "done".to_owned(),
            Err(error) => break error.to_string(),
        };
        assert!(steps.len() < 20, "{steps:?}");
    };
    FlowRun {
        steps,
        end,
        credentials: flow.credentials().clone(),
    }
}

fn stored_credentials(scopes: &str) -> Credentials {
    let client = Registration {
        client_id: "holder".into(),
        secret: None,
        method: AuthMethod::None,
        redirect_uri: Some(REDIRECT_URI.into()),
        expires_at: None,
    };
    Credentials {
        registrations: BTreeMap::from([("https://as.example".into(), client.clone())]),
        tokens: Some(Tokens {
            issuer: "https://as.example".into(),
            client,
            access: Secret::new("t0"),
            kind: TokenKind::Bearer,
            refresh: Some(Secret::new("r0")),
            renew_at: None,
            expires_at: None,
            requested: Scopes::parse(scopes),
        }),
        ..Credentials::default()
    }
}

fn application_with(client: RegisteredClient) -> Arc<Application> {
    Arc::new(Application {
        client: Some(client),
        metadata_url: Some("https://app.example/client.json".into()),
        ..Application::new("test")
    })
}

#[test]
fn out_of_range_lifetimes_saturate_or_are_ignored() {
    for (lifetime, renew_at) in [
        (json!(u64::MAX), Some(u64::MAX)),
        (json!("18446744073709551615"), Some(u64::MAX)),
        (json!(1e300), None),
        (json!(-1), None),
        (json!(0), Some(NOW)),
    ] {
        let token = json!({"access_token": "t", "token_type": "Bearer", "expires_in": lifetime});
        let documents = FakeDocuments::new().with("https://as.example/token", token);

        let run = run_flow(&documents, setup());

        assert_eq!(run.end, "done");
        let tokens = run.credentials.tokens.unwrap();
        assert_eq!(tokens.renew_at, renew_at, "{lifetime}");
    }
}

#[test]
fn the_authorization_code_flow_obtains_a_token() {
    let run = run_flow(&FakeDocuments::new(), setup());

    assert_eq!(run.end, "done");
    assert_eq!(
        run.requests(),
        [
            "GET https://mcp.example/.well-known/oauth-protected-resource/mcp",
            "GET https://as.example/.well-known/oauth-authorization-server",
            "POST https://as.example/register",
            "OPEN https://as.example/authorize",
            "POST https://as.example/token",
        ]
    );
    let asked = run.sent("OPEN");
    let redeemed = run.sent("POST https://as.example/token");
    assert_eq!(asked["resource"], SERVER);
    assert_eq!(redeemed["resource"], SERVER);
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!(asked["client_id"], "registered");
    assert!(!asked.contains_key("scope"), "none was asked for");
    let digest = <sha2::Sha256 as sha2::Digest>::digest(&redeemed["code_verifier"]);
    let digest = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, digest);
    assert_eq!(asked["code_challenge"], digest);
    let tokens = run.credentials.tokens.unwrap();
    assert_eq!(*tokens.header(), "Bearer t1");
    assert_eq!(tokens.renew_at, Some(NOW + 54), "before it expires");
    assert_eq!(tokens.issuer, "https://as.example");
}

#[test]
fn only_the_metadata_url_of_the_challenge_is_fetched() {
    let named = "https://mcp.example/elsewhere.json";
    let documents = FakeDocuments::new();
    let document =
        documents.0["https://mcp.example/.well-known/oauth-protected-resource/mcp"].clone();
    let asked = || FlowSetup {
        challenge: challenge(&format!("Bearer resource_metadata=\"{named}\"")),
        ..setup()
    };

    let found = run_flow(&documents.clone().with(named, document), asked());
    let missing = run_flow(&documents, asked());

    assert_eq!(found.end, "done");
    assert_eq!(found.requests()[0], format!("GET {named}"));
    assert_eq!(missing.requests(), [format!("GET {named}")]);
    assert!(
        missing
            .end
            .contains("no resource metadata at the URL in the challenge")
    );
}

#[test]
fn metadata_named_by_a_challenge_must_describe_the_same_resource() {
    let named = "https://mcp.example/elsewhere.json";
    let run_with_resource = |resource: &str| {
        let document = json!({"resource": resource, "authorization_servers": [ISSUER]});
        let asked = FlowSetup {
            challenge: challenge(&format!("Bearer resource_metadata=\"{named}\"")),
            ..setup()
        };
        run_flow(&FakeDocuments::new().with(named, document), asked)
    };

    for resource in [
        SERVER,
        "https://mcp.example:443/mcp",
        "https://mcp.example/mcp/",
    ] {
        assert_eq!(run_with_resource(resource).end, "done", "{resource}");
    }
    // Metadata for the whole host are valid at the root, but not at a URL that a challenge names.
    for resource in [
        "https://mcp.example",
        "https://mcp.example/",
        "https://mcp.example/other",
    ] {
        let run = run_with_resource(resource);
        assert!(run.end.contains("another resource"), "{}", run.end);
        assert_eq!(run.steps.len(), 1);
    }
}

#[test]
fn metadata_urls_are_tried_in_the_specified_order() {
    let at = |issuer: &str| {
        FakeDocuments::new().with_member("/mcp", "authorization_servers", json!([issuer]))
    };
    let nowhere = run_flow(&at("https://as.example/tenant1"), setup());
    let rootless = FakeDocuments::new()
        .without("https://mcp.example/.well-known/oauth-protected-resource/mcp")
        .with(
            "https://mcp.example/.well-known/oauth-protected-resource",
            json!({"resource": "https://mcp.example", "authorization_servers": ["https://as.example"]}),
        );
    let at_root = run_flow(&rootless, setup());

    assert_eq!(
        nowhere.requests()[1..],
        [
            "GET https://as.example/.well-known/oauth-authorization-server/tenant1",
            "GET https://as.example/.well-known/openid-configuration/tenant1",
            "GET https://as.example/tenant1/.well-known/openid-configuration",
        ]
    );
    assert!(
        nowhere.end.contains("publishes no metadata"),
        "{}",
        nowhere.end
    );
    assert_eq!(at_root.end, "done");
    assert_eq!(
        at_root.sent("OPEN")["resource"],
        "https://mcp.example",
        "byte for byte, without a slash"
    );
}

#[test]
fn default_endpoints_are_used_only_if_configured() {
    let documents = FakeDocuments(BTreeMap::new())
        .with(
            "https://mcp.example/register",
            json!({"client_id": "registered"}),
        )
        .with(
            "https://mcp.example/token",
            json!({"access_token": "t1", "token_type": "bearer"}),
        );

    let assumes_default_endpoints = FlowSetup {
        application: Arc::new(Application {
            assumes_default_endpoints: true,
            ..Application::new("test")
        }),
        ..setup()
    };
    let run = run_flow_with_redirect(&documents, assumes_default_endpoints, "code=c");
    let refused = run_flow_with_redirect(&documents, setup(), "code=c");

    assert!(
        refused
            .end
            .contains("publishes no protected resource metadata"),
        "{}",
        refused.end
    );
    assert_eq!(refused.steps.len(), 2, "{:?}", refused.steps);
    assert_eq!(run.end, "done");
    assert_eq!(
        run.requests()[2..],
        [
            "GET https://mcp.example/.well-known/oauth-authorization-server",
            "POST https://mcp.example/register",
            "OPEN https://mcp.example/authorize",
            "POST https://mcp.example/token",
        ]
    );
}

#[test]
fn keys_in_the_url_of_the_server_do_not_reach_the_authorization_server() {
    let documents = FakeDocuments(BTreeMap::new())
        .with(
            "https://mcp.example/register",
            json!({"client_id": "registered"}),
        )
        .with(
            "https://mcp.example/token",
            json!({"access_token": "t1", "token_type": "bearer"}),
        );
    let setup = FlowSetup {
        server: Url::parse("https://u:s3cret@mcp.example/mcp?key=s3cret#s3cret").unwrap(),
        application: Arc::new(Application {
            assumes_default_endpoints: true,
            ..Application::new("test")
        }),
        ..setup()
    };

    let run = run_flow_with_redirect(&documents, setup, "code=c");

    assert_eq!(run.end, "done");
    assert_eq!(run.sent("OPEN")["resource"], SERVER);
    let mut steps = run.steps.iter();
    // The server publishes its own metadata.
    let is_leak = |step: &&String| !step.starts_with("GET ") && step.contains("s3cret");
    assert_eq!(steps.find(is_leak), None);
}

#[test]
fn scopes_come_from_the_challenge_or_else_from_the_metadata() {
    let published =
        || FakeDocuments::new().with_member("/mcp", "scopes_supported", json!(["b", "a"]));
    let offline = published().with_member(
        "/oauth-authorization-server",
        "scopes_supported",
        json!(["a", "offline_access"]),
    );
    let cases = [
        (published(), Some("Bearer scope=\"c d\""), Some("c d")),
        (published(), None, Some("a b")),
        (published(), Some("Bearer"), Some("a b")),
        (FakeDocuments::new(), None, None),
        (offline, None, Some("a b offline_access")),
    ];

    for (documents, said, expected) in cases {
        let asked = FlowSetup {
            challenge: said.and_then(challenge),
            ..setup()
        };

        let run = run_flow(&documents, asked);

        let asked = run.sent("OPEN");
        assert_eq!(asked.get("scope").map(String::as_str), expected);
        let requested = run.credentials.tokens.unwrap().requested;
        assert_eq!(requested.to_string(), expected.unwrap_or_default());
    }
}

#[test]
fn a_step_up_requests_the_old_and_the_new_scopes() {
    let asked = FlowSetup {
        challenge: challenge("Bearer error=\"insufficient_scope\", scope=\"write\""),
        credentials: stored_credentials("read"),
        ..setup()
    };

    let run = run_flow(&FakeDocuments::new(), asked);

    assert_eq!(run.sent("OPEN")["scope"], "read write");
    assert_eq!(run.sent("OPEN")["client_id"], "holder", "it is registered");
}

#[test]
fn a_503_response_is_not_treated_as_missing_metadata() {
    let broken = FakeDocuments::new().with(
        "https://mcp.example/.well-known/oauth-protected-resource/mcp",
        json!({"status": 503}),
    );

    let run = run_flow(&broken, setup());

    assert!(run.end.contains("503"), "{}", run.end);
    assert_eq!(run.steps.len(), 1);
}
