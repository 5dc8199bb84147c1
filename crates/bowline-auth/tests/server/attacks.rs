//! Forged tokens and malicious documents.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_auth::server::{Algorithm, JwtVerifier};
use http::StatusCode;
use ring::hmac;
use serde_json::{Value, json};

use crate::support::*;

/// Checks that a token is refused with this `error_description`.
async fn assert_refused(env: &TestEnv, token: &str, description: &str) {
    let response = env.call(token).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{token}");
    assert!(challenge(&response).contains(r#"error="invalid_token""#));
    assert_eq!(env.handled_calls(), 0);
    assert_eq!(error_description(&response), description, "{token}");
}

#[tokio::test]
async fn a_token_for_another_audience_is_refused() {
    let env = TestEnv::new();

    for audience in [
        json!("http://localhost/other"),
        json!("http://localhost"),
        json!(["http://evil.example/mcp"]),
        json!([]),
        Value::Null,
    ] {
        let token = env.signer.sign(&claims_with("aud", audience));

        assert_refused(&env, &token, "the token is for another audience").await;
    }
}

#[tokio::test]
async fn a_token_from_another_issuer_is_refused() {
    let env = TestEnv::new();

    for issuer in [
        json!("https://evil.example"),
        json!("https://id.example/"),
        Value::Null,
    ] {
        let token = env.signer.sign(&claims_with("iss", issuer));

        assert_refused(&env, &token, "the token is from another issuer").await;
    }
}

#[tokio::test]
async fn a_token_that_is_not_signed_is_refused() {
    let env = TestEnv::new();
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());

    for alg in ["none", "None", "nOnE", ""] {
        let header = json!({"alg": alg, "typ": "JWT", "kid": "first"});
        let token = format!("{}.{}.", part(header), part(claims()));

        assert_refused(&env, &token, "unsupported signature algorithm").await;
    }
}

#[tokio::test]
async fn a_public_key_is_not_accepted_as_an_hmac_secret() {
    let env = TestEnv::new();
    let jwk = env.signer.jwk().to_string();
    for secret in [env.signer.public(), jwk.as_bytes()] {
        let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "HS256", "typ": "JWT", "kid": "first"});
        let message = format!("{}.{}", part(header), part(claims()));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let tag = hmac::sign(&key, message.as_bytes());
        let token = format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag));

        assert_refused(&env, &token, "unsupported signature algorithm").await;
    }
}

#[tokio::test]
async fn an_algorithm_that_does_not_match_the_key_is_refused() {
    let env = TestEnv::new();

    for alg in ["RS256", "PS256", "ES384", "EdDSA", "Ed25519"] {
        let header = json!({"alg": alg, "typ": "JWT", "kid": "first"});
        let token = env.signer.sign_with_header(&header, &claims());

        assert_refused(
            &env,
            &token,
            "the signing key is not in the issuer's key set",
        )
        .await;
    }
}

#[tokio::test]
async fn only_the_configured_algorithms_are_accepted() {
    let mut env = TestEnv::new();
    let with = |algorithms: &[Algorithm]| {
        let verifier = JwtVerifier::new(ISSUER, JWKS_URL).unwrap();
        let verifier = verifier.algorithms(algorithms.iter().copied());
        guard(verifier.http_client(env.web.clone()), &env.clock)
    };
    let (listed, unlisted) = (
        with(&[Algorithm::Es256, Algorithm::Rs256]),
        with(&[Algorithm::Rs256]),
    );
    let token = env.signer.sign(&claims());

    env.guard = unlisted;
    assert_refused(&env, &token, "the signature algorithm is not accepted").await;
    env.guard = listed;
    assert_eq!(env.call(&token).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn require_at_jwt_refuses_other_token_types() {
    let mut env = TestEnv::new();
    let verifier = JwtVerifier::new(ISSUER, JWKS_URL).unwrap().require_at_jwt();
    let typed = |typ: Value| {
        let header = json!({"alg": "ES256", "kid": "first", "typ": typ});
        env.signer.sign_with_header(&header, &claims())
    };
    let tokens = [
        typed(json!("JWT")),
        typed(Value::Null),
        typed(json!("id+jwt")),
    ];
    let good = [typed(json!("at+jwt")), typed(json!("application/AT+JWT"))];
    env.guard = guard(verifier.http_client(env.web.clone()), &env.clock);

    for token in tokens {
        assert_refused(&env, &token, "the `typ` is not that of an access token").await;
    }
    for token in good {
        assert_eq!(env.call(&token).await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn keys_in_the_token_header_are_ignored() {
    let env = TestEnv::new();
    let forger = Signer::new("first");
    let with_keys = json!({"alg": "ES256", "kid": "first", "jwk": forger.bare_jwk(),
        "jku": "https://evil.example/keys", "x5u": "https://evil.example/chain"});

    for token in [
        forger.sign(&claims()),
        forger.sign_with_header(&with_keys, &claims()),
    ] {
        assert_refused(&env, &token, "invalid signature").await;
    }
    assert_eq!(env.web.request_count("https://evil.example/keys"), 0);
}

#[tokio::test]
async fn a_modified_token_is_refused() {
    let env = TestEnv::new();
    let token = env.signer.sign(&claims());
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    parts[1] = BASE64_URL_SAFE_NO_PAD.encode(claims_with("sub", "eve").to_string());

    assert_refused(&env, &parts.join("."), "invalid signature").await;
}

#[tokio::test]
async fn every_modified_or_truncated_token_is_refused() {
    let env = TestEnv::new();
    let token = env.signer.sign(&claims());

    for position in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[position] = if changed[position] == b'A' {
            b'B'
        } else {
            b'A'
        };
        let changed = String::from_utf8(changed).unwrap();
        let cut = &token[..position.max(1)];

        for forged in [&changed, cut] {
            let response = env.call(forged).await;
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{forged}");
        }
    }
    assert_eq!(env.handled_calls(), 0);
    assert_eq!(env.call(&token).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn other_token_types_of_the_issuer_are_refused() {
    let env = TestEnv::new();

    for typ in ["dpop+jwt", "logout+jwt", "oauth-id-jag+jwt"] {
        let header = json!({"alg": "ES256", "typ": typ, "kid": "first"});
        let token = env.signer.sign_with_header(&header, &claims());

        assert_refused(&env, &token, "the `typ` is not that of an access token").await;
    }
}

#[tokio::test]
async fn critical_header_parameters_are_refused() {
    let env = TestEnv::new();
    let header = json!({"alg": "ES256", "kid": "first", "crit": ["b64"], "b64": false});

    let token = env.signer.sign_with_header(&header, &claims());

    assert_refused(&env, &token, "unsupported critical header parameters").await;
}

#[tokio::test]
async fn a_token_without_exp_or_before_nbf_is_refused() {
    let env = TestEnv::new();
    let endless = env.signer.sign(&claims_with("exp", Value::Null));
    let early = env.signer.sign(&claims_with("nbf", NOW + 1));

    assert_refused(&env, &endless, "the token has no `exp` claim").await;
    assert_refused(&env, &early, "the token is not valid yet").await;
}

#[tokio::test]
async fn malformed_tokens_are_refused_without_a_request() {
    let env = TestEnv::new();
    for token in ["a", "a.b", "a.b.c", "..", "e30.e30.e30", "e30.e30.e30.e30"] {
        assert_refused(&env, token, "not a signed JWT").await;
    }
    assert_eq!(env.web.total_requests(), 0);
}

#[tokio::test]
async fn an_oversized_key_set_is_refused() {
    let env = TestEnv::new();
    let padding = "x".repeat(300 * 1024);
    let keys = json!({"keys": [env.signer.jwk()], "padding": padding});
    env.web.put(JWKS_URL, &keys);

    let response = env.call_with(&claims()).await;

    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(challenge(&response), "");
    assert_eq!(env.handled_calls(), 0);
}

#[tokio::test]
async fn keys_are_not_fetched_from_private_addresses() {
    for url in [
        "http://169.254.169.254/latest/meta-data",
        "https://169.254.169.254/latest/meta-data",
        "https://[fe80::1]/keys",
        "https://127.0.0.1/keys",
        "https://10.0.0.1/keys",
        "http://id.example/keys",
        "file:///etc/passwd",
    ] {
        let mut env = TestEnv::new();
        env.web.put(url, &json!({"keys": [env.signer.jwk()]}));
        let metadata = json!({"issuer": ISSUER, "jwks_uri": url});
        let at = "https://id.example/.well-known/oauth-authorization-server";
        env.web.put(at, &metadata);
        let verifier = JwtVerifier::discover(ISSUER).unwrap();
        env.guard = guard(verifier.http_client(env.web.clone()), &env.clock);

        let response = env.call_with(&claims()).await;

        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{url}");
        assert_eq!(env.web.request_count(url), 0, "{url}");
    }
}

#[tokio::test]
async fn metadata_of_another_issuer_are_refused() {
    let mut env = TestEnv::new();
    let metadata = json!({"issuer": "https://evil.example", "jwks_uri": JWKS_URL});
    let at = "https://id.example/.well-known/oauth-authorization-server";
    env.web.put(at, &metadata);
    let verifier = JwtVerifier::discover(ISSUER).unwrap();
    env.guard = guard(verifier.http_client(env.web.clone()), &env.clock);

    let response = env.call_with(&claims()).await;

    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(env.web.request_count(JWKS_URL), 0);
}

#[tokio::test]
async fn a_redirect_of_the_keys_is_not_followed() {
    let env = TestEnv::new();
    env.web.put_text(JWKS_URL, StatusCode::FOUND, "");

    let response = env.call_with(&claims()).await;

    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(env.web.request_count(JWKS_URL), 1);
}
