//! Tokens that are bound to a key, and the proofs that they need.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline::http::server::HttpBody;
use bowline_auth::server::ResourceServer;
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
async fn replicas_that_share_their_marks_take_a_proof_once() {
    let client = Client::new();
    let marks = std::sync::Arc::new(bowline::MemoryMarks::new());
    let replica = || client.world.guard.clone().marks(marks.clone());
    let proof = client.proof("jti", "once");
    let send = async |guard: &ResourceServer| {
        let service = tower_layer::Layer::layer(guard, client.world.server.http());
        let token = format!("DPoP {}", client.token);
        let request = with(call("whose"), "authorization", &token);
        ask(&service, with(request, "dpop", &proof)).await.status()
    };

    let first = send(&replica()).await;
    let elsewhere = send(&replica()).await;

    assert_eq!(first, StatusCode::OK);
    assert_eq!(elsewhere, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_key_that_proves_too_much_is_refused_and_the_others_are_not() {
    let mut client = Client::new();
    client.world.guard = client.world.guard.max_proofs_per_key(3);
    let mut other = Client::new();
    std::mem::swap(&mut other.world.guard, &mut client.world.guard);
    client.world.guard = other.world.guard.clone();
    // Both clients are those of one server.
    client.token = other
        .world
        .signer
        .sign(&claims_with("cnf", json!({"jkt": client.key.thumbprint()})));
    client.world.signer = other.world.signer.clone();
    client.world.web.publish(&[&other.world.signer]);
    other.world.web.publish(&[&other.world.signer]);

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
async fn a_store_of_marks_that_is_full_lets_no_proof_in_unremembered() {
    let mut client = Client::new();
    let marks = bowline::MemoryMarks::new().max_marks(1);
    client.world.guard = client.world.guard.marks(marks);

    let first = client.call(&client.proof("jti", "1")).await;
    let second = client.call(&client.proof("jti", "2")).await;
    let again = client.call(&client.proof("jti", "1")).await;

    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(again.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_proof_for_the_resource_counts_at_its_path_only() {
    let client = Client::new();
    let send = async |guard: &ResourceServer, path: &str, htu: &str| {
        let service = tower_layer::Layer::layer(guard, client.world.server.http());
        let token = format!("DPoP {}", client.token);
        let mut request = with(call("whose"), "authorization", &token);
        *request.uri_mut() = path.parse().unwrap();
        let mut claims = client.proof_claims();
        claims["htu"] = htu.into();
        claims["jti"] = format!("{path} {htu}").into();
        let proof = client.key.sign_raw(&client.header(), &claims);
        let response = ask(&service, with(request, "dpop", &proof)).await;
        why(&response).to_owned()
    };
    let whole = &client.world.guard;
    let nested = &whole.clone().path_prefix("/mcp");

    for (guard, path, htu, is_fine) in [
        (whole, "/mcp", US, true),
        (whole, "/other", US, false),
        (whole, "/other", "http://localhost/other", true),
        (whole, "/", US, false),
        (nested, "/", US, true),
        (nested, "/messages", US, false),
        (nested, "/messages", "http://localhost/mcp/messages", true),
    ] {
        let refused = send(guard, path, htu).await;

        let expected = if is_fine {
            ""
        } else {
            "the proof is for another URL"
        };
        assert_eq!(refused, expected, "{path} {htu}");
    }
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
async fn every_changed_letter_of_a_proof_is_noticed() {
    let client = Client::new();
    let proof = client.proof("jti", "1");

    for place in 0..proof.len() {
        let mut changed = proof.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };

        client.refused(&String::from_utf8(changed).unwrap()).await;
    }
    assert_eq!(client.call(&proof).await.status(), StatusCode::OK);
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

#[tokio::test]
async fn where_proofs_need_a_word_of_ours_it_is_given_with_each_answer_and_good_for_five_minutes() {
    let client = Client::new();
    let guard = client.world.guard.clone().dpop_nonces([7; 32]);
    let service = tower_layer::Layer::layer(&guard, client.world.server.http());
    let send = async |nonce: &str, jti: &str, iat: u64| {
        let mut claims = client.proof_claims();
        claims["jti"] = jti.into();
        claims["iat"] = iat.into();
        claims["nonce"] = nonce.into();
        let proof = client.key.sign_raw(&client.header(), &claims);
        let token = format!("DPoP {}", client.token);
        let request = with(call("whose"), "authorization", &token);
        ask(&service, with(request, "dpop", &proof)).await
    };
    let word = |response: &Response<HttpBody>| {
        let word = &response.headers()["dpop-nonce"];
        word.to_str().unwrap().to_owned()
    };

    let refused = send("made up", "1", NOW).await;
    let served = send(&word(&refused), "1", NOW).await;
    client.world.clock.advance(299);
    let again = send(&word(&served), "2", NOW + 299).await;
    client.world.clock.advance(1);
    let too_old = send(&word(&served), "3", NOW + 300).await;

    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(challenge(&refused).starts_with(r#"DPoP error="use_dpop_nonce""#));
    assert_eq!(served.status(), StatusCode::OK);
    assert_eq!(again.status(), StatusCode::OK);
    assert_eq!(too_old.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn bearers_of_plain_tokens_are_told_no_words() {
    let world = World::new();
    let guard = world.guard.clone().dpop_nonces([7; 32]);
    let service = tower_layer::Layer::layer(&guard, world.server.http());

    let response = ask(
        &service,
        bearing(call("whose"), &world.signer.sign(&claims())),
    )
    .await;

    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers().get("dpop-nonce"), None);
}
