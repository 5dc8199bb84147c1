//! Flows through worlds of documents: where they look, what they believe, and where they stop.

mod attacks;

mod choices;

mod grants;

mod registration;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::client::application::RegisteredClient;
use crate::client::credentials::{AuthMethod, Tokens};

const SERVER: &str = "https://mcp.example/mcp";
const ISSUER: &str = "https://as.example";
const HERE: &str = "http://127.0.0.1:7/callback";
const NOW: u64 = 1_000_000;

/// What is at which address; everything else is not found. A `Value` with a number under `status` has that
/// status.
#[derive(Clone)]
struct World(BTreeMap<String, Value>);

impl World {
    /// A server, and an authorization server that registers everybody.
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

    /// Changes one member of a document; the document is named by the end of its address.
    fn says(mut self, address: &str, member: &str, value: Value) -> Self {
        let mut documents = self.0.iter_mut();
        let found = documents.find(|(own, _)| own.ends_with(address));
        found.unwrap().1[member] = value;
        self
    }

    /// Leaves one member out of a document, which is named by the end of its address.
    fn leaves_out(mut self, address: &str, member: &str) -> Self {
        let mut documents = self.0.iter_mut();
        let (_, found) = documents.find(|(own, _)| own.ends_with(address)).unwrap();
        found.as_object_mut().unwrap().remove(member).unwrap();
        self
    }

    fn answer(&self, address: &str) -> Response<Bytes> {
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

/// What a flow did, in words, and what it came to.
struct Walked {
    steps: Vec<String>,
    end: String,
    credentials: Credentials,
}

impl Walked {
    /// The query or the form of the first step that begins like this.
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

    /// Where it went, without what it said there.
    fn way(&self) -> Vec<&str> {
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

fn setup() -> Setup {
    let kept = ProofKey::generate().unwrap();
    Setup {
        server: Url::parse(SERVER).unwrap(),
        application: Arc::new(Application::new("test")),
        guard: Guard::Public,
        intent: Intent::Obtain,
        challenge: None,
        credentials: Credentials::default(),
        proof_key: Arc::new(ProofKey::read(&kept).unwrap()),
        redirect_uri: Some(HERE.into()),
    }
}

fn challenge(text: &str) -> Option<Challenge> {
    Challenge::parse_all([text]).pop()
}

fn moment() -> Moment {
    Moment::new(NOW, [[1; 32], [2; 32]])
}

/// Somebody who agrees comes back to us, and brings what the authorization server adds.
fn walk(world: &World, setup: Setup) -> Walked {
    walk_back(world, setup, "code=c&iss=https://as.example")
}

fn walk_back(world: &World, setup: Setup, brings: &str) -> Walked {
    let mut flow = Flow::new(setup);
    let mut steps = Vec::new();
    let mut step = flow.begin();
    let end = loop {
        step = match step {
            Ok(Step::Send(request)) => {
                let body = String::from_utf8(request.body().to_vec()).unwrap();
                let line = format!("{} {} {body}", request.method(), request.uri());
                steps.push(line.trim_end().to_owned());
                if let Some(basic) = request.headers().get(header::AUTHORIZATION) {
                    steps.push(basic.to_str().unwrap().to_owned());
                }
                flow.response(&world.answer(&request.uri().to_string()), &moment())
            }
            Ok(Step::Open(url)) => {
                steps.push(format!("OPEN {url}"));
                let state = url.query_pairs().find(|(name, _)| name == "state");
                let state = state.unwrap().1.into_owned();
                flow.redirected(&format!("{HERE}?state={state}&{brings}"), &moment())
            }
            Ok(Step::Assert(issuer)) => {
                let assertion = format!("assertion for {issuer}");
                steps.push(assertion.clone());
                flow.asserted(&Secret::new(assertion), &moment())
            }
            Ok(Step::Done) => break "done".to_owned(),
            Err(error) => break error.to_string(),
        };
        assert!(steps.len() < 20, "{steps:?}");
    };
    Walked {
        steps,
        end,
        credentials: flow.credentials().clone(),
    }
}

fn held(scopes: &str) -> Credentials {
    let client = Registration {
        client_id: "holder".into(),
        secret: None,
        method: AuthMethod::None,
        redirect_uri: Some(HERE.into()),
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

fn known(client: RegisteredClient) -> Arc<Application> {
    Arc::new(Application {
        client: Some(client),
        metadata_url: Some("https://app.example/client.json".into()),
        ..Application::new("test")
    })
}

#[test]
fn a_lifetime_that_no_clock_can_represent_ends_never() {
    for (lifetime, renew_at) in [
        (json!(u64::MAX), Some(u64::MAX)),
        (json!("18446744073709551615"), Some(u64::MAX)),
        (json!(1e300), None),
        (json!(-1), None),
        (json!(0), Some(NOW)),
    ] {
        let token = json!({"access_token": "t", "token_type": "Bearer", "expires_in": lifetime});
        let world = World::new().with("https://as.example/token", token);

        let walked = walk(&world, setup());

        assert_eq!(walked.end, "done");
        let tokens = walked.credentials.tokens.unwrap();
        assert_eq!(tokens.renew_at, renew_at, "{lifetime}");
    }
}

#[test]
fn a_person_agrees_and_there_is_a_token() {
    let walked = walk(&World::new(), setup());

    assert_eq!(walked.end, "done");
    assert_eq!(
        walked.way(),
        [
            "GET https://mcp.example/.well-known/oauth-protected-resource/mcp",
            "GET https://as.example/.well-known/oauth-authorization-server",
            "POST https://as.example/register",
            "OPEN https://as.example/authorize",
            "POST https://as.example/token",
        ]
    );
    let asked = walked.sent("OPEN");
    let redeemed = walked.sent("POST https://as.example/token");
    assert_eq!(asked["resource"], SERVER);
    assert_eq!(redeemed["resource"], SERVER);
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!(asked["client_id"], "registered");
    assert!(!asked.contains_key("scope"), "none was asked for");
    let digest = <sha2::Sha256 as sha2::Digest>::digest(&redeemed["code_verifier"]);
    let digest = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, digest);
    assert_eq!(asked["code_challenge"], digest);
    let tokens = walked.credentials.tokens.unwrap();
    assert_eq!(*tokens.header(), "Bearer t1");
    assert_eq!(tokens.renew_at, Some(NOW + 54), "before it expires");
    assert_eq!(tokens.issuer, "https://as.example");
}

#[test]
fn the_document_that_a_server_names_is_the_only_one_that_is_looked_for() {
    let named = "https://mcp.example/elsewhere.json";
    let world = World::new();
    let document = world.0["https://mcp.example/.well-known/oauth-protected-resource/mcp"].clone();
    let asked = || Setup {
        challenge: challenge(&format!("Bearer resource_metadata=\"{named}\"")),
        ..setup()
    };

    let found = walk(&world.clone().with(named, document), asked());
    let missing = walk(&world, asked());

    assert_eq!(found.end, "done");
    assert_eq!(found.way()[0], format!("GET {named}"));
    assert_eq!(missing.way(), [format!("GET {named}")]);
    assert!(missing.end.contains("not where the server says it is"));
}

#[test]
fn a_document_that_a_server_names_is_about_that_server_and_no_other() {
    let named = "https://mcp.example/elsewhere.json";
    let walk_to = |resource: &str| {
        let document = json!({"resource": resource, "authorization_servers": [ISSUER]});
        let asked = Setup {
            challenge: challenge(&format!("Bearer resource_metadata=\"{named}\"")),
            ..setup()
        };
        walk(&World::new().with(named, document), asked)
    };

    for resource in [
        SERVER,
        "https://mcp.example:443/mcp",
        "https://mcp.example/mcp/",
    ] {
        assert_eq!(walk_to(resource).end, "done", "{resource}");
    }
    // A document about all of the host may be found at its root, but not be named from somewhere else.
    for resource in [
        "https://mcp.example",
        "https://mcp.example/",
        "https://mcp.example/other",
    ] {
        let walked = walk_to(resource);
        assert!(walked.end.contains("another resource"), "{}", walked.end);
        assert_eq!(walked.steps.len(), 1);
    }
}

#[test]
fn documents_are_looked_for_in_the_specified_order() {
    let at = |issuer: &str| World::new().says("/mcp", "authorization_servers", json!([issuer]));
    let nowhere = walk(&at("https://as.example/tenant1"), setup());
    let rootless = World::new()
        .without("https://mcp.example/.well-known/oauth-protected-resource/mcp")
        .with(
            "https://mcp.example/.well-known/oauth-protected-resource",
            json!({"resource": "https://mcp.example", "authorization_servers": ["https://as.example"]}),
        );
    let at_root = walk(&rootless, setup());

    assert_eq!(
        nowhere.way()[1..],
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
fn a_server_that_publishes_nothing_is_its_own_authorization_server_if_that_is_asked_for() {
    let world = World(BTreeMap::new())
        .with(
            "https://mcp.example/register",
            json!({"client_id": "registered"}),
        )
        .with(
            "https://mcp.example/token",
            json!({"access_token": "t1", "token_type": "bearer"}),
        );

    let falls_back = Setup {
        application: Arc::new(Application {
            falls_back: true,
            ..Application::new("test")
        }),
        ..setup()
    };
    let walked = walk_back(&world, falls_back, "code=c");
    let refused = walk_back(&world, setup(), "code=c");

    assert!(
        refused
            .end
            .contains("publishes no protected resource metadata"),
        "{}",
        refused.end
    );
    assert_eq!(refused.steps.len(), 2, "{:?}", refused.steps);
    assert_eq!(walked.end, "done");
    assert_eq!(
        walked.way()[2..],
        [
            "GET https://mcp.example/.well-known/oauth-authorization-server",
            "POST https://mcp.example/register",
            "OPEN https://mcp.example/authorize",
            "POST https://mcp.example/token",
        ]
    );
}

#[test]
fn scopes_are_those_of_the_challenge_or_else_all_that_are_published() {
    let published = || World::new().says("/mcp", "scopes_supported", json!(["b", "a"]));
    let offline = published().says(
        "/oauth-authorization-server",
        "scopes_supported",
        json!(["a", "offline_access"]),
    );
    let cases = [
        (published(), Some("Bearer scope=\"c d\""), Some("c d")),
        (published(), None, Some("a b")),
        (published(), Some("Bearer"), Some("a b")),
        (World::new(), None, None),
        (offline, None, Some("a b offline_access")),
    ];

    for (world, said, expected) in cases {
        let asked = Setup {
            challenge: said.and_then(challenge),
            ..setup()
        };

        let walked = walk(&world, asked);

        let asked = walked.sent("OPEN");
        assert_eq!(asked.get("scope").map(String::as_str), expected);
        let requested = walked.credentials.tokens.unwrap().requested;
        assert_eq!(requested.to_string(), expected.unwrap_or_default());
    }
}

#[test]
fn a_step_up_asks_for_what_it_had_and_for_more() {
    let asked = Setup {
        challenge: challenge("Bearer error=\"insufficient_scope\", scope=\"write\""),
        credentials: held("read"),
        ..setup()
    };

    let walked = walk(&World::new(), asked);

    assert_eq!(walked.sent("OPEN")["scope"], "read write");
    assert_eq!(
        walked.sent("OPEN")["client_id"],
        "holder",
        "it is registered"
    );
}

#[test]
fn a_server_that_is_out_of_order_is_not_a_server_without_documents() {
    let broken = World::new().with(
        "https://mcp.example/.well-known/oauth-protected-resource/mcp",
        json!({"status": 503}),
    );

    let walked = walk(&broken, setup());

    assert!(walked.end.contains("503"), "{}", walked.end);
    assert_eq!(walked.steps.len(), 1);
}
