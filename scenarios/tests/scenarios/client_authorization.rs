//! The authorization-code flow of the client, and its checks of the redirect.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline::Error;
use bowline::http::client::{HttpClient, HyperClient, RequestBody};
use bowline_auth::client::{Loopback, OAuth};
use bowline_example_authorization_server::SimulatedUser;
use bytes::Bytes;
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::authorization::ServerAndIssuer;
use crate::protected_server::{
    ProtectedServer, RecordedRequest, ScriptedIssuer, WELL_KNOWN, authorization_error, call,
    connect, oauth,
};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            the_authorization_code_flow_ends_with_a_working_call,
            "flow:oauth:authorization-code-roundtrip",
        ),
        scenario!(
            a_401_starts_one_flow_and_its_token_is_sent_with_every_request,
            "client-auth:401-triggers-flow",
            "client-auth:bearer-header:every-request",
        ),
        scenario!(
            the_token_request_names_the_resource_and_uses_pkce_s256,
            "client-auth:resource-parameter",
            "client-auth:pkce:s256",
        ),
        scenario!(
            an_issuer_without_pkce_s256_is_rejected,
            "client-auth:pkce:refuse-if-unsupported",
        ),
        scenario!(
            a_redirect_with_a_wrong_state_or_issuer_is_rejected,
            "client-auth:state:verify",
            "client-auth:authorization-response:iss-verify",
        ),
        scenario!(
            a_redirect_with_an_error_ends_the_flow,
            "client-auth:authorize:error-surfaces",
        ),
        scenario!(
            a_new_token_that_is_rejected_is_an_error,
            "client-auth:401-after-auth-throws",
        ),
        scenario!(
            insufficient_scope_requests_more_scopes_once,
            "client-auth:403-scope-upgrade",
            "client-auth:403-scope-union",
        ),
        scenario!(
            scopes_come_from_the_challenge_or_the_resource_metadata,
            "client-auth:scope-selection:priority",
        ),
        scenario!(
            offline_access_is_requested_where_it_is_supported,
            "client-auth:authorize:offline-access-consent",
        ),
    ];
    all.into_iter().map(Scenario::over_http).collect()
}

async fn the_authorization_code_flow_ends_with_a_working_call(env: ScenarioEnv) {
    let servers = ServerAndIssuer::new("read").await;
    // The browser loads the authorization page, the user consents, and it follows the redirect to the loopback port.
    let loopback = Loopback::new(|url| {
        let url = url.to_owned();
        tokio::spawn(async move {
            let back = SimulatedUser::new("ada").allow(&url).await.unwrap();
            let mut request = http::Request::new(RequestBody::from(Bytes::new()));
            *request.uri_mut() = back.parse().unwrap();
            HyperClient::plain().send(request).await.unwrap();
        });
        Ok(())
    });
    let oauth = OAuth::new(&servers.resource).user_agent(loopback);

    let connect = env.connect_to(&servers.resource).authorizer(oauth);
    let client = connect.await.unwrap();
    let name = client.call_tool("whoami", ()).await.unwrap().text();

    assert_eq!(name, format!("{} ada: read", servers.issuer));
    client.close().await.unwrap();
}

async fn a_401_starts_one_flow_and_its_token_is_sent_with_every_request(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;

    let client = connect(&env, &server, oauth(&server)).await.unwrap();
    let calls = [(); 3].map(|()| tokio::spawn(client.call_tool("whoami", ()).start()));
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let before = server.received();
    client.call_tool("whoami", ()).await.unwrap();
    client.list_tools().await.unwrap();
    client.close().await.unwrap();
    let after = server.received();

    assert_eq!(
        issuer.requests(),
        [
            &format!("GET {WELL_KNOWN}"),
            "POST /register",
            "GET /authorize",
            "POST /token"
        ],
        "expected one flow for all calls"
    );
    let refused = before.iter().find(|it| it.path == "/mcp").unwrap();
    assert_eq!((refused.status, refused.authorization()), (401, None));
    let bearer = format!("Bearer {}", issuer.script().last_token());
    assert!(after.len() >= 2, "{after:?}");
    for received in &after {
        assert_eq!(received.authorization(), Some(&*bearer), "{received:?}");
    }
    let mut all = before.iter().chain(&after);
    assert!(all.all(|received| received.query().is_empty()));
}

async fn the_token_request_names_the_resource_and_uses_pkce_s256(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;

    call(&env, &server, oauth(&server)).await.unwrap();
    let first = issuer.received();
    call(&env, &server, oauth(&server)).await.unwrap();
    let second = issuer.received();

    for received in [&first, &second] {
        let requested = find(received, "GET /authorize").query();
        let redeemed = find(received, "POST /token").form();
        assert_eq!(requested["resource"], server.url);
        assert_eq!(redeemed["resource"], server.url);
        assert_eq!(requested["code_challenge_method"], "S256");
        let hashed = URL_SAFE_NO_PAD.encode(Sha256::digest(&redeemed["code_verifier"]));
        assert_eq!(requested["code_challenge"], hashed);
    }
    let challenge = |received: &[RecordedRequest]| {
        let requested = find(received, "GET /authorize").query();
        requested["code_challenge"].clone()
    };
    assert_ne!(
        challenge(&first),
        challenge(&second),
        "the challenge is reused"
    );
}

async fn an_issuer_without_pkce_s256_is_rejected(env: ScenarioEnv) {
    let methods = "code_challenge_methods_supported";
    for supported in [None, Some(json!([])), Some(json!(["plain"]))] {
        let (issuer, server) = ProtectedServer::with_issuer().await;
        {
            let metadata = &mut issuer.script().metadata;
            let metadata = metadata.as_object_mut().unwrap();
            metadata.remove(methods).unwrap();
            metadata.extend(supported.map(|supported| (methods.to_owned(), supported)));
        }

        let reason = authorization_error(call(&env, &server, oauth(&server)).await);

        assert!(reason.contains("PKCE with S256"), "{reason}");
        assert_eq!(issuer.requests(), [format!("GET {WELL_KNOWN}")]);
    }
}

async fn a_redirect_with_a_wrong_state_or_issuer_is_rejected(env: ScenarioEnv) {
    for redirect_query in [
        "code={code}&iss={issuer}",
        "code={code}&state=of-another-flow&iss={issuer}",
        "code={code}&state={state}x&iss={issuer}",
        // The metadata requires `iss`.
        "code={code}&state={state}",
        "code={code}&state={state}&iss=https://evil.example",
        "code={code}&state={state}&iss={issuer}/",
        // An error of another issuer is not trusted either.
        "error=access_denied&state={state}&iss=https://evil.example",
    ] {
        let (issuer, server) = ProtectedServer::with_issuer().await;
        issuer.script().redirect_query = redirect_query.into();

        let reason = authorization_error(call(&env, &server, oauth(&server)).await);

        assert!(
            reason.starts_with("not trusted"),
            "{redirect_query}: {reason}"
        );
        let requests = issuer.requests();
        assert_eq!(
            requests.last().unwrap(),
            "GET /authorize",
            "the code was sent"
        );
    }
}

async fn a_redirect_with_an_error_ends_the_flow(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;
    let error = "error=access_denied&error_description=not+today";
    issuer.script().redirect_query = format!("{error}&state={{state}}&iss={{issuer}}");

    let reason = authorization_error(call(&env, &server, oauth(&server)).await);

    assert!(reason.contains("access_denied"), "{reason}");
    assert!(reason.contains("not today"), "{reason}");
    assert_eq!(issuer.requests().last().unwrap(), "GET /authorize");
}

async fn a_new_token_that_is_rejected_is_an_error(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;
    issuer.script().accepts_tokens = false;

    let refused = call(&env, &server, oauth(&server)).await;

    let Err(Error::Unauthorized { challenges, .. }) = refused else {
        panic!("expected `Unauthorized`, got {refused:?}");
    };
    assert_eq!(challenges[0].error(), Some("invalid_token"));
    let requests = issuer.requests();
    let count = |what: &str| requests.iter().filter(|it| *it == what).count();
    assert_eq!((count("GET /authorize"), count("POST /token")), (1, 1));
    let received = server.received();
    let shown = received.iter().filter(|it| it.path == "/mcp");
    let shown: Vec<_> = shown.map(|it| it.authorization().is_some()).collect();
    assert_eq!(
        shown,
        [false, true],
        "expected one request without a token and one with it"
    );
}

async fn insufficient_scope_requests_more_scopes_once(env: ScenarioEnv) {
    let (generous, stingy) = (ScriptedIssuer::start().await, ScriptedIssuer::start().await);
    stingy.script().granted_scope = Some("read".into());
    for issuer in [&generous, &stingy] {
        let server = ProtectedServer::with_guard(&[issuer], |guard| guard.scopes(["read"])).await;
        // The challenge names only the missing scope.
        let challenge = "Bearer error=\"insufficient_scope\", scope=\"write\"";
        server.overrides().challenges.insert(403, challenge.into());
        let client = connect(&env, &server, oauth(&server)).await.unwrap();

        client.call_tool("whoami", ()).await.unwrap();
        let first = client.call_tool("write", ()).await;
        let second = client.call_tool("write", ()).await;

        let received = issuer.received();
        let requested = received
            .iter()
            .filter(|it| it.method_and_path() == "GET /authorize");
        let requested: Vec<_> = requested.map(|it| it.query()["scope"].clone()).collect();
        assert_eq!(requested, ["read", "read write"]);
        if std::ptr::eq(issuer, &generous) {
            assert_eq!(first.unwrap().text(), "written");
            assert_eq!(second.unwrap().text(), "written");
        } else {
            assert!(matches!(first, Err(Error::Unauthorized { .. })));
            let reason = authorization_error(second);
            assert!(reason.contains("requires `write`"), "{reason}");
        }
        client.close().await.unwrap();
    }
}

async fn scopes_come_from_the_challenge_or_the_resource_metadata(env: ScenarioEnv) {
    for (challenge, published, requested) in [
        ("Bearer scope=\"one two\"", Some(["read"]), Some("one two")),
        ("Bearer", Some(["read"]), Some("read")),
        ("Bearer", None, None),
    ] {
        let (issuer, server) = ProtectedServer::with_issuer().await;
        let published = published.as_ref().map(|scopes| &scopes[..]);
        server.publish_metadata(&issuer.url, published);
        server.overrides().challenges.insert(401, challenge.into());

        call(&env, &server, oauth(&server)).await.unwrap();

        let query = find(&issuer.received(), "GET /authorize").query();
        assert_eq!(
            query.get("scope").map(String::as_str),
            requested,
            "{challenge}"
        );
    }
}

async fn offline_access_is_requested_where_it_is_supported(env: ScenarioEnv) {
    for offered in [true, false] {
        let issuer = ScriptedIssuer::start().await;
        let server = ProtectedServer::with_guard(&[&issuer], |guard| guard.scopes(["read"])).await;
        if offered {
            issuer.script().metadata["scopes_supported"] = json!(["read", "offline_access"]);
        }

        call(&env, &server, oauth(&server)).await.unwrap();

        let query = find(&issuer.received(), "GET /authorize").query();
        let (scope, prompt) = (&*query["scope"], query.get("prompt").map(String::as_str));
        match offered {
            true => assert_eq!((scope, prompt), ("offline_access read", Some("consent"))),
            false => assert_eq!((scope, prompt), ("read", None)),
        }
    }
}

/// The only request with this method and path.
pub(crate) fn find(received: &[RecordedRequest], what: &str) -> RecordedRequest {
    let all: Vec<_> = received
        .iter()
        .filter(|it| it.method_and_path() == what)
        .collect();
    assert_eq!(all.len(), 1, "{what} in {received:?}");
    all[0].clone()
}
