//! Tokens that are bound to a key, and the proofs that they need.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline::http::server::HttpBody;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::*;

/// A client with a key, and a token that is bound to it.
struct Client {
    world: World,
    key: Signer,
    token: String,
}

impl Client {
    fn new() -> Self {
        let (world, key) = (World::new(), Signer::new(""));
        let bound = claims_with("cnf", json!({"jkt": key.thumbprint()}));
        let token = world.signer.sign(&bound);
        Self { world, key, token }
    }

    fn proof_claims(&self) -> Value {
        let ath = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&self.token));
        json!({"jti": "1", "htm": "POST", "htu": US, "iat": NOW, "ath": ath})
    }

    fn header(&self) -> Value {
        json!({"typ": "dpop+jwt", "alg": "ES256", "jwk": self.key.bare_jwk()})
    }

    fn proof(&self, name: &str, value: impl Into<Value>) -> String {
        let mut claims = self.proof_claims();
        claims[name] = value.into();
        self.key.sign_raw(&self.header(), &claims)
    }

    async fn call(&self, proof: &str) -> Response<HttpBody> {
        let request = with(
            call("whose"),
            "authorization",
            &format!("DPoP {}", self.token),
        );
        ask(&self.world.service(), with(request, "dpop", proof)).await
    }

    async fn refused(&self, proof: &str) -> String {
        let response = self.call(proof).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        let told = challenge(&response);
        assert!(
            told.starts_with(r#"DPoP error="invalid_dpop_proof""#),
            "{told}"
        );
        assert!(told.contains("algs=\"ES256 "), "{told}");
        assert_eq!(self.world.handled(), 0);
        why(&response).to_owned()
    }
}

#[tokio::test]
async fn whoever_has_the_key_comes_in_and_the_proof_goes_no_further() {
    let client = Client::new();

    let response = client.call(&client.proof("jti", "1")).await;

    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(told(response).await["saw_token"], false);
}

#[tokio::test]
async fn a_proof_counts_once() {
    let client = Client::new();
    let proof = client.proof("jti", "once");

    let first = client.call(&proof).await;
    let again = client.call(&proof).await;
    let another = client.call(&client.proof("jti", "twice")).await;

    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(again.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(why(&again), "the proof was used before");
    assert_eq!(another.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_proof_that_was_refused_does_not_use_up_its_id() {
    let client = Client::new();
    client.refused(&client.proof("htm", "GET")).await;

    assert_eq!(
        client.call(&client.proof("jti", "1")).await.status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_proof_of_something_else_is_refused() {
    let client = Client::new();
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
        ("htu", json!("not a URL"), "the proof names no URL"),
        ("ath", json!("AAAA"), "the proof is for another token"),
        (
            "iat",
            json!(NOW - 61),
            "the proof is too old, or from the future",
        ),
        (
            "iat",
            json!(NOW + 31),
            "the proof is too old, or from the future",
        ),
        ("jti", json!(""), "the proof has no id"),
        ("jti", Value::Null, "the proof cannot be read"),
        ("ath", Value::Null, "the proof cannot be read"),
    ] {
        let told = client.refused(&client.proof(name, value.clone())).await;

        assert_eq!(told, expected, "{name} = {value}");
    }
}

#[tokio::test]
async fn a_proof_with_another_key_or_none_is_refused() {
    let client = Client::new();
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
            thief.sign_raw(&others_key, &claims),
            "the proof is made with another key than that of the token",
        ),
        (
            thief.sign_raw(&client.header(), &claims),
            "the proof: its signature is not that of the key",
        ),
        (
            client.key.sign_raw(&no_key, &claims),
            "the proof has no public key",
        ),
        (
            client.key.sign_raw(&private, &claims),
            "the proof has no public key",
        ),
        (
            client.key.sign_raw(&other_kind, &claims),
            "the proof is a token of another kind",
        ),
        (
            client.key.sign_raw(&unsigned, &claims),
            "the proof: it is not signed in a way that is trusted here",
        ),
        ("nothing".to_owned(), "the proof: it is no signed JWT"),
    ] {
        let told = client.refused(&proof).await;

        assert_eq!(told, expected);
    }
}

#[tokio::test]
async fn a_bound_token_is_worth_nothing_without_its_proof() {
    let client = Client::new();
    let service = client.world.service();
    let as_bearer = with(
        bearing(call("whose"), &client.token),
        "dpop",
        &client.proof("jti", "1"),
    );
    let no_proof = with(
        call("whose"),
        "authorization",
        &format!("DPoP {}", client.token),
    );

    let as_bearer = ask(&service, as_bearer).await;
    let no_proof = ask(&service, no_proof).await;

    assert_eq!(as_bearer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        why(&as_bearer),
        "the token is bound to a key, and needs a proof of it"
    );
    assert_eq!(no_proof.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(why(&no_proof), "there must be one `DPoP` header");
    assert_eq!(client.world.handled(), 0);
}

#[tokio::test]
async fn a_token_that_is_bound_to_what_is_not_checked_here_is_refused() {
    let world = World::new();

    let response = world
        .call_with(&claims_with("cnf", json!({"x5t#S256": "abc"})))
        .await;

    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn where_keys_are_required_a_plain_token_is_not_enough() {
    let world = World::new();
    let guard = world.guard.clone().require_dpop();
    let service = tower_layer::Layer::layer(&guard, world.server.http());
    let token = world.signer.sign(&claims());

    for request in [
        bearing(call("whose"), &token),
        with(call("whose"), "authorization", &format!("DPoP {token}")),
        call("whose"),
    ] {
        let response = ask(&service, request).await;

        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert!(challenge(&response).starts_with("DPoP "));
    }
    let document = http::Request::get(guard.metadata_path());
    let document = ask(
        &service,
        document.body(http_body_util::Full::default()).unwrap(),
    )
    .await;
    assert_eq!(
        json(document).await["dpop_bound_access_tokens_required"],
        true
    );
}
