//! Flows through worlds of documents: where they look, what they believe, and where they stop.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::client::application::{IdentityProvider, RegisteredClient};
use crate::client::credentials::{AuthMethod, Tokens};

const SERVER: &str = "https://mcp.example/mcp";
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
        application: Arc::new(Application {
            name: "test".into(),
            client: None,
            metadata_url: None,
            grant: Grant::Code,
        }),
        guard: Guard::Public,
        intent: Intent::Obtain,
        challenge: None,
        credentials: Credentials::default(),
        proof_key: Arc::new(ProofKey::read(&kept).unwrap()),
        redirect_uri: Some(HERE.into()),
        assertion: None,
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
            Ok(Step::Done) => break "done".to_owned(),
            Err(error) => break error.to_string(),
        };
        assert!(steps.len() < 20, "{steps:?}");
    };
    Walked {
        steps,
        end,
        credentials: flow.into_credentials(),
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
    assert_eq!(tokens.header(), "Bearer t1");
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
fn a_server_that_publishes_nothing_is_its_own_authorization_server() {
    let world = World(BTreeMap::new())
        .with(
            "https://mcp.example/register",
            json!({"client_id": "registered"}),
        )
        .with(
            "https://mcp.example/token",
            json!({"access_token": "t1", "token_type": "bearer"}),
        );

    let walked = walk_back(&world, setup(), "code=c");

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
fn attacks_end_before_anything_is_given_away() {
    let world = World::new;
    let server = "/oauth-authorization-server";
    let link_local = "http://169.254.169.254/latest/meta-data";
    // What the attacker says, how the flow ends, and the last place that it went to.
    let cases = [
        (
            "the metadata is that of another resource",
            world().says("/mcp", "resource", json!("https://evil.example/mcp")),
            "is that of another resource",
            "GET https://mcp.example/.well-known/oauth-protected-resource/mcp",
        ),
        (
            "the metadata is that of another issuer",
            world().says(server, "issuer", json!("https://honest.example")),
            "is that of another issuer",
            "GET https://as.example/.well-known/oauth-authorization-server",
        ),
        (
            "the issuer is spelled differently",
            world().says(server, "issuer", json!("https://as.example/")),
            "is that of another issuer",
            "GET https://as.example/.well-known/oauth-authorization-server",
        ),
        (
            "the issuer is in a cloud's own network",
            world().says("/mcp", "authorization_servers", json!([link_local])),
            "is not an https:// address",
            "GET https://mcp.example/.well-known/oauth-protected-resource/mcp",
        ),
        (
            "the issuer is this machine",
            world().says(
                "/mcp",
                "authorization_servers",
                json!(["https://127.0.0.1"]),
            ),
            "is not a public address",
            "GET https://mcp.example/.well-known/oauth-protected-resource/mcp",
        ),
        (
            "people are sent to a script",
            world().says(
                server,
                "authorization_endpoint",
                json!("javascript:alert(1)"),
            ),
            "names no host",
            "POST https://as.example/register",
        ),
        (
            "people are sent to a file",
            world().says(server, "authorization_endpoint", json!("file:///bin/sh")),
            "names no host",
            "POST https://as.example/register",
        ),
        (
            "the code is to be sent in the clear",
            world().says(server, "token_endpoint", json!("http://as.example/token")),
            "is not an https:// address",
            "OPEN https://as.example/authorize",
        ),
        (
            "the code is to be sent into a private network",
            world().says(server, "token_endpoint", json!("https://10.0.0.1/token")),
            "is not a public address",
            "OPEN https://as.example/authorize",
        ),
        (
            "we are to register in a private network",
            world().says(
                server,
                "registration_endpoint",
                json!("https://192.168.0.1/"),
            ),
            "is not a public address",
            "GET https://as.example/.well-known/oauth-authorization-server",
        ),
        (
            "codes are not protected",
            world().says(server, "code_challenge_methods_supported", json!(["plain"])),
            "does not protect authorization codes",
            "POST https://as.example/register",
        ),
        (
            "the token is of no known kind",
            world().says("/token", "token_type", json!("mac")),
            "of the type `mac`",
            "POST https://as.example/token",
        ),
        (
            "the token is bound to a key that nobody proved to have",
            world().says("/token", "token_type", json!("DPoP")),
            "of the type `dpop`",
            "POST https://as.example/token",
        ),
    ];

    for (attack, world, end, last) in cases {
        let walked = walk(&world, setup());

        assert!(walked.end.contains(end), "{attack}: {}", walked.end);
        assert_eq!(walked.way().last(), Some(&last), "{attack}");
        assert_eq!(walked.credentials.tokens, None, "{attack}");
    }
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
            requested: Scopes::parse(scopes),
        }),
        ..Credentials::default()
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
fn a_registration_is_used_only_where_and_how_it_was_made() {
    let elsewhere = World::new()
        .says(
            "/mcp",
            "authorization_servers",
            json!(["https://new.example"]),
        )
        .with(
            "https://new.example/.well-known/oauth-authorization-server",
            json!({
                "issuer": "https://new.example",
                "authorization_endpoint": "https://new.example/authorize",
                "token_endpoint": "https://new.example/token",
                "registration_endpoint": "https://new.example/register",
                "code_challenge_methods_supported": ["S256"],
            }),
        )
        .with(
            "https://new.example/register",
            json!({"client_id": "fresh"}),
        )
        .with(
            "https://new.example/token",
            json!({"access_token": "t1", "token_type": "Bearer"}),
        );
    let expired = || {
        let mut credentials = held("");
        let registrations = credentials.registrations.values_mut();
        registrations.for_each(|registration| registration.expires_at = Some(NOW));
        credentials
    };
    let moved = || Setup {
        credentials: held(""),
        redirect_uri: Some("http://127.0.0.1:8/callback".into()),
        ..setup()
    };

    let migrated = Setup {
        credentials: held(""),
        ..setup()
    };
    let migrated = walk_back(&elsewhere, migrated, "code=c");
    let too_old = Setup {
        credentials: expired(),
        ..setup()
    };
    let too_old = walk(&World::new(), too_old);
    let other_port = walk(&World::new(), moved());

    assert_eq!(migrated.end, "done");
    assert_eq!(migrated.sent("OPEN")["client_id"], "fresh");
    assert!(
        !migrated.steps.iter().any(|step| step.contains("holder")),
        "{:?}",
        migrated.steps
    );
    assert_eq!(migrated.credentials.registrations.len(), 2);
    assert_eq!(too_old.sent("OPEN")["client_id"], "registered");
    assert_eq!(other_port.sent("OPEN")["client_id"], "registered");
}

fn known(client: RegisteredClient) -> Arc<Application> {
    Arc::new(Application {
        name: "test".into(),
        client: Some(client),
        metadata_url: Some("https://app.example/client.json".into()),
        grant: Grant::Code,
    })
}

#[test]
fn clients_are_known_in_the_specified_order() {
    let server = "/oauth-authorization-server";
    let understands =
        World::new().says(server, "client_id_metadata_document_supported", json!(true));
    let published = || Setup {
        application: Arc::new(Application {
            metadata_url: Some("https://app.example/client.json".into()),
            ..Application::clone(&setup().application)
        }),
        credentials: held(""),
        ..setup()
    };
    let own = Setup {
        application: known(RegisteredClient::new("own")),
        ..published()
    };
    let refuses = World::new().says(server, "registration_endpoint", Value::Null);

    let own = walk(&understands, own);
    let by_document = walk(&understands, published());
    let by_memory = walk(&World::new(), published());
    let by_registration = walk(&World::new(), setup());
    let not_at_all = walk(&refuses, setup());

    assert_eq!(own.sent("OPEN")["client_id"], "own");
    assert_eq!(
        by_document.sent("OPEN")["client_id"],
        "https://app.example/client.json"
    );
    assert_eq!(by_memory.sent("OPEN")["client_id"], "holder");
    assert_eq!(by_registration.sent("OPEN")["client_id"], "registered");
    assert!(not_at_all.end.contains("registers nobody"));
}

#[test]
fn an_applications_own_credentials_are_shown_to_one_issuer_only() {
    let client = || RegisteredClient::new("own").secret("hush");
    let at = |client| Setup {
        application: known(client),
        ..setup()
    };
    let bound = Setup {
        credentials: Credentials {
            bound_to: Some("https://first.example".into()),
            ..Credentials::default()
        },
        ..at(client())
    };

    let home = walk(&World::new(), at(client().at("https://as.example")));
    let abroad = walk(&World::new(), at(client().at("https://first.example")));
    let later = walk(&World::new(), bound);
    let first = walk(&World::new(), at(client()));

    assert_eq!(home.end, "done");
    for refused in [&abroad, &later] {
        assert!(
            refused
                .end
                .contains("is registered at `https://first.example`")
        );
        assert_eq!(refused.steps.len(), 2, "{:?}", refused.steps);
    }
    assert_eq!(first.end, "done");
    assert_eq!(
        first.credentials.bound_to.as_deref(),
        Some("https://as.example")
    );
}

#[test]
fn clients_authenticate_as_the_server_wants_it() {
    let supporting = |methods: Value| {
        World::new().says(
            "/oauth-authorization-server",
            "token_endpoint_auth_methods_supported",
            methods,
        )
    };
    let own = |client| Setup {
        application: known(client),
        ..setup()
    };
    let secret = || RegisteredClient::new("a:b").secret("c d");
    let cases = [
        (
            json!(["none"]),
            RegisteredClient::new("a:b"),
            "client_id=a%3Ab",
        ),
        (
            json!(["client_secret_basic"]),
            secret(),
            "Basic YSUzQWI6Yytk",
        ),
        (
            json!(["client_secret_post", "client_secret_basic"]),
            secret(),
            "Basic YSUzQWI6Yytk",
        ),
        (
            json!(["client_secret_post"]),
            secret(),
            "client_id=a%3Ab&client_secret=c+d",
        ),
        (Value::Null, secret(), "Basic YSUzQWI6Yytk"),
    ];

    for (methods, client, shown) in cases {
        let walked = walk(&supporting(methods.clone()), own(client));

        let token = "POST https://as.example/token";
        let at = walked.steps.iter().position(|step| step.starts_with(token));
        let sent = walked.steps[at.unwrap()..].join(" ");
        assert!(sent.contains(shown), "{methods}: {sent}");
        assert_eq!(sent.contains("c+d"), shown.contains("c+d"), "{methods}");
    }
}

#[test]
fn what_a_registration_says_about_authentication_counts() {
    let world = World::new()
        .says(
            "/register",
            "token_endpoint_auth_method",
            json!("client_secret_post"),
        )
        .says("/register", "client_secret", json!("hush"));
    let odd = World::new().says(
        "/register",
        "token_endpoint_auth_method",
        json!("tls_client_auth"),
    );

    let walked = walk(&world, setup());
    let refused = walk(&odd, setup());

    let sent = walked.sent("POST https://as.example/token");
    assert_eq!(sent["client_secret"], "hush");
    assert!(refused.end.contains("tls_client_auth"), "{}", refused.end);
}

#[test]
fn a_client_says_what_kind_of_application_it_is() {
    let kind = |redirect_uri: &str| {
        let asked = Setup {
            redirect_uri: Some(redirect_uri.into()),
            ..setup()
        };
        let walked = walk(&World::new(), asked);
        let step = walked.steps[2].clone();
        let (_, body) = step.split_once("register ").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            body["grant_types"],
            json!(["authorization_code", "refresh_token"])
        );
        body["application_type"].clone()
    };

    assert_eq!(kind("http://127.0.0.1:7/callback"), "native");
    assert_eq!(kind("com.example.app:/callback"), "native");
    assert_eq!(kind("https://app.example/callback"), "web");
}

fn renewing(scopes: &str) -> Setup {
    Setup {
        intent: Intent::Renew,
        credentials: held(scopes),
        redirect_uri: None,
        ..setup()
    }
}

#[test]
fn a_token_is_renewed_where_it_came_from_and_nowhere_else() {
    let elsewhere = World::new().says(
        "/mcp",
        "authorization_servers",
        json!(["https://as.example", "https://b.example"]),
    );
    let moved = World::new()
        .says(
            "/mcp",
            "authorization_servers",
            json!(["https://b.example"]),
        )
        .with(
            "https://b.example/.well-known/oauth-authorization-server",
            json!({"issuer": "https://b.example", "token_endpoint": "https://b.example/token"}),
        );

    let renewed = walk(&elsewhere, renewing("read"));
    let refused = walk(&moved, renewing("read"));

    assert_eq!(renewed.end, "done");
    let sent = renewed.sent("POST");
    assert_eq!(sent["grant_type"], "refresh_token");
    assert_eq!(sent["refresh_token"], "r0");
    assert_eq!(sent["client_id"], "holder");
    assert_eq!(sent["resource"], SERVER);
    assert!(refused.end.contains("no token that could be renewed"));
    assert!(!refused.steps.iter().any(|step| step.contains("r0")));
}

#[test]
fn a_refresh_token_is_replaced_if_there_is_a_new_one_and_kept_otherwise() {
    let silent = World::new().says("/token", "refresh_token", Value::Null);

    let rotated = walk(&World::new(), renewing("read"));
    let kept = walk(&silent, renewing("read"));

    let refresh = |walked: Walked| walked.credentials.tokens.unwrap();
    let (rotated, kept) = (refresh(rotated), refresh(kept));
    assert_eq!(rotated.refresh, Some(Secret::new("r1")));
    assert_eq!(kept.refresh, Some(Secret::new("r0")));
    assert_eq!(kept.access, Secret::new("t1"));
    assert_eq!(kept.requested.to_string(), "read");
}

#[test]
fn a_refresh_token_that_is_refused_is_forgotten() {
    let refusing = World::new().with(
        "https://as.example/token",
        json!({"status": 400, "error": "invalid_grant"}),
    );
    let busy = World::new().with("https://as.example/token", json!({"status": 503}));

    let refused = walk(&refusing, renewing(""));
    let failed = walk(&busy, renewing(""));

    assert!(refused.end.contains("invalid_grant"), "{}", refused.end);
    assert_eq!(refused.credentials.tokens.unwrap().refresh, None);
    assert!(failed.credentials.tokens.unwrap().refresh.is_some());
}

#[test]
fn a_client_that_the_server_forgot_registers_anew_the_next_time() {
    let forgetful = World::new().with(
        "https://as.example/token",
        json!({"status": 401, "error": "invalid_client"}),
    );
    let asked = Setup {
        credentials: held(""),
        ..setup()
    };

    let walked = walk(&forgetful, asked);

    assert!(walked.end.contains("invalid_client"), "{}", walked.end);
    assert!(walked.credentials.registrations.is_empty());
}

#[test]
fn a_company_vouches_for_a_person() {
    let provider =
        IdentityProvider::new("https://idp.example/token", RegisteredClient::new("idp-us"));
    let application = Application {
        grant: Grant::Enterprise(provider),
        ..Application::clone(&known(RegisteredClient::new("us").secret("hush")))
    };
    let asked = Setup {
        application: Arc::new(application),
        redirect_uri: None,
        assertion: Some(Secret::new("id-token")),
        ..setup()
    };
    let world = World::new().with(
        "https://idp.example/token",
        json!({"access_token": "vouched", "token_type": "N_A"}),
    );

    let walked = walk(&world, asked);

    assert_eq!(walked.end, "done");
    let exchanged = walked.sent("POST https://idp.example/token");
    assert_eq!(exchanged["subject_token"], "id-token");
    assert_eq!(exchanged["audience"], "https://as.example");
    assert_eq!(exchanged["resource"], SERVER);
    assert_eq!(exchanged["client_id"], "idp-us");
    let redeemed = walked.sent("POST https://as.example/token");
    assert_eq!(redeemed["assertion"], "vouched");
    assert!(redeemed["grant_type"].ends_with("jwt-bearer"));
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
        application: known(RegisteredClient::new("own").secret("hush")),
        credentials: held(""),
        assertion: Some(Secret::new("hush")),
        ..setup()
    };
    let mut flow = Flow::new(asked);
    flow.state = State::Redeeming(TokenRequest::new("x").with("code", "hush"));

    let shown = format!("{flow:?}");

    for secret in ["hush", "r0\"", "t0\""] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}
