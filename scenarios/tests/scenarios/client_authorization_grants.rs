//! Grants without a user: refresh tokens, client credentials and identity assertions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bowline_auth::client::{IdentityProvider, OAuth, RegisteredClient, Secret, SigningKey};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::client_authorization::find;
use crate::protected_server::{
    ProtectedServer, RecordedRequest, ScriptedIssuer, WELL_KNOWN, authorization_error, call,
    connect, oauth, oauth_without_browser,
};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            an_expired_token_is_refreshed_before_the_request,
            "client-auth:refresh:transparent",
        ),
        scenario!(
            a_rejected_refresh_token_is_not_used_again,
            "client-auth:invalid-grant-clears-tokens",
        ),
        scenario!(
            client_credentials_work_with_a_secret_and_with_a_key,
            "client-auth:client-credentials",
            "client-auth:private-key-jwt",
        ),
        scenario!(
            an_identity_assertion_is_exchanged_for_a_token,
            "client-auth:identity-assertion",
            "client-auth:identity-assertion:assertion-callback",
            "client-auth:identity-assertion:metadata-advertised",
        ),
        scenario!(
            the_id_token_is_requested_only_after_the_issuer_was_verified,
            "client-auth:identity-assertion:issuer-pinning",
        ),
        scenario!(
            an_issuer_without_identity_assertions_ends_the_flow,
            "client-auth:identity-assertion:disabled-rejected",
        ),
        scenario!(
            a_rejected_identity_assertion_ends_the_flow,
            "client-auth:identity-assertion:invalid-assertion",
        ),
    ];
    all.into_iter().map(Scenario::over_http).collect()
}

async fn an_expired_token_is_refreshed_before_the_request(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;
    issuer.script().lifetime = 0;
    let client = connect(&env, &server, oauth(&server)).await.unwrap();
    client.call_tool("whoami", ()).await.unwrap();
    issuer.script().lifetime = 3600;
    issuer.received();
    server.received();

    client.call_tool("whoami", ()).await.unwrap();
    client.call_tool("whoami", ()).await.unwrap();

    let renewal = find(&issuer.received(), "POST /token").form();
    assert_eq!(renewal["grant_type"], "refresh_token");
    assert_eq!(renewal["resource"], server.url);
    let received = server.received();
    let calls: Vec<_> = received.iter().filter(|it| it.path == "/mcp").collect();
    assert!(calls.len() >= 2);
    let bearer = format!("Bearer {}", issuer.script().last_token());
    for call in calls {
        assert_eq!(call.authorization(), Some(&*bearer), "{call:?}");
        assert_ne!(call.status, 401, "a request was rejected");
    }
    client.close().await.unwrap();
}

async fn a_rejected_refresh_token_is_not_used_again(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;
    let client = connect(&env, &server, oauth(&server)).await.unwrap();
    client.call_tool("whoami", ()).await.unwrap();
    let id = find(&issuer.received(), "GET /authorize").query()["client_id"].clone();
    issuer.revoke_tokens();
    let error = json!({"error": "invalid_grant"});
    issuer.script().respond_next("/token", 400, error);
    // The user declines at first, so that no new tokens replace the rejected ones.
    let right = issuer.script().redirect_query.clone();
    issuer.script().redirect_query = "error=server_error&state={state}&iss={issuer}".into();

    let declined = client.call_tool("whoami", ()).await;
    issuer.script().redirect_query = right;
    client.call_tool("whoami", ()).await.unwrap();

    assert!(declined.is_err());
    let received = issuer.received();
    let shown = received.iter().filter(|it| it.contains("-refresh-1"));
    assert_eq!(shown.count(), 1, "{received:?}");
    let visits = received
        .iter()
        .filter(|it| it.method_and_path() == "GET /authorize");
    let ids: Vec<_> = visits.map(|it| it.query()["client_id"].clone()).collect();
    assert_eq!(ids, [id.clone(), id], "the registration was lost");
    assert!(
        !received
            .iter()
            .any(|it| it.method_and_path() == "POST /register")
    );
    client.close().await.unwrap();
}

async fn client_credentials_work_with_a_secret_and_with_a_key(env: ScenarioEnv) {
    let issuer = ScriptedIssuer::start().await;
    let server = ProtectedServer::with_guard(&[&issuer], |guard| guard.scopes(["read"])).await;
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
    let key = SigningKey::from_pkcs8(pkcs8.as_ref()).unwrap();
    let client = || RegisteredClient::new(&issuer.url, "nightly");
    let oauth_without_browser = |client| {
        oauth_without_browser(&server)
            .client(client)
            .client_credentials()
    };

    let by_secret = oauth_without_browser(client().secret("hush"));
    call(&env, &server, by_secret).await.unwrap();
    let by_secret = issuer.received();
    let by_key = oauth_without_browser(client().key(key));
    call(&env, &server, by_key).await.unwrap();
    let by_key = issuer.received();

    for received in [&by_secret, &by_key] {
        let requests: Vec<_> = received
            .iter()
            .map(RecordedRequest::method_and_path)
            .collect();
        assert_eq!(requests, [&format!("GET {WELL_KNOWN}"), "POST /token"]);
        let form = received[1].form();
        assert_eq!(form["grant_type"], "client_credentials");
        assert_eq!(form["scope"], "read");
        assert_eq!(form["resource"], server.url);
    }
    let basic = format!("Basic {}", STANDARD.encode("nightly:hush"));
    assert_eq!(by_secret[1].authorization(), Some(&*basic));
    let form = by_key[1].form();
    assert_eq!(by_key[1].authorization(), None);
    let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    assert_eq!(form["client_assertion_type"], kind);
    let claims = verified(&form["client_assertion"], pair.public_key().as_ref());
    assert_eq!(
        (&claims["iss"], &claims["sub"]),
        (&json!("nightly"), &json!("nightly"))
    );
    assert_eq!(claims["aud"], issuer.url);
    assert!(claims["exp"].as_u64() > claims["iat"].as_u64());
}

/// Verifies the signature of a JWT, and returns its claims.
fn verified(jwt: &str, public_key: &[u8]) -> Value {
    let (message, signature) = jwt.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public_key);
    key.verify(message.as_bytes(), &signature).unwrap();
    let claims = message.split_once('.').unwrap().1;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

/// An identity provider, an authorization server that trusts it, and an MCP server that trusts the latter.
struct Enterprise {
    provider: ScriptedIssuer,
    issuer: ScriptedIssuer,
    server: ProtectedServer,
    /// How often the application was requested to provide an ID token.
    id_token_requests: Arc<AtomicUsize>,
}

impl Enterprise {
    async fn new() -> Self {
        let (provider, issuer) = (ScriptedIssuer::start().await, ScriptedIssuer::start().await);
        let server = ProtectedServer::trusting(&[&issuer]).await;
        let grants = json!([JWT_BEARER]);
        issuer.script().metadata["grant_types_supported"] = grants;
        let profiles = json!(["urn:ietf:params:oauth:grant-profile:id-jag"]);
        issuer.script().metadata["authorization_grant_profiles_supported"] = profiles;
        let assertion = json!({"access_token": "an-id-jag", "token_type": "N_A",
            "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"});
        provider.script().respond_next("/token", 200, assertion);
        Self {
            provider,
            issuer,
            server,
            id_token_requests: Arc::default(),
        }
    }

    fn oauth(&self) -> OAuth {
        let us =
            RegisteredClient::new(&self.provider.url, "us-at-provider").secret("provider-hush");
        let provider = IdentityProvider::new(format!("{}/token", self.provider.url), us);
        let client = RegisteredClient::new(&self.issuer.url, "us").secret("hush");
        let id_token_requests = self.id_token_requests.clone();
        oauth_without_browser(&self.server)
            .client(client)
            .enterprise(provider, move |issuer| {
                id_token_requests.fetch_add(1, Ordering::SeqCst);
                async move {
                    // An application may have to wait for the ID token.
                    tokio::task::yield_now().await;
                    Ok(Secret::new(format!("id-token-of {issuer}")))
                }
            })
    }

    fn id_token_requests(&self) -> usize {
        self.id_token_requests.load(Ordering::SeqCst)
    }
}

async fn an_identity_assertion_is_exchanged_for_a_token(env: ScenarioEnv) {
    let enterprise = Enterprise::new().await;
    let Enterprise {
        provider,
        issuer,
        server,
        ..
    } = &enterprise;

    let name = call(&env, server, enterprise.oauth()).await.unwrap();

    assert_eq!(name, format!("{} ada", issuer.url));
    assert_eq!(enterprise.id_token_requests(), 1);
    let token_type = "urn:ietf:params:oauth:token-type";
    let [exchanged] = &provider.received()[..] else {
        panic!("expected one request to the identity provider");
    };
    let form = exchanged.form();
    let exchange = "urn:ietf:params:oauth:grant-type:token-exchange";
    assert_eq!(form["grant_type"], exchange);
    assert_eq!(form["requested_token_type"], format!("{token_type}:id-jag"));
    assert_eq!(
        form["subject_token"],
        format!("id-token-of {}", provider.url)
    );
    assert_eq!(form["subject_token_type"], format!("{token_type}:id_token"));
    assert_eq!(form["audience"], issuer.url);
    assert_eq!(form["resource"], server.url);
    let received = issuer.received();
    let requests: Vec<_> = received
        .iter()
        .map(RecordedRequest::method_and_path)
        .collect();
    assert_eq!(requests, [&format!("GET {WELL_KNOWN}"), "POST /token"]);
    let form = received[1].form();
    assert_eq!(
        (&*form["grant_type"], &*form["assertion"]),
        (JWT_BEARER, "an-id-jag")
    );
    assert_eq!(form["resource"], server.url);
}

async fn the_id_token_is_requested_only_after_the_issuer_was_verified(env: ScenarioEnv) {
    let enterprise = Enterprise::new().await;
    let other = ScriptedIssuer::start().await;
    enterprise.server.publish_metadata(&other.url, None);

    let named_another =
        authorization_error(call(&env, &enterprise.server, enterprise.oauth()).await);
    let visited = other.requests();
    enterprise
        .server
        .publish_metadata(&enterprise.issuer.url, None);
    enterprise.issuer.script().metadata["issuer"] = json!(other.url);
    let is_another = authorization_error(call(&env, &enterprise.server, enterprise.oauth()).await);

    assert!(
        named_another.contains("the client is registered at"),
        "{named_another}"
    );
    assert!(visited.is_empty(), "{visited:?}");
    assert!(is_another.contains("another issuer"), "{is_another}");
    let discovery = format!("GET {WELL_KNOWN}");
    assert_eq!(enterprise.issuer.requests(), [discovery]);
    assert_eq!(enterprise.id_token_requests(), 0);
    assert!(enterprise.provider.requests().is_empty());
}

async fn an_issuer_without_identity_assertions_ends_the_flow(env: ScenarioEnv) {
    let enterprise = Enterprise::new().await;
    let grants = "grant_types_supported";
    let discovery = format!("GET {WELL_KNOWN}");

    enterprise.issuer.script().metadata[grants] = json!(["authorization_code", "refresh_token"]);
    let unlisted = authorization_error(call(&env, &enterprise.server, enterprise.oauth()).await);
    let (id_token_requests, sent) = (
        enterprise.id_token_requests(),
        enterprise.provider.requests(),
    );
    let visits = enterprise.issuer.requests();
    // An issuer that does not list its grants rejects the token request.
    enterprise.issuer.script().metadata[grants] = Value::Null;
    let error = json!({"error": "unsupported_grant_type"});
    enterprise
        .issuer
        .script()
        .respond_next("/token", 400, error);
    let tried = authorization_error(call(&env, &enterprise.server, enterprise.oauth()).await);

    assert!(
        unlisted.contains("does not support the grant"),
        "{unlisted}"
    );
    assert_eq!((id_token_requests, sent.len()), (0, 0), "a secret was sent");
    assert_eq!(visits, [&*discovery]);
    assert!(tried.contains("unsupported_grant_type"), "{tried}");
    assert_eq!(enterprise.issuer.requests(), [&discovery, "POST /token"]);
}

async fn a_rejected_identity_assertion_ends_the_flow(env: ScenarioEnv) {
    let discovery = format!("GET {WELL_KNOWN}");
    let by_issuer = Enterprise::new().await;
    let error = json!({"error": "invalid_grant", "error_description": "a forged assertion"});
    by_issuer.issuer.script().respond_next("/token", 400, error);
    let by_provider = Enterprise::new().await;
    {
        let mut script = by_provider.provider.script();
        script.respond_first("/token", 400, json!({"error": "invalid_request"}));
    }

    let at_issuer = authorization_error(call(&env, &by_issuer.server, by_issuer.oauth()).await);
    let at_provider =
        authorization_error(call(&env, &by_provider.server, by_provider.oauth()).await);

    assert!(at_issuer.contains("a forged assertion"), "{at_issuer}");
    assert_eq!(by_issuer.provider.requests(), ["POST /token"]);
    assert_eq!(
        by_issuer.issuer.requests(),
        [&discovery, "POST /token"],
        "expected one token request"
    );
    assert!(at_provider.contains("invalid_request"), "{at_provider}");
    assert_eq!(by_provider.issuer.requests(), [discovery]);
}

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
