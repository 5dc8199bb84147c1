//! A client whose calls are refused until it has a token: how a person is asked, and what of the answer is believed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline::Error;
use bowline::http::client::{HttpSend, HyperSend, RequestBody};
use bowline_auth::client::{Loopback, OAuth};
use bowline_example_authorization_server::User;
use bytes::Bytes;
use scenarios::{Scenario, World, scenario};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::authorization::Place;
use crate::guarded::{Guarded, Issuer, Received, WELL_KNOWN, call, connect, oauth, why};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            a_person_agrees_in_a_browser_and_the_call_works,
            "flow:oauth:authorization-code-roundtrip",
        ),
        scenario!(
            a_refusal_starts_one_flow_and_its_token_is_on_every_request,
            "client-auth:401-triggers-flow",
            "client-auth:bearer-header:every-request",
        ),
        scenario!(
            a_token_is_asked_for_this_server_with_a_hashed_challenge,
            "client-auth:resource-parameter",
            "client-auth:pkce:s256",
        ),
        scenario!(
            a_flow_without_proof_keys_is_not_begun,
            "client-auth:pkce:refuse-if-unsupported",
        ),
        scenario!(
            an_answer_to_another_flow_or_of_another_issuer_is_not_redeemed,
            "client-auth:state:verify",
            "client-auth:authorization-response:iss-verify",
        ),
        scenario!(
            a_redirect_with_an_error_ends_the_flow,
            "client-auth:authorize:error-surfaces",
        ),
        scenario!(
            a_token_that_is_refused_at_once_is_an_error,
            "client-auth:401-after-auth-throws",
        ),
        scenario!(
            a_token_that_allows_too_little_is_upgraded_once,
            "client-auth:403-scope-upgrade",
            "client-auth:403-scope-union",
        ),
        scenario!(
            scopes_are_those_of_the_challenge_or_else_all_that_are_published,
            "client-auth:scope-selection:priority",
        ),
        scenario!(
            a_token_that_lasts_is_asked_for_where_it_is_offered,
            "client-auth:authorize:offline-access-consent",
        ),
    ];
    all.into_iter().map(Scenario::over_http).collect()
}

async fn a_person_agrees_in_a_browser_and_the_call_works(world: World) {
    let place = Place::new("read").await;
    // The browser loads the authorization page, the user agrees, and it follows the redirect to the application's port.
    let loopback = Loopback::new(|url| {
        let url = url.to_owned();
        tokio::spawn(async move {
            let back = User::named("ada").visit(&url).await.unwrap();
            let mut request = http::Request::new(RequestBody::from(Bytes::new()));
            *request.uri_mut() = back.parse().unwrap();
            HyperSend::plain().send(request).await.unwrap();
        });
        Ok(())
    });
    let oauth = OAuth::new(&place.resource).user_agent(loopback);

    let connect = world.connect_to(&place.resource).authorizer(oauth);
    let client = connect.await.unwrap();
    let name = client.call_tool("whoami", ()).await.unwrap().text();

    assert_eq!(name, format!("{} ada: read", place.issuer));
    client.close().await.unwrap();
}

async fn a_refusal_starts_one_flow_and_its_token_is_on_every_request(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;

    let client = connect(&world, &server, oauth(&server)).await.unwrap();
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
        "one flow for all"
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

async fn a_token_is_asked_for_this_server_with_a_hashed_challenge(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;

    call(&world, &server, oauth(&server)).await.unwrap();
    let first = issuer.received();
    call(&world, &server, oauth(&server)).await.unwrap();
    let second = issuer.received();

    for received in [&first, &second] {
        let asked = find(received, "GET /authorize").query();
        let redeemed = find(received, "POST /token").form();
        assert_eq!(asked["resource"], server.url);
        assert_eq!(redeemed["resource"], server.url);
        assert_eq!(asked["code_challenge_method"], "S256");
        let hashed = URL_SAFE_NO_PAD.encode(Sha256::digest(&redeemed["code_verifier"]));
        assert_eq!(asked["code_challenge"], hashed);
    }
    let challenge = |received: &[Received]| {
        let asked = find(received, "GET /authorize").query();
        asked["code_challenge"].clone()
    };
    assert_ne!(challenge(&first), challenge(&second), "a new one each time");
}

async fn a_flow_without_proof_keys_is_not_begun(world: World) {
    let methods = "code_challenge_methods_supported";
    for supported in [None, Some(json!([])), Some(json!(["plain"]))] {
        let issuer = Issuer::start().await;
        let server = Guarded::by(&[&issuer]).await;
        {
            let metadata = &mut issuer.script().metadata;
            let metadata = metadata.as_object_mut().unwrap();
            metadata.remove(methods).unwrap();
            metadata.extend(supported.map(|supported| (methods.to_owned(), supported)));
        }

        let reason = why(call(&world, &server, oauth(&server)).await);

        assert!(reason.contains("PKCE with S256"), "{reason}");
        assert_eq!(issuer.requests(), [format!("GET {WELL_KNOWN}")]);
    }
}

async fn an_answer_to_another_flow_or_of_another_issuer_is_not_redeemed(world: World) {
    for came_back_with in [
        "code={code}&iss={issuer}",
        "code={code}&state=of-another-flow&iss={issuer}",
        "code={code}&state={state}x&iss={issuer}",
        // It promised to name itself.
        "code={code}&state={state}",
        "code={code}&state={state}&iss=https://evil.example",
        "code={code}&state={state}&iss={issuer}/",
        // Not even a refusal is believed.
        "error=access_denied&state={state}&iss=https://evil.example",
    ] {
        let issuer = Issuer::start().await;
        let server = Guarded::by(&[&issuer]).await;
        issuer.script().comes_back_with = came_back_with.into();

        let reason = why(call(&world, &server, oauth(&server)).await);

        assert!(
            reason.starts_with("not trusted"),
            "{came_back_with}: {reason}"
        );
        let requests = issuer.requests();
        assert_eq!(
            requests.last().unwrap(),
            "GET /authorize",
            "no code is sent"
        );
    }
}

async fn a_redirect_with_an_error_ends_the_flow(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;
    let error = "error=access_denied&error_description=not+today";
    issuer.script().comes_back_with = format!("{error}&state={{state}}&iss={{issuer}}");

    let reason = why(call(&world, &server, oauth(&server)).await);

    assert!(reason.contains("access_denied"), "{reason}");
    assert!(reason.contains("not today"), "{reason}");
    assert_eq!(issuer.requests().last().unwrap(), "GET /authorize");
}

async fn a_token_that_is_refused_at_once_is_an_error(world: World) {
    let issuer = Issuer::start().await;
    let server = Guarded::by(&[&issuer]).await;
    issuer.script().is_accepted = false;

    let refused = call(&world, &server, oauth(&server)).await;

    let Err(Error::Unauthorized { challenges, .. }) = refused else {
        panic!("it was not refused: {refused:?}");
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
        "once without a token and once with it"
    );
}

async fn a_token_that_allows_too_little_is_upgraded_once(world: World) {
    let (generous, stingy) = (Issuer::start().await, Issuer::start().await);
    stingy.script().grants = Some("read".into());
    for issuer in [&generous, &stingy] {
        let server = Guarded::with(&[issuer], |guard| guard.scopes(["read"])).await;
        // What is needed besides is all that this server says.
        let challenge = "Bearer error=\"insufficient_scope\", scope=\"write\"";
        server.front().challenges.insert(403, challenge.into());
        let client = connect(&world, &server, oauth(&server)).await.unwrap();

        client.call_tool("whoami", ()).await.unwrap();
        let first = client.call_tool("write", ()).await;
        let second = client.call_tool("write", ()).await;

        let received = issuer.received();
        let asked = received.iter().filter(|it| it.what() == "GET /authorize");
        let asked: Vec<_> = asked.map(|it| it.query()["scope"].clone()).collect();
        assert_eq!(asked, ["read", "read write"]);
        if std::ptr::eq(issuer, &generous) {
            assert_eq!(first.unwrap().text(), "written");
            assert_eq!(second.unwrap().text(), "written");
        } else {
            assert!(matches!(first, Err(Error::Unauthorized { .. })));
            let reason = why(second);
            assert!(reason.contains("the scopes `write`"), "{reason}");
        }
        client.close().await.unwrap();
    }
}

async fn scopes_are_those_of_the_challenge_or_else_all_that_are_published(world: World) {
    for (challenge, published, asked) in [
        ("Bearer scope=\"one two\"", Some(["read"]), Some("one two")),
        ("Bearer", Some(["read"]), Some("read")),
        ("Bearer", None, None),
    ] {
        let issuer = Issuer::start().await;
        let server = Guarded::by(&[&issuer]).await;
        let published = published.as_ref().map(|scopes| &scopes[..]);
        server.publishes(&issuer.url, published);
        server.front().challenges.insert(401, challenge.into());

        call(&world, &server, oauth(&server)).await.unwrap();

        let query = find(&issuer.received(), "GET /authorize").query();
        assert_eq!(query.get("scope").map(String::as_str), asked, "{challenge}");
    }
}

async fn a_token_that_lasts_is_asked_for_where_it_is_offered(world: World) {
    for offered in [true, false] {
        let issuer = Issuer::start().await;
        let server = Guarded::with(&[&issuer], |guard| guard.scopes(["read"])).await;
        if offered {
            issuer.script().metadata["scopes_supported"] = json!(["read", "offline_access"]);
        }

        call(&world, &server, oauth(&server)).await.unwrap();

        let query = find(&issuer.received(), "GET /authorize").query();
        let (scope, prompt) = (&*query["scope"], query.get("prompt").map(String::as_str));
        match offered {
            true => assert_eq!((scope, prompt), ("offline_access read", Some("consent"))),
            false => assert_eq!((scope, prompt), ("read", None)),
        }
    }
}

/// The only request of its kind.
pub(crate) fn find(received: &[Received], what: &str) -> Received {
    let all: Vec<_> = received.iter().filter(|it| it.what() == what).collect();
    assert_eq!(all.len(), 1, "{what} in {received:?}");
    all[0].clone()
}
