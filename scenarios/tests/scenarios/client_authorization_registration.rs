//! Client registration, client authentication, and the binding of credentials to their issuer.

use std::sync::Arc;

use bowline_auth::client::{MemoryStore, RegisteredClient};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::client_authorization::find;
use crate::protected_server::{
    CALLBACK, ProtectedServer, ScriptedIssuer, WELL_KNOWN, authorization_error, call, connect,
    oauth,
};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let all = vec![
        scenario!(
            only_a_client_without_an_id_registers,
            "client-auth:dcr",
            "client-auth:pre-registration",
            "client-auth:cimd",
        ),
        scenario!(
            a_failed_registration_is_an_error,
            "client-auth:dcr:registration-error-surfaces",
        ),
        scenario!(
            a_changed_registration_is_accepted_if_it_is_usable,
            "client-auth:dcr:substituted-metadata",
        ),
        scenario!(
            the_client_authenticates_with_the_registered_method,
            "client-auth:token-endpoint-auth-method",
        ),
        scenario!(
            credentials_are_sent_only_to_their_own_issuer,
            "client-auth:as-binding",
        ),
        scenario!(
            a_server_receives_only_tokens_of_its_own_issuer,
            "client-auth:token-provenance",
        ),
        scenario!(
            invalid_client_clears_the_registration_and_the_tokens,
            "client-auth:invalid-client-clears-all",
        ),
    ];
    all.into_iter().map(Scenario::over_http).collect()
}

async fn only_a_client_without_an_id_registers(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;
    let document = "https://app.example/client.json";
    let supported = "client_id_metadata_document_supported";
    issuer.script().metadata[supported] = json!(true);
    let known = RegisteredClient::new(&issuer.url, "known");

    let unknown = oauth(&server).name("An editor");
    call(&env, &server, unknown).await.unwrap();
    let registered = issuer.received();
    let known = oauth(&server).client(known);
    call(&env, &server, known).await.unwrap();
    let preregistered = issuer.received();
    let published = oauth(&server).client_metadata(document);
    call(&env, &server, published).await.unwrap();
    let by_document = issuer.received();

    let about = find(&registered, "POST /register").json();
    assert_eq!(about["redirect_uris"], json!([CALLBACK]));
    assert_eq!(about["client_name"], "An editor");
    let id = &find(&registered, "GET /authorize").query()["client_id"];
    assert!(id.ends_with("-client-1"), "not the registered id: {id}");
    for (received, id) in [(preregistered, "known"), (by_document, document)] {
        let requests: Vec<_> = received.iter().map(|it| it.method_and_path()).collect();
        let discovery = format!("GET {WELL_KNOWN}");
        assert_eq!(requests, [&discovery, "GET /authorize", "POST /token"]);
        assert_eq!(find(&received, "GET /authorize").query()["client_id"], id);
        assert_eq!(find(&received, "POST /token").form()["client_id"], id);
    }
}

async fn a_failed_registration_is_an_error(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;
    let error = json!({"error": "invalid_redirect_uri", "error_description": "no ports, please"});
    issuer.script().respond_next("/register", 400, error);

    let reason = authorization_error(call(&env, &server, oauth(&server)).await);

    assert!(reason.contains("invalid_redirect_uri"), "{reason}");
    assert!(reason.contains("no ports, please"), "{reason}");
    assert_eq!(issuer.requests().last().unwrap(), "POST /register");
}

async fn a_changed_registration_is_accepted_if_it_is_usable(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;
    let method = "token_endpoint_auth_method";

    issuer.script().registration_overrides = json!({
        "client_name": "another name",
        "grant_types": ["authorization_code"],
        "scope": "less",
        "client_secret": "hush",
        "client_secret_expires_at": 0,
        method: "client_secret_post",
        "something_of_its_own": {"x": 1},
    });
    call(&env, &server, oauth(&server)).await.unwrap();
    let redeemed = find(&issuer.received(), "POST /token").form();
    let mut refused = Vec::new();
    for unusable in [
        json!({method: "tls_client_auth"}),
        json!({method: "client_secret_basic"}),
        json!({method: "private_key_jwt"}),
        json!({"client_id": Value::Null}),
    ] {
        issuer.script().registration_overrides = unusable;
        refused.push(authorization_error(
            call(&env, &server, oauth(&server)).await,
        ));
    }

    assert_eq!(redeemed["client_secret"], "hush");
    let why_not = [
        "tls_client_auth",
        "client_secret_basic",
        "private_key_jwt",
        "registration",
    ];
    for (reason, word) in refused.iter().zip(why_not) {
        assert!(reason.contains(word), "{reason}");
    }
    let requests = issuer.requests();
    assert!(
        !requests.iter().any(|it| it == "GET /authorize"),
        "the user was prompted"
    );
}

async fn the_client_authenticates_with_the_registered_method(env: ScenarioEnv) {
    let method = "token_endpoint_auth_method";
    for (registration_overrides, basic, secret) in [
        (json!({method: "none"}), false, None),
        (
            json!({method: "client_secret_basic", "client_secret": "hush"}),
            true,
            None,
        ),
        (
            json!({method: "client_secret_post", "client_secret": "hush"}),
            false,
            Some("hush"),
        ),
    ] {
        let (issuer, server) = ProtectedServer::with_issuer().await;
        issuer.script().registration_overrides = registration_overrides.clone();
        let client = connect(&env, &server, oauth(&server)).await.unwrap();
        client.call_tool("whoami", ()).await.unwrap();
        issuer.revoke_tokens();

        client.call_tool("whoami", ()).await.unwrap();

        let received = issuer.received();
        let sent = received
            .iter()
            .filter(|it| it.method_and_path() == "POST /token");
        let sent: Vec<_> = sent.collect();
        assert_eq!(
            sent.len(),
            2,
            "expected one for the code and one for the refresh"
        );
        for sent in sent {
            let shown = sent
                .authorization()
                .is_some_and(|it| it.starts_with("Basic "));
            assert_eq!(shown, basic, "{registration_overrides}");
            let form = sent.form();
            assert_eq!(form.get("client_secret").map(String::as_str), secret);
            // Beside `Basic` too: some authorization servers look the client up by the form.
            assert!(form.contains_key("client_id"), "{registration_overrides}");
        }
        client.close().await.unwrap();
    }
}

async fn credentials_are_sent_only_to_their_own_issuer(env: ScenarioEnv) {
    let (home, other) = (ScriptedIssuer::start().await, ScriptedIssuer::start().await);
    let server = ProtectedServer::trusting(&[&other, &home]).await;

    // A preregistered client.
    let own = || RegisteredClient::new(&home.url, "known").secret("hush");
    let abroad = oauth(&server).client(own());
    let by_person = authorization_error(call(&env, &server, abroad).await);
    let abroad = oauth(&server).client(own()).client_credentials();
    let by_itself = authorization_error(call(&env, &server, abroad).await);
    let visits = (home.requests(), other.requests());
    // A dynamically registered client, whose server changes its issuer.
    let client = connect(&env, &server, oauth(&server)).await.unwrap();
    client.call_tool("whoami", ()).await.unwrap();
    let registered = find(&other.received(), "GET /authorize").query();
    server.publish_metadata(&home.url, None);
    other.revoke_tokens();
    client.call_tool("whoami", ()).await.unwrap();

    for reason in [by_person, by_itself] {
        assert!(reason.contains("the client is registered at"), "{reason}");
    }
    assert_eq!(visits, (vec![], vec![]), "an issuer was contacted");
    let received = home.received();
    let given = find(&received, "GET /authorize").query();
    assert_eq!(find(&received, "POST /register").status, 201);
    assert_ne!(given["client_id"], registered["client_id"]);
    let old = &registered["client_id"];
    assert!(!received.iter().any(|it| it.contains(old)), "{received:?}");
    client.close().await.unwrap();
}

async fn a_server_receives_only_tokens_of_its_own_issuer(env: ScenarioEnv) {
    let (one, two) = (ScriptedIssuer::start().await, ScriptedIssuer::start().await);
    let (first, second) = (
        ProtectedServer::trusting(&[&one, &two]).await,
        ProtectedServer::trusting(&[&two]).await,
    );
    let store = Arc::new(MemoryStore::new());
    let oauth = |server: &ProtectedServer| oauth(server).store(store.clone());

    let client = connect(&env, &first, oauth(&first)).await.unwrap();
    client.call_tool("whoami", ()).await.unwrap();
    call(&env, &second, oauth(&second)).await.unwrap();
    let (of_one, of_two) = (one.script().last_token(), two.script().last_token());
    let (shown_first, shown_second) = (first.received(), second.received());
    // The first server changes to the other issuer.
    first.publish_metadata(&two.url, None);
    one.revoke_tokens();
    one.received();
    client.call_tool("whoami", ()).await.unwrap();
    first.received();
    client.call_tool("whoami", ()).await.unwrap();

    assert!(shown_first.iter().any(|it| it.contains(&of_one)));
    assert!(!shown_first.iter().any(|it| it.contains(&of_two)));
    assert!(shown_second.iter().any(|it| it.contains(&of_two)));
    assert!(!shown_second.iter().any(|it| it.contains(&of_one)));
    let moved = first.received();
    let calls: Vec<_> = moved.iter().filter(|it| it.path == "/mcp").collect();
    let bearer = format!("Bearer {}", two.script().last_token());
    assert!(!calls.is_empty());
    assert!(calls.iter().all(|it| it.authorization() == Some(&bearer)));
    let renewals = |issuer: &ScriptedIssuer| {
        let received = issuer.received();
        received.iter().any(|it| it.contains("refresh_token="))
    };
    assert!(
        !renewals(&one) && !renewals(&two),
        "a refresh token was sent to another issuer"
    );
    client.close().await.unwrap();
}

async fn invalid_client_clears_the_registration_and_the_tokens(env: ScenarioEnv) {
    let (issuer, server) = ProtectedServer::with_issuer().await;
    let client = connect(&env, &server, oauth(&server)).await.unwrap();
    client.call_tool("whoami", ()).await.unwrap();
    let old = find(&issuer.received(), "GET /authorize").query();
    let old = &old["client_id"];
    issuer.revoke_tokens();
    let error = json!({"error": "invalid_client"});
    issuer.script().respond_next("/token", 401, error);

    client.call_tool("whoami", ()).await.unwrap();

    let received = issuer.received();
    let requests: Vec<_> = received.iter().map(|it| it.method_and_path()).collect();
    let discovery = format!("GET {WELL_KNOWN}");
    let renewal = [&discovery, "POST /token"];
    let anew = [
        &discovery,
        "POST /register",
        "GET /authorize",
        "POST /token",
    ];
    assert_eq!(requests, [&renewal[..], &anew].concat());
    assert!(received[1].contains(old) && received[1].contains("-refresh-1"));
    for later in &received[2..] {
        assert!(
            !later.contains(old) && !later.contains("-refresh-1"),
            "{later:?}"
        );
    }
    client.close().await.unwrap();
}
