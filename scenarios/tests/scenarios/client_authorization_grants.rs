//! Tokens without a person: renewed, or got by what a client can prove of itself or of somebody else.

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
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::client_authorization::find;
use crate::guarded::{
    Guarded, Issuer, Received, WELL_KNOWN, call, connect, oauth, unattended, why,
};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            an_expired_token_is_renewed_before_the_request,
            "client-auth:refresh:transparent",
        ),
        scenario!(
            a_refresh_token_that_is_refused_is_not_used_again,
            "client-auth:invalid-grant-clears-tokens",
        ),
        scenario!(
            a_client_acts_for_itself_by_a_secret_or_by_a_key,
            "client-auth:client-credentials",
            "client-auth:private-key-jwt",
        ),
        scenario!(
            an_identity_from_elsewhere_is_exchanged_for_a_token,
            "client-auth:identity-assertion",
            "client-auth:identity-assertion:assertion-callback",
            "client-auth:identity-assertion:metadata-advertised",
        ),
        scenario!(
            an_identity_is_not_asked_for_before_its_issuer_is_known,
            "client-auth:identity-assertion:issuer-pinning",
        ),
        scenario!(
            a_server_that_takes_no_identities_ends_the_flow,
            "client-auth:identity-assertion:disabled-rejected",
        ),
        scenario!(
            an_identity_that_is_refused_ends_the_flow,
            "client-auth:identity-assertion:invalid-assertion",
        ),
    ];
    all.into_iter().map(Scenario::over_http).collect()
}

async fn an_expired_token_is_renewed_before_the_request(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;
    issuer.script().lifetime = 0;
    let client = connect(&world, &server, oauth(&server)).await.unwrap();
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
        assert_ne!(call.status, 401, "nothing was refused");
    }
    client.close().await.unwrap();
}

async fn a_refresh_token_that_is_refused_is_not_used_again(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;
    let client = connect(&world, &server, oauth(&server)).await.unwrap();
    client.call_tool("whoami", ()).await.unwrap();
    let id = find(&issuer.received(), "GET /authorize").query()["client_id"].clone();
    issuer.end_tokens();
    let error = json!({"error": "invalid_grant"});
    issuer.script().says_next("/token", 400, error);
    // The person declines at first, so that nothing new takes the place of what was refused.
    let right = issuer.script().comes_back_with.clone();
    issuer.script().comes_back_with = "error=server_error&state={state}&iss={issuer}".into();

    let declined = client.call_tool("whoami", ()).await;
    issuer.script().comes_back_with = right;
    client.call_tool("whoami", ()).await.unwrap();

    assert!(declined.is_err());
    let received = issuer.received();
    let shown = received.iter().filter(|it| it.contains("-refresh-1"));
    assert_eq!(shown.count(), 1, "{received:?}");
    let visits = received.iter().filter(|it| it.what() == "GET /authorize");
    let ids: Vec<_> = visits.map(|it| it.query()["client_id"].clone()).collect();
    assert_eq!(ids, [id.clone(), id], "who the client is stays known");
    assert!(!received.iter().any(|it| it.what() == "POST /register"));
    client.close().await.unwrap();
}

async fn a_client_acts_for_itself_by_a_secret_or_by_a_key(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::with(&[&issuer], |guard| guard.scopes(["read"])).await;
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
    let key = SigningKey::from_pkcs8(pkcs8.as_ref()).unwrap();
    let client = || RegisteredClient::new(&issuer.url, "nightly");
    let unattended = |client| unattended(&server).client(client).client_credentials();

    let by_secret = unattended(client().secret("hush"));
    call(&world, &server, by_secret).await.unwrap();
    let by_secret = issuer.received();
    let by_key = unattended(client().key(key));
    call(&world, &server, by_key).await.unwrap();
    let by_key = issuer.received();

    for received in [&by_secret, &by_key] {
        let requests: Vec<_> = received.iter().map(Received::what).collect();
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

/// The claims of a JWT that this key has signed.
fn verified(jwt: &str, public_key: &[u8]) -> Value {
    let (message, signature) = jwt.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public_key);
    key.verify(message.as_bytes(), &signature).unwrap();
    let claims = message.split_once('.').unwrap().1;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

/// An identity provider, an authorization server that trusts it, and a server of that one.
struct Company {
    provider: Issuer,
    issuer: Issuer,
    server: Guarded,
    /// How often an application was asked for an ID token.
    asked: Arc<AtomicUsize>,
}

impl Company {
    async fn new() -> Self {
        let (provider, issuer) = (Issuer::start().await, Issuer::start().await);
        let server = Guarded::by(&[&issuer]).await;
        let grants = json!([JWT_BEARER]);
        issuer.script().metadata["grant_types_supported"] = grants;
        let profiles = json!(["urn:ietf:params:oauth:grant-profile:id-jag"]);
        issuer.script().metadata["authorization_grant_profiles_supported"] = profiles;
        let vouched = json!({"access_token": "an-id-jag", "token_type": "N_A",
            "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"});
        provider.script().says_next("/token", 200, vouched);
        Self {
            provider,
            issuer,
            server,
            asked: Arc::default(),
        }
    }

    fn oauth(&self) -> OAuth {
        let us =
            RegisteredClient::new(&self.provider.url, "us-at-provider").secret("provider-hush");
        let provider = IdentityProvider::new(format!("{}/token", self.provider.url), us);
        let client = RegisteredClient::new(&self.issuer.url, "us").secret("hush");
        let asked = self.asked.clone();
        unattended(&self.server)
            .client(client)
            .enterprise(provider, move |issuer| {
                asked.fetch_add(1, Ordering::SeqCst);
                async move {
                    // As an application would that has to ask somebody else.
                    tokio::task::yield_now().await;
                    Ok(Secret::new(format!("id-token-of {issuer}")))
                }
            })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn an_identity_from_elsewhere_is_exchanged_for_a_token(world: World) {
    let company = Company::new().await;
    let Company {
        provider,
        issuer,
        server,
        ..
    } = &company;

    let name = call(&world, server, company.oauth()).await.unwrap();

    assert_eq!(name, format!("{} ada", issuer.url));
    assert_eq!(company.asked(), 1);
    let token_type = "urn:ietf:params:oauth:token-type";
    let [exchanged] = &provider.received()[..] else {
        panic!("the provider was sent something else as well");
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
    let requests: Vec<_> = received.iter().map(Received::what).collect();
    assert_eq!(requests, [&format!("GET {WELL_KNOWN}"), "POST /token"]);
    let form = received[1].form();
    assert_eq!(
        (&*form["grant_type"], &*form["assertion"]),
        (JWT_BEARER, "an-id-jag")
    );
    assert_eq!(form["resource"], server.url);
}

async fn an_identity_is_not_asked_for_before_its_issuer_is_known(world: World) {
    let company = Company::new().await;
    let other = Issuer::start().await;
    company.server.publishes(&other.url, None);

    let named_another = why(call(&world, &company.server, company.oauth()).await);
    let visited = other.requests();
    company.server.publishes(&company.issuer.url, None);
    company.issuer.script().metadata["issuer"] = json!(other.url);
    let is_another = why(call(&world, &company.server, company.oauth()).await);

    assert!(
        named_another.contains("the client is registered at"),
        "{named_another}"
    );
    assert!(visited.is_empty(), "{visited:?}");
    assert!(is_another.contains("another issuer"), "{is_another}");
    let discovery = format!("GET {WELL_KNOWN}");
    assert_eq!(company.issuer.requests(), [discovery]);
    assert_eq!(company.asked(), 0);
    assert!(company.provider.requests().is_empty());
}

async fn a_server_that_takes_no_identities_ends_the_flow(world: World) {
    let company = Company::new().await;
    let grants = "grant_types_supported";
    let discovery = format!("GET {WELL_KNOWN}");

    company.issuer.script().metadata[grants] = json!(["authorization_code", "refresh_token"]);
    let unlisted = why(call(&world, &company.server, company.oauth()).await);
    let (asked, sent) = (company.asked(), company.provider.requests());
    let visits = company.issuer.requests();
    // One that does not list what it takes says so when it is tried.
    company.issuer.script().metadata[grants] = Value::Null;
    let error = json!({"error": "unsupported_grant_type"});
    company.issuer.script().says_next("/token", 400, error);
    let tried = why(call(&world, &company.server, company.oauth()).await);

    assert!(
        unlisted.contains("does not support the grant"),
        "{unlisted}"
    );
    assert_eq!((asked, sent.len()), (0, 0), "nothing secret is sent");
    assert_eq!(visits, [&*discovery]);
    assert!(tried.contains("unsupported_grant_type"), "{tried}");
    assert_eq!(company.issuer.requests(), [&discovery, "POST /token"]);
}

async fn an_identity_that_is_refused_ends_the_flow(world: World) {
    let discovery = format!("GET {WELL_KNOWN}");
    let by_issuer = Company::new().await;
    let error = json!({"error": "invalid_grant", "error_description": "a forged assertion"});
    by_issuer.issuer.script().says_next("/token", 400, error);
    let by_provider = Company::new().await;
    {
        let mut script = by_provider.provider.script();
        script.says_first("/token", 400, json!({"error": "invalid_request"}));
    }

    let at_issuer = why(call(&world, &by_issuer.server, by_issuer.oauth()).await);
    let at_provider = why(call(&world, &by_provider.server, by_provider.oauth()).await);

    assert!(at_issuer.contains("a forged assertion"), "{at_issuer}");
    assert_eq!(by_issuer.provider.requests(), ["POST /token"]);
    assert_eq!(
        by_issuer.issuer.requests(),
        [&discovery, "POST /token"],
        "once"
    );
    assert!(at_provider.contains("invalid_request"), "{at_provider}");
    assert_eq!(by_provider.issuer.requests(), [discovery]);
}

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
