//! Tokens that are bound to a key, and their DPoP proofs.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline::http::server::HttpBody;
use bowline_auth::server::ResourceServer;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::*;

/// A client with a key, and a token that is bound to it.
struct DpopClient {
    env: TestEnv,
    key: Signer,
    token: String,
}

impl DpopClient {
    fn new() -> Self {
        let (env, key) = (TestEnv::new(), Signer::new(""));
        let bound = claims_with("cnf", json!({"jkt": key.thumbprint()}));
        let token = env.signer.sign(&bound);
        Self { env, key, token }
    }

    fn proof_claims(&self) -> Value {
        let ath = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&self.token));
        json!({"jti": "1", "htm": "POST", "htu": RESOURCE, "iat": NOW, "ath": ath})
    }

    fn header(&self) -> Value {
        json!({"typ": "dpop+jwt", "alg": "ES256", "jwk": self.key.bare_jwk()})
    }

    fn proof(&self, name: &str, value: impl Into<Value>) -> String {
        let mut claims = self.proof_claims();
        claims[name] = value.into();
        self.key.sign_with_header(&self.header(), &claims)
    }

    async fn call(&self, proof: &str) -> Response<HttpBody> {
        let request = with_header(
            call("whoami"),
            "authorization",
            &format!("DPoP {}", self.token),
        );
        send_request(&self.env.service(), with_header(request, "dpop", proof)).await
    }

    async fn refused(&self, proof: &str) -> String {
        let response = self.call(proof).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        let header = challenge(&response);
        assert!(
            header.starts_with(r#"DPoP error="invalid_dpop_proof""#),
            "{header}"
        );
        assert!(header.contains("algs=\"ES256 "), "{header}");
        assert_eq!(self.env.handled_calls(), 0);
        error_description(&response).to_owned()
    }
}

#[tokio::test]
async fn a_valid_proof_is_admitted_and_removed_from_the_request() {
    let client = DpopClient::new();

    let response = client.call(&client.proof("jti", "1")).await;

    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(whoami_result(response).await["saw_token"], false);
}

#[tokio::test]
async fn a_proof_is_accepted_once() {
    let client = DpopClient::new();
    let proof = client.proof("jti", "once");

    let first = client.call(&proof).await;
    let again = client.call(&proof).await;
    let another = client.call(&client.proof("jti", "twice")).await;

    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(again.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(error_description(&again), "the proof was already used");
    assert_eq!(another.status(), StatusCode::OK);
}

#[tokio::test]
async fn replicas_that_share_a_mark_store_accept_a_proof_once() {
    let client = DpopClient::new();
    let marks = std::sync::Arc::new(bowline::cluster::MemoryMarks::new());
    let replica = || client.env.guard.clone().marks(marks.clone());
    let proof = client.proof("jti", "once");
    let send = async |guard: &ResourceServer| {
        let service = tower_layer::Layer::layer(guard, client.env.server.http());
        let token = format!("DPoP {}", client.token);
        let request = with_header(call("whoami"), "authorization", &token);
        send_request(&service, with_header(request, "dpop", &proof))
            .await
            .status()
    };

    let first = send(&replica()).await;
    let elsewhere = send(&replica()).await;

    assert_eq!(first, StatusCode::OK);
    assert_eq!(elsewhere, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_proof_quota_is_per_key() {
    let mut client = DpopClient::new();
    client.env.guard = client.env.guard.max_proofs_per_key(3);
    let mut other = DpopClient::new();
    std::mem::swap(&mut other.env.guard, &mut client.env.guard);
    client.env.guard = other.env.guard.clone();
    // Both clients use one server.
    client.token = other
        .env
        .signer
        .sign(&claims_with("cnf", json!({"jkt": client.key.thumbprint()})));
    client.env.signer = other.env.signer.clone();
    client.env.web.publish(&[&other.env.signer]);
    other.env.web.publish(&[&other.env.signer]);

    let mut statuses = Vec::new();
    for jti in ["1", "2", "3", "4"] {
        statuses.push(client.call(&client.proof("jti", jti)).await.status());
    }
    let others = other.call(&other.proof("jti", "1")).await;

    assert_eq!(statuses[..3], [StatusCode::OK; 3]);
    assert_eq!(statuses[3], StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(others.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_full_mark_store_refuses_proofs() {
    let mut client = DpopClient::new();
    let marks = bowline::cluster::MemoryMarks::new().max_marks(1);
    client.env.guard = client.env.guard.marks(marks);

    let first = client.call(&client.proof("jti", "1")).await;
    let second = client.call(&client.proof("jti", "2")).await;
    let again = client.call(&client.proof("jti", "1")).await;

    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(again.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_proof_for_the_resource_is_accepted_at_its_path_only() {
    let client = DpopClient::new();
    let send = async |guard: &ResourceServer, path: &str, htu: &str| {
        let service = tower_layer::Layer::layer(guard, client.env.server.http());
        let token = format!("DPoP {}", client.token);
        let mut request = with_header(call("whoami"), "authorization", &token);
        *request.uri_mut() = path.parse().unwrap();
        let mut claims = client.proof_claims();
        claims["htu"] = htu.into();
        claims["jti"] = format!("{path} {htu}").into();
        let proof = client.key.sign_with_header(&client.header(), &claims);
        let response = send_request(&service, with_header(request, "dpop", &proof)).await;
        error_description(&response).to_owned()
    };
    let whole = &client.env.guard;
    let nested = &whole.clone().path_prefix("/mcp");

    for (guard, path, htu, is_accepted) in [
        (whole, "/mcp", RESOURCE, true),
        (whole, "/other", RESOURCE, false),
        (whole, "/other", "http://localhost/other", true),
        (whole, "/", RESOURCE, false),
        (nested, "/", RESOURCE, true),
        (nested, "/messages", RESOURCE, false),
        (nested, "/messages", "http://localhost/mcp/messages", true),
    ] {
        let refused = send(guard, path, htu).await;

        let expected = if is_accepted {
            ""
        } else {
            "the proof is for another URL"
        };
        assert_eq!(refused, expected, "{path} {htu}");
    }
}

#[tokio::test]
async fn a_refused_proof_does_not_consume_its_jti() {
    let client = DpopClient::new();
    client.refused(&client.proof("htm", "GET")).await;

    assert_eq!(
        client.call(&client.proof("jti", "1")).await.status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_proof_for_another_request_is_refused() {
    let client = DpopClient::new();
    for (name, value, expected) in [
        ("htm", json!("GET"), "the proof is for another method"),
        (
            "htu",
            json!("http://localhost/other"),
            "the proof is for another URL",
        ),
        (
            "htu",
            json!("https://localhost/mcp"),
            "the proof is for another URL",
        ),
        (
            "htu",
            json!("not a URL"),
            "the `htu` of the proof is not a URL",
        ),
        ("ath", json!("AAAA"), "the proof is for another token"),
        (
            "iat",
            json!(NOW - 61),
            "the `iat` of the proof is too old or in the future",
        ),
        (
            "iat",
            json!(NOW + 31),
            "the `iat` of the proof is too old or in the future",
        ),
        ("jti", json!(""), "the `jti` of the proof is empty"),
        ("jti", Value::Null, "failed to parse the proof"),
        ("ath", Value::Null, "failed to parse the proof"),
    ] {
        let description = client.refused(&client.proof(name, value.clone())).await;

        assert_eq!(description, expected, "{name} = {value}");
    }
}

#[tokio::test]
async fn a_proof_with_another_key_or_none_is_refused() {
    let client = DpopClient::new();
    let thief = Signer::new("");
    let claims = client.proof_claims();
    let others_key = json!({"typ": "dpop+jwt", "alg": "ES256", "jwk": thief.bare_jwk()});
    let no_key = json!({"typ": "dpop+jwt", "alg": "ES256"});
    let mut private = client.header();
    private["jwk"]["d"] = json!("secret");
    let mut other_kind = client.header();
    other_kind["typ"] = json!("JWT");
    let mut unsigned = client.header();
    unsigned["alg"] = json!("none");

    for (proof, expected) in [
        (
            thief.sign_with_header(&others_key, &claims),
            "the key of the proof is not that of the token",
        ),
        (
            thief.sign_with_header(&client.header(), &claims),
            "DPoP proof: invalid signature",
        ),
        (
            client.key.sign_with_header(&no_key, &claims),
            "the proof has no usable public `jwk`",
        ),
        (
            client.key.sign_with_header(&private, &claims),
            "the proof has no usable public `jwk`",
        ),
        (
            client.key.sign_with_header(&other_kind, &claims),
            "the `typ` of the proof is not `dpop+jwt`",
        ),
        (
            client.key.sign_with_header(&unsigned, &claims),
            "DPoP proof: unsupported signature algorithm",
        ),
        ("nothing".to_owned(), "DPoP proof: not a signed JWT"),
    ] {
        let description = client.refused(&proof).await;

        assert_eq!(description, expected);
    }
}

#[tokio::test]
async fn every_modified_proof_is_refused() {
    let client = DpopClient::new();
    let proof = client.proof("jti", "1");

    for position in 0..proof.len() {
        let mut changed = proof.clone().into_bytes();
        changed[position] = if changed[position] == b'A' {
            b'B'
        } else {
            b'A'
        };

        client.refused(&String::from_utf8(changed).unwrap()).await;
    }
    assert_eq!(client.call(&proof).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_bound_token_requires_its_proof() {
    let client = DpopClient::new();
    let service = client.env.service();
    let as_bearer = with_header(
        with_bearer(call("whoami"), &client.token),
        "dpop",
        &client.proof("jti", "1"),
    );
    let no_proof = with_header(
        call("whoami"),
        "authorization",
        &format!("DPoP {}", client.token),
    );

    let as_bearer = send_request(&service, as_bearer).await;
    let no_proof = send_request(&service, no_proof).await;

    assert_eq!(as_bearer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        error_description(&as_bearer),
        "the token is bound to a key and requires a DPoP proof"
    );
    assert_eq!(no_proof.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        error_description(&no_proof),
        "expected exactly one `DPoP` header"
    );
    assert_eq!(client.env.handled_calls(), 0);
}

#[tokio::test]
async fn a_token_with_an_unsupported_confirmation_method_is_refused() {
    let env = TestEnv::new();

    let response = env
        .call_with(&claims_with("cnf", json!({"x5t#S256": "abc"})))
        .await;

    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn require_dpop_refuses_unbound_tokens() {
    let env = TestEnv::new();
    let guard = env.guard.clone().require_dpop();
    let service = tower_layer::Layer::layer(&guard, env.server.http());
    let token = env.signer.sign(&claims());

    for request in [
        with_bearer(call("whoami"), &token),
        with_header(call("whoami"), "authorization", &format!("DPoP {token}")),
        call("whoami"),
    ] {
        let response = send_request(&service, request).await;

        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert!(challenge(&response).starts_with("DPoP "));
    }
    let document = http::Request::get(guard.metadata_path());
    let document = send_request(
        &service,
        document.body(http_body_util::Full::default()).unwrap(),
    )
    .await;
    assert_eq!(
        json(document).await["dpop_bound_access_tokens_required"],
        true
    );
}

#[tokio::test]
async fn nonces_are_sent_with_each_response_and_valid_for_five_minutes() {
    let client = DpopClient::new();
    let guard = client.env.guard.clone().dpop_nonces([7; 32]);
    let service = tower_layer::Layer::layer(&guard, client.env.server.http());
    let send = async |nonce: &str, jti: &str, iat: u64| {
        let mut claims = client.proof_claims();
        claims["jti"] = jti.into();
        claims["iat"] = iat.into();
        claims["nonce"] = nonce.into();
        let proof = client.key.sign_with_header(&client.header(), &claims);
        let token = format!("DPoP {}", client.token);
        let request = with_header(call("whoami"), "authorization", &token);
        send_request(&service, with_header(request, "dpop", &proof)).await
    };
    let nonce = |response: &Response<HttpBody>| {
        let nonce = &response.headers()["dpop-nonce"];
        nonce.to_str().unwrap().to_owned()
    };

    let refused = send("made up", "1", NOW).await;
    let served = send(&nonce(&refused), "1", NOW).await;
    client.env.clock.advance(299);
    let again = send(&nonce(&served), "2", NOW + 299).await;
    client.env.clock.advance(1);
    let too_old = send(&nonce(&served), "3", NOW + 300).await;

    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(challenge(&refused).starts_with(r#"DPoP error="use_dpop_nonce""#));
    assert_eq!(served.status(), StatusCode::OK);
    assert_eq!(again.status(), StatusCode::OK);
    assert_eq!(too_old.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn bearer_requests_get_no_nonce() {
    let env = TestEnv::new();
    let guard = env.guard.clone().dpop_nonces([7; 32]);
    let service = tower_layer::Layer::layer(&guard, env.server.http());

    let response = send_request(
        &service,
        with_bearer(call("whoami"), &env.signer.sign(&claims())),
    )
    .await;

    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers().get("dpop-nonce"), None);
}
