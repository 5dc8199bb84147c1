//! What attackers try, and what they get.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_auth::server::{Algorithm, JwtVerifier};
use http::StatusCode;
use ring::hmac;
use serde_json::{Value, json};

use crate::support::*;

/// Sends a token, and is told why it is refused.
async fn refused(world: &World, token: &str) -> String {
    let response = world.call(token).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{token}");
    assert!(challenge(&response).contains(r#"error="invalid_token""#));
    assert_eq!(world.handled(), 0);
    why(&response).to_owned()
}

#[tokio::test]
async fn a_token_for_another_audience_is_refused() {
    let world = World::new();

    for audience in [
        json!("http://localhost/other"),
        json!("http://localhost"),
        json!(["http://evil.example/mcp"]),
        json!([]),
        Value::Null,
    ] {
        let token = world.signer.sign(&claims_with("aud", audience));

        assert_eq!(
            refused(&world, &token).await,
            "the token is meant for another audience"
        );
    }
}

#[tokio::test]
async fn a_token_from_another_issuer_is_refused() {
    let world = World::new();

    for issuer in [
        json!("https://evil.example"),
        json!("https://id.example/"),
        Value::Null,
    ] {
        let token = world.signer.sign(&claims_with("iss", issuer));

        assert_eq!(
            refused(&world, &token).await,
            "the token is from another issuer"
        );
    }
}

#[tokio::test]
async fn a_token_that_is_not_signed_is_refused() {
    let world = World::new();
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());

    for alg in ["none", "None", "nOnE", ""] {
        let header = json!({"alg": alg, "typ": "JWT", "kid": "first"});
        let token = format!("{}.{}.", part(header), part(claims()));

        assert_eq!(
            refused(&world, &token).await,
            "it is not signed in a way that is trusted here"
        );
    }
}

#[tokio::test]
async fn a_public_key_does_not_serve_as_a_shared_secret() {
    let world = World::new();
    let jwk = world.signer.jwk().to_string();
    for secret in [world.signer.public(), jwk.as_bytes()] {
        let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "HS256", "typ": "JWT", "kid": "first"});
        let message = format!("{}.{}", part(header), part(claims()));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let tag = hmac::sign(&key, message.as_bytes());
        let token = format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag));

        assert_eq!(
            refused(&world, &token).await,
            "it is not signed in a way that is trusted here"
        );
    }
}

#[tokio::test]
async fn a_signature_of_another_kind_than_the_keys_is_refused() {
    let world = World::new();

    for alg in ["RS256", "PS256", "ES384", "EdDSA", "Ed25519"] {
        let header = json!({"alg": alg, "typ": "JWT", "kid": "first"});
        let token = world.signer.sign_raw(&header, &claims());

        assert_eq!(
            refused(&world, &token).await,
            "the token is signed with a key that its issuer does not have",
            "{alg}"
        );
    }
}

#[tokio::test]
async fn an_issuer_whose_algorithms_are_listed_signs_with_no_other() {
    let mut world = World::new();
    let with = |algorithms: &[Algorithm]| {
        let verifier = JwtVerifier::new(ISSUER, KEYS).unwrap();
        let verifier = verifier.algorithms(algorithms.iter().copied());
        guard(verifier.send_by(world.web.clone()), &world.clock)
    };
    let (listed, unlisted) = (
        with(&[Algorithm::Es256, Algorithm::Rs256]),
        with(&[Algorithm::Rs256]),
    );
    let token = world.signer.sign(&claims());

    world.guard = unlisted;
    assert_eq!(
        refused(&world, &token).await,
        "it is not signed in a way that is accepted here"
    );
    world.guard = listed;
    assert_eq!(world.call(&token).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn where_access_tokens_must_say_so_others_are_refused() {
    let mut world = World::new();
    let verifier = JwtVerifier::new(ISSUER, KEYS).unwrap().require_at_jwt();
    let typed = |typ: Value| {
        let header = json!({"alg": "ES256", "kid": "first", "typ": typ});
        world.signer.sign_raw(&header, &claims())
    };
    let tokens = [
        typed(json!("JWT")),
        typed(Value::Null),
        typed(json!("id+jwt")),
    ];
    let good = [typed(json!("at+jwt")), typed(json!("application/AT+JWT"))];
    world.guard = guard(verifier.send_by(world.web.clone()), &world.clock);

    for token in tokens {
        let why = refused(&world, &token).await;
        assert_eq!(why, "it is a token of another kind");
    }
    for token in good {
        assert_eq!(world.call(&token).await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_key_that_the_token_brings_along_does_not_count() {
    let world = World::new();
    let forger = Signer::new("first");
    let brought = json!({"alg": "ES256", "kid": "first", "jwk": forger.bare_jwk(),
        "jku": "https://evil.example/keys", "x5u": "https://evil.example/chain"});

    for token in [forger.sign(&claims()), forger.sign_raw(&brought, &claims())] {
        assert_eq!(
            refused(&world, &token).await,
            "its signature is not that of the key"
        );
    }
    assert_eq!(world.web.asked("https://evil.example/keys"), 0);
}

#[tokio::test]
async fn a_changed_token_is_refused() {
    let world = World::new();
    let token = world.signer.sign(&claims());
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    parts[1] = BASE64_URL_SAFE_NO_PAD.encode(claims_with("sub", "eve").to_string());

    let why = refused(&world, &parts.join(".")).await;

    assert_eq!(why, "its signature is not that of the key");
}

#[tokio::test]
async fn every_changed_letter_and_every_cut_of_a_token_is_noticed() {
    let world = World::new();
    let token = world.signer.sign(&claims());

    for place in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        let cut = &token[..place.max(1)];

        for forged in [&changed, cut] {
            let response = world.call(forged).await;
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{forged}");
        }
    }
    assert_eq!(world.handled(), 0);
    assert_eq!(world.call(&token).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn another_token_of_the_same_issuer_is_no_access_token() {
    let world = World::new();

    for typ in ["dpop+jwt", "logout+jwt", "oauth-id-jag+jwt"] {
        let header = json!({"alg": "ES256", "typ": typ, "kid": "first"});
        let token = world.signer.sign_raw(&header, &claims());

        assert_eq!(
            refused(&world, &token).await,
            "it is a token of another kind"
        );
    }
}

#[tokio::test]
async fn extensions_that_must_be_understood_are_not_overlooked() {
    let world = World::new();
    let header = json!({"alg": "ES256", "kid": "first", "crit": ["b64"], "b64": false});

    let why = refused(&world, &world.signer.sign_raw(&header, &claims())).await;

    assert_eq!(why, "its header has extensions that nobody here knows");
}

#[tokio::test]
async fn a_token_without_an_end_or_that_has_not_begun_is_refused() {
    let world = World::new();
    let endless = world.signer.sign(&claims_with("exp", Value::Null));
    let early = world.signer.sign(&claims_with("nbf", NOW + 1));

    assert_eq!(
        refused(&world, &endless).await,
        "the token does not say when it ends"
    );
    assert_eq!(refused(&world, &early).await, "the token is not valid yet");
}

#[tokio::test]
async fn what_is_no_token_at_all_is_refused_without_asking_anybody() {
    let world = World::new();
    for token in ["a", "a.b", "a.b.c", "..", "e30.e30.e30", "e30.e30.e30.e30"] {
        assert_eq!(
            refused(&world, token).await,
            "it is no signed JWT",
            "{token}"
        );
    }
    assert_eq!(world.web.asked_at_all(), 0);
}

#[tokio::test]
async fn an_oversized_key_set_is_not_read() {
    let world = World::new();
    let padding = "x".repeat(300 * 1024);
    let keys = json!({"keys": [world.signer.jwk()], "padding": padding});
    world.web.put(KEYS, &keys);

    let response = world.call_with(&claims()).await;

    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(challenge(&response), "");
    assert_eq!(world.handled(), 0);
}

#[tokio::test]
async fn keys_are_not_fetched_from_inside_our_own_network() {
    for place in [
        "http://169.254.169.254/latest/meta-data",
        "https://169.254.169.254/latest/meta-data",
        "https://[fe80::1]/keys",
        "https://127.0.0.1/keys",
        "https://10.0.0.1/keys",
        "http://id.example/keys",
        "file:///etc/passwd",
    ] {
        let world = World::new();
        world.web.put(place, &json!({"keys": [world.signer.jwk()]}));
        let metadata = json!({"issuer": ISSUER, "jwks_uri": place});
        let at = "https://id.example/.well-known/oauth-authorization-server";
        world.web.put(at, &metadata);
        let verifier = JwtVerifier::discover(ISSUER).unwrap();
        let guard = guard(verifier.send_by(world.web.clone()), &world.clock);
        let service = tower_layer::Layer::layer(&guard, world.server.http());
        let token = world.signer.sign(&claims());

        let response = ask(&service, bearing(call("whose"), &token)).await;

        assert_eq!(
            response.status(),
            StatusCode::SERVICE_UNAVAILABLE,
            "{place}"
        );
        assert_eq!(world.web.asked(place), 0, "{place}");
    }
}

#[tokio::test]
async fn metadata_of_another_issuer_are_not_believed() {
    let world = World::new();
    let metadata = json!({"issuer": "https://evil.example", "jwks_uri": KEYS});
    let at = "https://id.example/.well-known/oauth-authorization-server";
    world.web.put(at, &metadata);
    let verifier = JwtVerifier::discover(ISSUER).unwrap();
    let guard = guard(verifier.send_by(world.web.clone()), &world.clock);
    let service = tower_layer::Layer::layer(&guard, world.server.http());
    let token = world.signer.sign(&claims());

    let response = ask(&service, bearing(call("whose"), &token)).await;

    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(world.web.asked(KEYS), 0);
}

#[tokio::test]
async fn a_redirect_of_the_keys_is_not_followed() {
    let world = World::new();
    world.web.put_text(KEYS, StatusCode::FOUND, "");

    let response = world.call_with(&claims()).await;

    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(world.web.asked(KEYS), 1);
}
